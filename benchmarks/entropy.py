"""Entropy beside likelihood on CoNLL-2000: value and gradient, span entropies, and the cubic baseline, in one run.

    python benchmarks/entropy.py [--repeat N] [--json FILE]

Figures are medians of interleaved runs on one thread, in processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy comes

import numpy as np

from crfkit import CRF, Template, chain
from crfkit.data import Columns, read_columns
from crfkit.training import SemiSupervisedObjective

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))

from conll2000 import template_text
from covariance import quadratic_gradient

DATA = Path(os.environ.get("CRFKIT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "conll2000"


def interleaved(calls: dict[str, Callable[[], Any]], repeat: int) -> dict[str, float]:
    """Median processor seconds of each call, all of them in turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeat + 1):
        for name, call in calls.items():
            began = time.process_time()
            call()
            if turn:
                times[name].append(time.process_time() - began)
    return {name: statistics.median(x) for name, x in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    X, y = read_columns(DATA / "train.txt")
    assert y is not None
    crf = CRF(Template(template_text()), max_iter=15, n_jobs=1).fit(X, y)
    w = np.array(crf.weights_)
    supervised = crf.objective(X, y)
    crf.entropy_weight = 1.0
    # one labelled sequence, since there must be some label
    unlabelled = crf.objective(Columns.concatenate([X[:1], X]), [y[0], *[None] * len(X)])
    assert isinstance(unlabelled, SemiSupervisedObjective)
    g = np.empty(len(w))
    times = interleaved(
        {
            "supervised value and gradient": lambda: supervised.value_and_grad(w, g),
            "entropy value and gradient": lambda: unlabelled._rest.add(w, 1.0, g, 1),
        },
        options.repeat,
    )
    X_test, _ = read_columns(DATA / "test.txt")
    p = crf.potentials(X_test)

    def spans() -> None:
        found = chain.span_entropies(p, n_jobs=1)
        for length in range(1, 6):
            found.of_length(length)

    times |= interleaved(
        {
            "marginals": lambda: chain.marginals(p, n_jobs=1),
            "span entropies, 1 to 5 tokens": spans,
            "entropy gradient by scores": lambda: chain.entropy_gradient(p, n_jobs=1),
        },
        options.repeat,
    )
    rng = np.random.default_rng(0)
    small = chain.Potentials(rng.normal(size=(40, 22)), rng.normal(size=(22, 22)))
    times |= interleaved(
        {
            "n = 40, s = 22: ours": lambda: chain.entropy_gradient(small, n_jobs=1),
            "n = 40, s = 22: O(n^2 s^3)": lambda: quadratic_gradient(small),
        },
        options.repeat,
    )
    ratios = {
        "entropy / supervised": times["entropy value and gradient"] / times["supervised value and gradient"],
        "span entropies / marginals": times["span entropies, 1 to 5 tokens"] / times["marginals"],
        "O(n^2 s^3) / ours": times["n = 40, s = 22: O(n^2 s^3)"] / times["n = 40, s = 22: ours"],
    }
    for name, seconds in times.items():
        print(f"{name:35} {1e3 * seconds:10.3f} ms")
    for name, ratio in ratios.items():
        print(f"{name:35} {ratio:10.2f} x")
    if options.json:
        options.json.write_text(json.dumps({"seconds": times, "ratios": ratios}, indent=1))


if __name__ == "__main__":
    main()
