"""Hidden states: where they gain, and where they do not.

    python experiments/hidden_states.py [TASK ...] [--seeds N] [--json FILE]

For each task, the number of hidden states and c2 are chosen by token accuracy on the last fifth of the training data,
without hidden states and with them; then both are trained on all of it, and scored on the test set. Seeds are those of
the random starts, of which the best of three by the objective is kept.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from crfkit import CRF, Template, metrics
from crfkit.data import load_corpus

Data = tuple[Any, Any, Any, Any]
STATES, C2, STARTS = (2, 3, 4), (0.01, 0.1, 1.0), 3
TAGS = "U0:%x[0,1]\nB"  # the part-of-speech tag of the token alone, and transitions


def turns() -> Data:
    """Two labels that take turns in pairs, X X Y Y, seen through noise: which of its pair a label is is hidden."""
    rng = np.random.default_rng(0)

    def draw(n: int) -> tuple[list[list[str]], list[list[str]]]:
        y = [["XXYY"[(first + t) % 4] for t in range(12)] for first in rng.integers(4, size=n)]
        return [[label if rng.random() < 0.65 else "XY"[rng.integers(2)] for label in row] for row in y], y

    return (*draw(400), *draw(400))


def without_marks(y: Any) -> list[list[str]]:
    """Labels without B- and I-."""
    return [[label[2:] if label[1:2] == "-" else label for label in row] for row in y]


def noun_phrases(marks: bool) -> Data:
    """CoNLL-2000: noun phrases or not, with or without their marks; 1,000 and 1,000 sentences."""
    out: list[Any] = []
    for split in ("train", "test"):
        corpus = load_corpus("conll2000", split)
        X, y = corpus.X[:1000], [[x if x.endswith("-NP") else "O" for x in row] for row in corpus.y[:1000]]
        out += [X, y if marks else without_marks(y)]
    return tuple(out)


def ingredients(marks: bool) -> Data:
    """Ingredients of recipes, with or without the marks of phrases."""
    out: list[Any] = []
    for split in ("train", "test"):
        X, y = load_corpus("ingredients", split)
        out += [X, [list(row) for row in y] if marks else without_marks(y)]
    return tuple(out)


#: Data and features of each task.
TASKS: dict[str, tuple[Callable[[], Data], Any]] = {
    "turns": (turns, "auto"),
    "noun phrases, tags only": (lambda: noun_phrases(False), TAGS),
    "noun phrases, tags only, BIO": (lambda: noun_phrases(True), TAGS),
    "noun phrases": (lambda: noun_phrases(False), "auto"),
    "ingredients": (lambda: ingredients(False), "auto"),
    "ingredients, BIO": (lambda: ingredients(True), "auto"),
}


def score(data: Data, features: Any, states: int, c2: float, seed: int) -> float:
    """Token accuracy on the second half of the data of a model of the first."""
    X, y, X_test, y_test = data
    given = Template(features) if features != "auto" else features
    how: dict[str, Any] = {"hidden_states": states, "n_init": STARTS} if states > 1 else {}
    crf = CRF(given, c2=c2, min_freq=1, max_iter=150, random_state=100 * seed, **how)
    with warnings.catch_warnings(action="ignore"):  # of the limit
        crf.fit(X, y)
    return metrics.token_accuracy(y_test, crf.predict(X_test, by="marginals"))


def study(name: str, n_seeds: int) -> dict[str, Any]:
    """Chooses the settings, and tests them."""
    make, features = TASKS[name]
    X, y, X_test, y_test = make()
    cut = len(y) * 4 // 5
    held_out = X[:cut], y[:cut], X[cut:], y[cut:]
    out: dict[str, Any] = {}
    for kind, states in (("plain", (1,)), ("hidden", STATES)):
        tried = {(k, c2): score(held_out, features, k, c2, 0) for k, c2 in itertools.product(states, C2)}
        k, c2 = max(tried, key=lambda pair: tried[pair])
        seeds = range(1 if k == 1 else n_seeds)
        scores = [score((X, y, X_test, y_test), features, k, c2, seed) for seed in seeds]
        out[kind] = {"states": k, "c2": c2, "held_out": tried[k, c2], "test": scores}
        mean = 100 * statistics.mean(scores)
        spread = f" ({100 * min(scores):.2f} to {100 * max(scores):.2f})" if len(scores) > 1 else ""
        print(
            f"{name:30s} {kind:7s} states {k}, c2 {c2}: held-out {100 * tried[k, c2]:.2f}, test {mean:.2f}{spread}",
            flush=True,
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="*", choices=[*TASKS, []], metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {name: study(name, options.seeds) for name in options.task or TASKS}
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
