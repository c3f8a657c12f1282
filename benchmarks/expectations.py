"""Expectation constraints beside likelihood on CoNLL-2000: a value and gradient of each on the same tokens in one run.

    python benchmarks/expectations.py [--repeat N] [--criteria K] [--json FILE]

Each is measured with the weights that the labels ask for, and with those that expectations ask for: all labels of all
attributes that occur twice. Figures are medians of interleaved runs on one thread, in processor time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from conll2000 import template_text
from entropy import DATA, interleaved

from crfkit import CRF, Expectations, Template
from crfkit.data import read_columns
from crfkit.data.labels import label_numbers
from crfkit.training import LikelihoodObjective


def measure(crf: CRF, X: Any, y: Any, wanted: Expectations, repeat: int, grow: bool) -> dict[str, float]:
    """Seconds of each objective at the weights of a few iterations."""
    unknown: Any = [None] * len(X)
    objectives = {}
    for method in ("expectation", "posterior"):
        wanted.method = method
        model = None if grow else crf.model_
        skeleton, problem = crf._prepare(X, unknown, None, model, grow=grow, expectations=wanted)
        objectives[method] = crf._objective(problem)
        objectives[method].objective = _Nothing(objectives[method].size)
    gold, _ = label_numbers(y, skeleton.labels, problem.data.offsets)
    supervised = LikelihoodObjective(replace(problem, labels=gold, hints=None, criteria=None))
    w = np.array(crf.weights_) if not grow else crf.model_.layout.move_weights(crf.weights_, skeleton.layout)
    g = np.empty(len(w))
    # weights that change as in training: posterior regularisation begins where it ended at the last ones
    way = np.random.default_rng(0).normal(0.0, 0.01, len(w))
    turn = itertools.count()

    def call(f: Any) -> Any:
        return lambda: f.value_and_grad(moved[next(turn) % 3], g)

    moved = [w, w + way, w + 2 * way]
    found = interleaved({name: call(f) for name, f in {"supervised": supervised, **objectives}.items()}, repeat)
    return {"weights": len(w), **found}


class _Nothing:
    """In place of an objective of labelled sequences, of which there are none."""

    noise, n_unlabelled, n_tokens, entropy_weight = 0.0, 0, 0, 0.0

    def __init__(self, size: int) -> None:
        self.size = size

    def value_and_grad(self, w: Any, out: Any) -> tuple[float, Any]:
        out[:] = 0.0
        return 0.0, out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--criteria", type=int, default=30)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    X, y = read_columns(DATA / "train.txt")
    assert y is not None
    features = Template(template_text())
    crf = CRF(features, max_iter=5, min_freq=2, n_jobs=1, verbose=False).fit(X, y)
    wanted = Expectations.count(X, y, features, top=options.criteria)
    figures = {}
    for name, grow in (("weights of the labels", False), ("weights of expectations", True)):
        found = figures[name] = measure(crf, X, y, wanted, options.repeat, grow)
        print(f"{name}: {found.pop('weights'):,} weights")
        for method, seconds in found.items():
            print(f"  {method:12s} {1e3 * seconds:8.1f} ms  {seconds / found['supervised']:5.2f} times supervised")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
