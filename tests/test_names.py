"""The public names: few, all there after ``import crfkit``, each in the docs."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import itertools
import pkgutil
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import crfkit

ROOT = Path(__file__).parents[1]
EXTRAS = [name for name in ("torch", "triton", "starlette", "dask") if importlib.util.find_spec(name) is None]
MOST: int = runpy.run_path(str(ROOT / "tools" / "floor_plan.py"))["MOST_NAMES"]


def public_modules() -> list[str]:
    """Importable modules of the package that declare public names; not private ones, nor what ``compat`` imitates."""
    found = ["crfkit"]
    for module in pkgutil.walk_packages(crfkit.__path__, "crfkit."):
        parts = module.name.split(".")[1:]
        if (parts[0] != "compat" or len(parts) == 1) and not any(x.startswith("_") for x in parts):
            found.append(module.name)
    return found


def public_names() -> dict[str, dict[str, Any]]:
    """Public names by module, each where it is first met: packages before their modules."""
    seen: set[str] = set()
    out: dict[str, dict[str, Any]] = {}
    for name in sorted(public_modules(), key=lambda x: (x.count("."), x)):
        try:
            module = importlib.import_module(name)
        except ImportError:  # an extra that is not installed here
            continue
        for public in getattr(module, "__all__", ()):
            if public not in seen:
                seen.add(public)
                out.setdefault(name, {})[public] = getattr(module, public)
    return out


def test_the_public_names_can_be_held_in_the_head() -> None:
    found: dict[str, str] = {}
    for name in public_modules():
        if name == "crfkit.compat":  # others' names
            continue
        try:
            module = importlib.import_module(name)
        except ImportError:
            assert EXTRAS, f"{name} cannot be imported"
            continue
        for public in getattr(module, "__all__", ()):
            assert hasattr(module, public), f"{name} has no {public}"
            found.setdefault(public, name)
    assert len(found) <= MOST, sorted(found)


@pytest.mark.parametrize(
    "name",
    [
        "active.query",
        "chain.Potentials",
        "chain.marginals",
        "compat.pycrfsuite.Tagger",
        "compat.sklearn_crfsuite.CRF",
        "data.load_corpus",
        "features.Template",
        "graph.GraphCRF",
        "integrations.from_table",
        "integrations.spacy.CrfkitComponent",
        "metrics.evaluate",
        "model.ChainModel",
        "plotting.confusion",
        "training.LBFGS",
        "CRF",
        "HMM",
        "MEMM",
        "load",
    ],
)
def test_advertised_names_are_there_after_import(name: str) -> None:
    code = f"import crfkit; crfkit.{name}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_neural_crf_is_there_after_import() -> None:
    pytest.importorskip("torch")
    code = "import crfkit; assert crfkit.torch.NeuralCRF is crfkit.NeuralCRF"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_modules_that_a_page_names_are_there_after_import() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    names = {x for page in pages for x in re.findall(r"crfkit(?:\.[a-z_]+)+(?!\w)", page.read_text(encoding="utf-8"))}
    each = "try: {0}\nexcept AttributeError: print('{0}')\nexcept ImportError: pass\n"
    tries = "".join(each.format(name) for name in names)
    out = subprocess.run([sys.executable, "-c", f"import crfkit\n{tries}"], check=True, capture_output=True, text=True)
    assert out.stdout.split() == []


def test_without_torch_the_error_names_the_extra() -> None:
    code = """if True:
        import sys
        class Without:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] == "torch":
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        sys.meta_path.insert(0, Without())
        import importlib.util
        importlib.util.find_spec = lambda name, find=importlib.util.find_spec: None if name == "torch" else find(name)
        from crfkit import *
        import crfkit
        for get in (lambda: crfkit.torch, lambda: crfkit.NeuralCRF, lambda: crfkit.torch.NeuralCRF):
            try:
                get()
            except ImportError as error:
                print(error)
        print("torch" in dir(crfkit), CRF.__name__)
    """
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.splitlines()
    assert out == ["crfkit.torch needs torch: pip install 'crfkit[torch]'"] * 3 + ["False CRF"]


def test_what_is_plain_needs_neither_scikit_learn_nor_scipy() -> None:
    code = """if True:
        import sys
        sys.modules |= {"sklearn": None, "scipy": None}
        import warnings
        from crfkit import CRF, HMM, MEMM, active, cli, graph
        from crfkit.base.messages import ConvergenceWarning, NotFittedError
        from crfkit.calibration import PredictionSets, calibration_curve, fit_temperature
        from crfkit.data import load_corpus
        X, y = load_corpus("ingredients", "train")
        try:
            CRF().predict(X)
        except NotFittedError as error:
            print(error)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            crf = CRF(max_iter=5).fit(X[:100], y[:100])
            MEMM(max_iter=5).fit(X[:100], y[:100])
        print({w.category is ConvergenceWarning for w in caught})
        HMM().fit(X[:100], [*y[:50], *[None] * 50]).predict(X)
        calibration_curve(crf, X[100:200], y[100:200])
        fit_temperature(crf, X[100:200], y[100:200])
        PredictionSets(crf).fit(X[100:200], y[100:200])
        active.query(crf, X, 3, diversity=0.5)
        graph.GraphCRF().fit([([[0.0], [1.0]], [[0, 1]])], [["A", "B"]])
        for get in (
            lambda: __import__("crfkit.compat.sklearn_crfsuite"),
            lambda: graph.SkipChainCRF().fit(X[:2], y[:2]),
            lambda: graph.GraphCRF(inference="trw").fit([([[0.0], [1.0]], [[0, 1]])], [["A", "B"]]),
        ):
            try:
                get()
            except ImportError as error:
                print(error)
        sys.argv = ["crfkit", "demo"]
        cli.main()
    """
    out = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    assert out.stdout.splitlines()[:5] == [
        "This CRF instance is not fitted yet. Call 'fit' with appropriate arguments before using this estimator.",
        "{True}",
        "crfkit.compat.sklearn_crfsuite needs scikit-learn: pip install 'crfkit[sklearn]'",
        "SkipChainCRF needs scipy: pip install 'crfkit[graph]'",
        "tree-reweighted inference needs scipy: pip install 'crfkit[graph]'",
    ]


def test_import_takes_nothing_that_is_heavy() -> None:
    heavy = "('torch', 'sklearn', 'scipy', 'pandas', 'pyarrow', 'matplotlib', 'spacy', 'typer', 'rich', 'safetensors')"
    code = f"import crfkit, sys; dir(crfkit); crfkit.CRF; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("", "numpy crfkit._core crfkit.chain crfkit.data crfkit.estimators crfkit.model"),
        ("crfkit.chain", "crfkit.data crfkit.estimators crfkit.graph crfkit.training"),
        ("crfkit.CRF", "crfkit.active crfkit.cli crfkit.compat crfkit.estimators.hmm crfkit.graph numpy.random"),
        ("crfkit.load", "crfkit.active crfkit.cli crfkit.compat crfkit.graph crfkit.integrations numpy.random"),
    ],
)
def test_nothing_is_imported_that_the_call_does_not_need(code: str, absent: str) -> None:
    code = f"import crfkit, sys\n{code}\nprint([m for m in {absent.split()} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert out.stdout.strip() == "[]"


def test_all_names_can_be_listed() -> None:
    assert set(crfkit.__all__) <= set(dir(crfkit))
    with pytest.raises(AttributeError, match="module 'crfkit' has no attribute 'nothing'"):
        crfkit.nothing  # type: ignore[attr-defined] # noqa: B018


def is_made_by_others(value: object) -> bool:
    """Records that functions give, errors, and what only a subclass can be made of."""
    if not inspect.isclass(value):
        return False
    record = dataclasses.is_dataclass(value) or hasattr(value, "_fields") or "Made by" in (value.__doc__ or "")
    return record or issubclass(value, BaseException) or inspect.isabstract(value)


def test_every_public_name_is_in_the_docs() -> None:
    """What a user calls stands on a page besides the list of names; the rest is told of where it is given."""
    pages = [ROOT / "README.md", *(p for p in (ROOT / "docs").rglob("*.md") if p.parent.name != "api")]
    words = set(re.findall(r"\w+", " ".join(page.read_text(encoding="utf-8") for page in pages)))
    for module, members in public_names().items():
        called = {name for name, value in members.items() if callable(value) and not is_made_by_others(value)}
        assert not called - words - {"app", "main", "Callback"}, f"names of {module} that no page tells of"


#: Functions and classes without an example: they need an extra or a terminal, or the estimators make them.
WITHOUT_EXAMPLE = {
    "BeamObjective",
    "Callback",
    "CrfkitComponent",
    "LikelihoodObjective",
    "Objective",
    "SemiSupervisedObjective",
    "app",
    "main",
    "to_arrow",
}


def test_every_public_name_has_a_docstring_and_an_example() -> None:
    silent = []
    for module, members in public_names().items():
        for name, value in members.items():
            doc = inspect.getdoc(value) or ""
            if inspect.isclass(value) or inspect.isroutine(value):
                assert doc, f"{module}.{name} has no docstring"
                if ">>>" not in doc and not is_made_by_others(value):
                    silent.append(name)
    assert not set(silent) - WITHOUT_EXAMPLE, "public names whose docstring has no example"


def bare_parameters(doc: str) -> list[str]:
    """Entries of the section Parameters that no description follows."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\S.*\n-+$|\Z)", doc, re.MULTILINE | re.DOTALL)
    lines = [*(section[1].splitlines() if section else ()), ""]
    return [a for a, b in itertools.pairwise(lines) if re.match(r"\S+.* : ", a) and not b.startswith("    ")]


def test_every_parameter_has_a_description() -> None:
    """Of functions, of classes, and of their methods."""
    assert bare_parameters("Parameters\n----------\na : int\nb, c : int\n    Two.\n") == ["a : int"]
    for module, members in public_names().items():
        for name, value in members.items():
            methods = [x for key, x in inspect.getmembers(value) if not key.startswith("_")]
            for thing in [value, *(methods if inspect.isclass(value) else ())]:
                if inspect.isclass(thing) or inspect.isroutine(thing):
                    bare = bare_parameters(inspect.getdoc(thing) or "")
                    assert not bare or not thing.__module__.startswith("crfkit"), f"{module}.{name}: {bare}"


def test_what_is_for_study_is_listed_together() -> None:
    """Names that lie in a file ``study.py``: something else is for use."""
    for module, members in public_names().items():
        page = ROOT / "docs" / "api" / f"{module.split('.')[-1]}.md"
        listed = page.read_text(encoding="utf-8").partition("## For study")[2].split() if page.exists() else []
        for name, value in members.items():
            if str(getattr(value, "__module__", "")).endswith(".study"):
                assert name in listed, f"{page}: {name}"
