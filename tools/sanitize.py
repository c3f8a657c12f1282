"""Builds the core with sanitizers into a folder of its own, and runs a command with it.

    python tools/sanitize.py address,undefined [--isa base] -- python tools/fuzz.py --inputs 1000000
    python tools/sanitize.py thread -- python -m pytest tests/test_threads.py

The build lies in build/sanitize-NAME, with kernels of one instruction set unless told otherwise: the others are the
same source, and take long to compile. The command finds the package there first; `python` is the one that runs this.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARIES = {"address": "libasan.so", "thread": "libtsan.so"}
#: Python's own memory is never all given back; numpy and torch map what they may never use; OpenBLAS and torch are not
#: instrumented, so that what their threads do among themselves cannot be judged.
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=16:max_allocation_size_mb=1200:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": f"halt_on_error=1:exitcode=66:suppressions={ROOT / 'tools' / 'thread_sanitizer.txt'}",
}


def build(sanitizers: str, isas: str, compiler: str) -> Path:
    """The folder that holds the package with such a core."""
    folder = ROOT / "build" / f"sanitize-{sanitizers.replace(',', '-')}"
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    options = [f"-DCRFKIT_SANITIZE={sanitizers}", f"-DCRFKIT_ISAS={isas}", f"-DPython_EXECUTABLE={sys.executable}"]
    options += [f"-DCMAKE_CXX_COMPILER={compiler}", "-DCRFKIT_UNITY=OFF", "-Wno-dev", *launcher]
    subprocess.run(["cmake", "-S", ROOT, "-B", folder / "cmake", "-G", "Ninja", *options], check=True)
    subprocess.run(["cmake", "--build", folder / "cmake"], check=True)
    package = folder / "site" / "crfkit"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(ROOT / "src" / "crfkit", package, ignore=shutil.ignore_patterns("_core*.so", "__pycache__"))
    for core in (folder / "cmake").glob("_core*.so"):
        shutil.copy(core, package)
    return package.parent


def main() -> int:
    """Builds and runs; gives the command's exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sanitizers", choices=["address,undefined", "thread"])
    parser.add_argument("--isa", default="base", help="instruction sets, separated by ;")
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("command", nargs="*", help="what to run, after --")
    options = parser.parse_args()
    site = build(options.sanitizers, options.isa, options.compiler)
    if not options.command:
        return 0
    first = options.sanitizers.partition(",")[0]
    names = [LIBRARIES[first], "libstdc++.so"]  # the second, or exceptions are not seen by the first
    found = [
        subprocess.run([options.compiler, f"-print-file-name={x}"], capture_output=True, text=True, check=True)
        for x in names
    ]
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    environment = {**OPTIONS, **os.environ, "PYTHONPATH": path, "PYTHONMALLOC": "malloc"}
    environment["LD_PRELOAD"] = " ".join(x.stdout.strip() for x in found)
    command = [sys.executable if x == "python" else x for x in options.command]
    return subprocess.run(command, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
