"""Instructions of the hot paths on CoNLL-2000, counted by callgrind: they tell two versions apart on a busy machine.

    python tools/instructions.py [--only evaluation tagging sgd] [--isa avx2] [--keep FOLDER]

One thread. Each path runs fewer and more times in two processes, and the difference is divided by how many more, so
that start and preparation cancel out; it takes about eight minutes. Valgrind knows no AVX-512. ``callgrind_annotate``
shows what the files in the folder hold, if the package was installed with
``-C cmake.define.CRFKIT_SYMBOLS=ON -C install.strip=false``.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

DATA = Path(os.environ.get("CRFKIT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "conll2000"
# Fewer and more times. The first evaluation touches memory for the first time, and averages begin with the second pass.
TIMES = {"evaluation": (2, 4), "tagging": (1, 2), "sgd": (2, 3)}
WHAT = {"evaluation": "one value and gradient", "tagging": "labels for test.txt", "sgd": "one pass of SGD"}


def templates() -> str:
    """The nineteen templates of CRFsuite's chunking example: words and tags around a token, and tuples of them."""
    cells = [[(k, 0)] for k in range(-2, 3)] + [[(-1, 0), (0, 0)], [(0, 0), (1, 0)]]
    for n in (1, 2, 3):
        cells += [[(k + i, 1) for i in range(n)] for k in range(-2, 4 - n)]
    return "\n".join([f"U{i:02d}:" + "|".join(f"%x[{r},{c}]" for r, c in cell) for i, cell in enumerate(cells)] + ["B"])


def estimator(**settings: Any) -> Any:
    """The CRF in question."""
    from crfkit import CRF, Template

    return CRF(Template(templates(), padding=False), c2=1.0, random_state=0, n_jobs=1, **settings)


def evaluation(times: int, model: Path) -> None:
    """Values and gradients on the training data."""
    import numpy as np

    from crfkit.data import read_columns

    objective = estimator().objective(*read_columns(DATA / "train.txt"))
    w = np.random.default_rng(0).normal(0, 0.1, objective.size)
    gradient = np.empty(objective.size)
    for _ in range(times):
        objective.value_and_grad(w, gradient)


def tagging(times: int, model: Path) -> None:
    """Labels the test file, from text to text."""
    from crfkit import load
    from crfkit.model.streaming import tag_columns

    crf = load(model, n_jobs=1)
    for _ in range(times):
        for _piece in tag_columns(crf.model_, DATA / "test.txt", select=lambda table: table.select([0, 1]), n_jobs=1):
            pass


def sgd(times: int, model: Path) -> None:
    """Training by passes of SGD from a given step."""
    from crfkit.data import read_columns
    from crfkit.training import SGD

    estimator(algorithm=SGD(learning_rate=0.125), max_iter=times).fit(*read_columns(DATA / "train.txt"))


WORK = {"evaluation": evaluation, "tagging": tagging, "sgd": sgd}


def count(name: str, times: int, model: Path, isa: str, folder: Path) -> int:
    """Instructions of a process that does the work so many times."""
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/callgrind.{name}.{times}"]
    command += [sys.executable, __file__, "--work", name, "--times", str(times), "--model", str(model)]
    steady = {"CRFKIT_ISA": isa, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env={**os.environ, **steady}, capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or found is None:
        sys.exit(done.stderr)
    return int(found[1])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(WORK), default=list(WORK))
    parser.add_argument("--isa", default="avx2", help="kernels: avx2 or base")
    parser.add_argument("--keep", type=Path, help="where callgrind's files are kept")
    for hidden, kind in (("--work", str), ("--times", int), ("--model", Path)):
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        gc.disable()
        WORK[options.work](options.times, options.model)
        return
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        if "tagging" in options.only:
            from crfkit.data import read_columns

            estimator(max_iter=30).fit(*read_columns(DATA / "train.txt")).save(model)
        kept = options.keep or Path(folder)
        kept.mkdir(parents=True, exist_ok=True)
        for name in options.only:
            few, more = (count(name, times, model, options.isa, kept) for times in TIMES[name])
            each = (more - few) // (TIMES[name][1] - TIMES[name][0])
            print(f"{WHAT[name]:<24} {each:>14,} instructions ({options.isa})", flush=True)


if __name__ == "__main__":
    main()
