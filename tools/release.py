"""Builds the packages and tests them, with the Pythons of this machine.

``python tools/release.py dist`` writes the sdist and the wheels to ``dist/``, packs them tightly (``shrink``) and
audits them (``make dist``);
``matrix`` tests the wheels with the oldest and the newest dependencies on every Python (``make test-matrix``); ``test``
tests what is installed for the Python that runs it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST, BUILD = ROOT / "dist", ROOT / "build"
OLDEST, STABLE = (3, 11), (3, 12)  # from STABLE on one wheel serves all
MOST_BYTES = 2_000_000

#: What touches numpy, scipy, scikit-learn, typer and the files; torch and the other extras are left to ``make test``.
TESTS = "sklearn crf hmm_memm graph_crf calibration model optimizers cli"
NEEDED = ("pytest", "hypothesis", "safetensors>=0.5")  # by these tests; also in pyproject.toml and ci.yml
ANYWHERE = "sklearn hmm_memm calibration optimizers"  # without signals and limits of memory, for Windows


def run(*command: str | Path, **environment: str | None) -> None:
    """Runs a command, which must succeed; None takes a variable out of its environment."""
    print("$", *(os.path.relpath(c) if isinstance(c, Path) else c for c in command), flush=True)
    kept = {k: v for k, v in {**os.environ, **environment}.items() if v is not None}
    subprocess.run([str(c) for c in command], check=True, env=kept)


def pythons() -> dict[tuple[int, int], Path]:
    """Version and path of each CPython from 3.11 on, in PATH or installed by pyenv; none that is free-threaded."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    names = [Path(folder) / f"python3.{minor}" for minor in range(11, 20) for folder in os.get_exec_path()]
    names += sorted(pyenv.glob("3.*/bin/python3.??"))
    code = "import platform, sys, sysconfig; print(platform.python_implementation(), *sys.version_info[:2], "
    code += "sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
    found: dict[tuple[int, int], Path] = {}
    for path in [Path(sys.executable), *names]:
        if not os.access(path, os.X_OK):
            continue
        out = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False).stdout.split()
        # a shim of a Python that is switched off says nothing; free-threaded ones have no stable ABI
        if out[:1] == ["CPython"] and out[3] == "0":
            found.setdefault((int(out[1]), int(out[2])), path)
    return {version: found[version] for version in sorted(found) if version >= OLDEST}


def venv(python: Path, folder: Path, *packages: str | Path, **environment: str | None) -> Path:
    """A fresh environment with these packages; returns its Python."""
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-m", "venv", folder)
    inside = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(inside, "-m", "pip", "install", "-q", "--no-compile", "--only-binary", ":all:", *packages, **environment)
    return inside


def build_dist() -> None:
    """Writes ``dist/`` anew: the sdist, and wheels made from it."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", DIST, ROOT)
    (sdist,) = DIST.glob("*.tar.gz")
    every = pythons()
    stable = [version for version in every if version >= STABLE]
    for version in [v for v in every if v < STABLE] + stable[:1]:
        with tempfile.TemporaryDirectory() as folder:
            run(every[version], "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", folder, sdist)
            (wheel,) = Path(folder).glob("*.whl")
            if sys.platform == "linux":
                run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", DIST, wheel)
            else:
                shutil.copy(wheel, DIST)
    shrink()
    if not stable:
        print("There is no Python 3.12 or later here: the wheel of the stable ABI was not built.")
    audit()


def shrink() -> None:
    """Packs the wheels of ``dist/`` again, as small as deflate can be: zopfli looks longer for what repeats itself."""
    import zopfli

    for wheel in DIST.glob("*.whl"):
        packed = wheel.with_suffix(".packed")
        with zipfile.ZipFile(wheel) as old, zopfli.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, iterations=15) as new:
            for entry in old.infolist():
                if not entry.is_dir():  # which pip makes without being told
                    new.writestr(entry, old.read(entry))
        packed.replace(wheel)


def audit() -> None:
    """Checks what is in ``dist/``: metadata, the stable ABI, the libraries that wheels need, size."""
    files = sorted(DIST.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    for wheel in DIST.glob("*.whl"):
        if sys.platform == "linux":
            run(sys.executable, "-m", "auditwheel", "show", wheel)
        if "-abi3-" in wheel.name:
            run(sys.executable, "-m", "abi3audit", "--strict", "--verbose", wheel)
    for file in files:
        print(f"{file.stat().st_size:>10,} {file.name}")
    large = [file.name for file in DIST.glob("*.whl") if file.stat().st_size >= MOST_BYTES]
    if large:
        sys.exit(f"{large} must be smaller than {MOST_BYTES:,} bytes")


def oldest(version: tuple[int, int]) -> list[str]:
    """The lower bounds of pyproject.toml as pins, those for this Python."""
    pins: dict[str, str] = {}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for dependency in [*project["dependencies"], *extras["graph"], *extras["sklearn"]]:
        if dependency.startswith("crfkit["):
            continue
        match = re.fullmatch(r"([\w-]+)>=([\d.]+)(?:; python_version >= '3\.(\d+)')?", dependency)
        if match is None:
            sys.exit(f"pyproject.toml: {dependency!r} has no lower bound that can be read")
        if match[3] is None or (3, int(match[3])) <= version:
            pins[match[1]] = f"{match[1]}=={match[2]}"
    return list(pins.values())


def test_matrix() -> None:
    """Tests the wheels of ``dist/`` on every Python, with the oldest and with the newest dependencies."""
    results = []
    for version, python in pythons().items():
        tag = f"cp{version[0]}{version[1]}-cp" if version < STABLE else "-abi3-"
        wheels = [wheel for wheel in DIST.glob("*.whl") if tag in wheel.name]
        if not wheels:
            sys.exit(f"dist/ has no wheel for Python {version[0]}.{version[1]}: run 'make dist'")
        for end, pins in (("oldest", oldest(version)), ("newest", [])):
            name = f"{version[0]}.{version[1]}-{end}"
            packages = [f"{wheels[0]}[sklearn]", *NEEDED, *pins]
            inside = venv(python, BUILD / "matrix" / name, *packages, PIP_CONSTRAINT=None)
            done = subprocess.run([inside, __file__, "test"], check=False)
            results.append((name, done.returncode == 0))
    for name, good in results:
        print(f"{name:12} {'passed' if good else 'FAILED'}")
    if not all(good for _, good in results):
        sys.exit(1)


def test_installed() -> None:
    """Runs the tests against the installed package, from a folder without the sources."""
    names = (ANYWHERE if os.name == "nt" else TESTS).split()
    files = [ROOT / "tests" / f"test_{name}.py" for name in names]
    code = "import crfkit, numpy, scipy, sklearn; print(crfkit.__file__)\n"
    code += "print('numpy', numpy.__version__, 'scipy', scipy.__version__, 'scikit-learn', sklearn.__version__)"
    (BUILD / "tests").mkdir(parents=True, exist_ok=True)
    os.chdir(BUILD / "tests")
    run(sys.executable, "-c", code, PYTHONPATH=None)
    settings: list[str | Path] = ["--rootdir", ROOT, "-c", ROOT / "pyproject.toml", "-p", "no:cacheprovider"]
    run(sys.executable, "-m", "pytest", *settings, *files, PYTHONPATH=None)


if __name__ == "__main__":
    tasks = {"dist": build_dist, "shrink": shrink, "audit": audit, "matrix": test_matrix, "test": test_installed}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("task", choices=tasks)
    try:
        tasks[parser.parse_args().task]()
    except subprocess.CalledProcessError as e:
        sys.exit(e.returncode)
