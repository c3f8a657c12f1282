"""Docs cannot drift: every code block runs, every docstring's example holds, the command page is current."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import inspect
import io
import operator
import os
import pkgutil
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import crfkit

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
MODULES = [m.name for m in pkgutil.walk_packages(crfkit.__path__, "crfkit.") if "_core" not in m.name]
if importlib.util.find_spec("triton") is None:
    MODULES.remove("crfkit.torch.kernels")


NUMBER = re.compile(r"\d+\.\d{3,}")


def matches(expected: str, got: str) -> bool:
    """Whether the output is the expected one, where "..." stands for anything.

    The last digits of weights depend on the processor's instruction set: numbers with three decimals or more may be off
    by five in the last one.
    """
    wanted, found = NUMBER.findall(expected), NUMBER.findall(got)
    if len(wanted) == len(found):
        pairs = iter([w if _is_near(w, f) else f for w, f in zip(wanted, found, strict=True)])
        got = NUMBER.sub(lambda _: next(pairs), got)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(expected, got, flags)


def _is_near(a: str, b: str) -> bool:
    digits = len(a.partition(".")[2])
    return digits == len(b.partition(".")[2]) and abs(float(a) - float(b)) < 5.5 * 10.0**-digits


def test_numbers_may_differ_in_their_last_digit() -> None:
    assert matches("a +1.2344 b 0.716", "a +1.2347 b 0.718")
    assert not matches("a +1.2344", "a +1.2354")
    assert not matches("a 0.71", "a 0.72")
    assert not matches("0.123 0.456", "0.456 0.123")


def run_shell(text: str, folder: Path) -> None:
    """Runs the lines that begin with $, and compares what they print with the lines that follow."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.replace("\\\n", "").partition("\n")  # a backslash continues a line
        if command.startswith(("make", "git", "pip")):
            continue  # they set up what these tests run in
        out = subprocess.run(
            command, shell=True, cwd=folder, capture_output=True, text=True, env={**os.environ, "PATH": path}
        )
        assert out.returncode == 0, f"{command}\n{out.stdout}{out.stderr}"
        if expected.strip():
            assert matches(expected, out.stdout + out.stderr), f"{command}\n{out.stdout}{out.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page run in order, in one empty folder and one namespace; output blocks hold what they print."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed: str | None = None
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, str(page), "exec"), namespace)
            printed = out.getvalue()
        elif language == "console":
            run_shell(text, tmp_path)
            printed = None
        elif language == "output":
            assert printed is not None, "an output block must follow a python block"
            assert matches(text, printed), f"expected:\n{text}\ngot:\n{printed}"


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_hold(name: str) -> None:
    module = importlib.import_module(name)
    results = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0


def test_examples_of_the_site_import_what_they_use() -> None:
    """Every block of examples on a name's page runs as it is copied: in a namespace that has nothing yet."""
    complete = runpy.run_path(str(ROOT / "docs" / "conf.py"))["import_names"]
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    modules = ("chain", "compat.sklearn_crfsuite", "dask", "data", "metrics", "segment", "torch")
    names = [f"crfkit.{m}.{name}" for m in modules for name in importlib.import_module(f"crfkit.{m}").__all__]
    for name in ["crfkit.HMM", *names, "crfkit.dask.CRF.explain"]:
        thing = operator.attrgetter(name.removeprefix("crfkit."))(crfkit)
        lines = (inspect.getdoc(thing) or "").splitlines() if callable(thing) else []
        complete(None, "", name, thing, None, lines)
        for block in "\n".join(lines).split("\n\n"):
            runner.run(doctest.DocTestParser().get_doctest(block, {}, name, None, 0))
    assert runner.summarize().failed == 0


def test_public_names_are_documented() -> None:
    """Every name that a package exports has a docstring; every function and class of the top level has an example."""
    for name in (
        "crfkit",
        "crfkit.chain",
        "crfkit.data",
        "crfkit.features",
        "crfkit.training",
        "crfkit.metrics",
        "crfkit.graph",
    ):
        module = importlib.import_module(name)
        for public in module.__all__:
            thing = getattr(module, public)
            if callable(thing) and not isinstance(thing, type(list[int])):
                assert thing.__doc__, f"{name}.{public}"


def test_the_command_page_is_current() -> None:
    script = ROOT / "tools" / "cli_page.py"
    page = runpy.run_path(str(script))["page"]()
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == page, "run 'make docs'"


def test_every_public_name_has_a_page() -> None:
    """The tables of docs/api list every public name; Sphinx makes a page of each."""
    names, _ = runpy.run_path(str(ROOT / "tools" / "floor_plan.py"))["public_names"]()
    pages = (ROOT / "docs" / "api").glob("*.md")
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    rows = re.findall(r"^(?:   |\.\. py:data:: |# crfkit\.)([\w.]+)", text, re.MULTILINE)
    listed = {part for row in rows for part in row.split(".")} | {"__version__"}
    assert set(names) <= listed, sorted(set(names) - listed)


@pytest.mark.parametrize("name", sorted(p.stem for p in (ROOT / "docs" / "api").glob("*.md") if p.stem != "index"))
def test_a_modules_page_lists_all_its_names(name: str) -> None:
    """Or another page of the API lists the same object."""
    listed: dict[int, object] = {}
    modules = []
    for page in (ROOT / "docs" / "api").glob("*.md"):
        for line in page.read_text(encoding="utf-8").splitlines():
            if match := re.fullmatch(r"\.\. currentmodule:: (.+)|(?:   |\.\. py:data:: )([\w.]+)", line):
                if match[1]:
                    module = pytest.importorskip(match[1])
                    modules += [module] if page.stem == name else []
                else:
                    thing = operator.attrgetter(match[2])(module)
                    listed[id(thing)] = thing
    for module in modules:
        things = {x: getattr(module, x) for x in module.__all__ if not x.startswith("__")}
        missing = [x for x, thing in things.items() if id(thing) not in listed and not inspect.ismodule(thing)]
        assert not missing, f"{module.__name__}: {missing}"


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        assert "[](" not in page.read_text(encoding="utf-8"), f"{page}: only Sphinx gives a link a text"
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} -> {target}"
