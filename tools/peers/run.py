"""Runs the test suites of packages that use CRFsuite, unedited, with crfkit in its place.

Source distributions are fetched with pip and unpacked into a folder, ``conftest.py`` beside this file is put above
them, and pytest runs each suite in a process of its own. Neither python-crfsuite nor sklearn-crfsuite needs to be
installed; the packages under test are installed into the folder without their dependencies. eli5's sources lack the
helper that its tests import; a stand-in is written beside them.

    python tools/peers/run.py [--folder FOLDER] [--original] [name ...]

``--original`` leaves out the swap, to see how the suites stand with what they were written for.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple


class Suite(NamedTuple):
    """A package and its tests: which files of its sources, and what else they need to be importable."""

    version: str
    tests: tuple[str, ...]
    needs: tuple[str, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()  # files that the sources lack


#: eli5's formatters in text and in HTML, as its tests expect of their helper.
FORMATS = """from eli5.formatters import format_as_html, format_as_text


def format_as_all(explanation, estimator, **settings):
    return format_as_text(explanation, **settings), format_as_html(explanation, **settings)
"""

SUITES = {
    "python-crfsuite": Suite("0.9.12", ("tests",)),
    "sklearn-crfsuite": Suite("0.5.0", ("tests",), ("scikit-learn", "tabulate", "tqdm")),
    "eli5": Suite(
        "0.16.0",
        ("tests/test_sklearn_crfsuite.py",),
        ("attrs", "graphviz", "jinja2", "scikit-learn", "tabulate"),
        (("tests/__init__.py", ""), ("tests/utils.py", FORMATS)),
    ),
    "usaddress": Suite(
        "0.5.16",
        ("tests/test_tagging.py", "tests/test_token_features.py", "tests/test_tokenizing.py"),
        ("probableparsing", "parserator==0.6.9", "doublemetaphone"),
    ),
    "probablepeople": Suite(
        "0.5.6", ("tests/test_tokenizing.py",), ("probableparsing", "parserator==0.6.9", "doublemetaphone")
    ),
    "parserator": Suite("0.6.9", ("tests",), ("chardet", "lxml")),
    "nltk": Suite(
        "3.10.4", ("nltk/test/unit/test_crf.py",), ("pytest-mock", "regex", "click", "joblib", "tqdm", "defusedxml")
    ),
}
HERE = Path(__file__).parent


def pip(*arguments: str) -> None:
    """Runs pip with this interpreter."""
    subprocess.run([sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *arguments], check=True)


def fetch(name: str, suite: Suite, folder: Path) -> Path:
    """The unpacked sources."""
    wanted = folder / f"{name.replace('-', '_')}-{suite.version}"
    if not wanted.exists():
        pinned = f"{name}=={suite.version}"
        pip("download", "--no-deps", "--no-binary", name, "-d", str(folder), pinned)
        with tarfile.open(wanted.with_name(wanted.name + ".tar.gz")) as archive:
            archive.extractall(folder, filter="data")
        for path, text in suite.missing:
            (wanted / path).write_text(text)
        packages = [*suite.needs] if name.endswith("crfsuite") else [pinned, *suite.needs]
        if packages:
            pip("install", "--no-deps", "--upgrade", "--target", str(folder / "packages"), *packages)
    return wanted


def run(name: str, suite: Suite, folder: Path, swap: bool) -> str:
    """Pytest's last line."""
    sources = fetch(name, suite, folder)
    conftest = folder / "conftest.py"
    conftest.unlink(missing_ok=True)
    if swap:
        shutil.copy(HERE / "conftest.py", conftest)
    paths = [str(sources / test) for test in suite.tests]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={folder}"]
    command += [f"--confcutdir={folder}", "--override-ini=addopts=", "-W", "ignore", *paths]
    found = [str(folder / "packages"), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, found)), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(command, cwd=sources, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stdout[-6000:] + done.stderr[-2000:])
    lines = [line for line in done.stdout.splitlines() if re.search(r"\d+ (passed|failed|error)", line)]
    return lines[-1].strip("= ") if lines else f"exit code {done.returncode}"


def main() -> None:
    """Runs the suites and prints their last lines."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", default=list(SUITES), help=", ".join(SUITES))
    parser.add_argument("--folder", type=Path, help="where sources and packages are kept; default: a temporary one")
    parser.add_argument("--original", action="store_true", help="without the swap")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in options.names:
            line = run(name, SUITES[name], folder.resolve(), not options.original)
            print(f"{name + ' ' + SUITES[name].version:26} {line}", flush=True)


if __name__ == "__main__":
    main()
