"""Chains of a higher order beside the first, with the same features: accuracy, and processor seconds of training.

    python experiments/higher_order.py nettalk|latvian [--orders 1,2,3] [--seeds 3] [--passes N] [--held-out]
        [--runs 5] [--transitions] [--folds K]

``nettalk``: letters to 51 phones; ``latvian``: the Latvian treebank's xpos tags, 1,175 labels. All are trained by SGD
within beams, on one thread; the rows are means over the seeds, by which the sequences are shuffled. ``--held-out``
scores a tenth of the training words, or the treebank's held-out part, instead of the test set; settings were chosen
there. For ``nettalk``, features are single letters and runs of up to ``--runs`` of them; ``--transitions`` makes the
letter, and it with the one before, attributes of transitions; ``--held-out --folds 10`` holds out each tenth in turn.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import nettalk
import numpy as np

from crfkit import CRF
from crfkit.chain import MinDivergence
from crfkit.data import load_corpus
from crfkit.metrics import token_accuracy


def words(held_out: int | None, runs: int, transitions: bool) -> tuple[Any, ...]:
    """NetTalk; ``held_out``: which tenth of the training words."""
    X, y, X_test, y_test = nettalk.corpus("phone")
    if held_out is not None:
        out = np.arange(len(X)) % 10 == held_out
        X_test, y_test = ([row for row, k in zip(rows, out, strict=True) if k] for rows in (X, y))
        X, y = ([row for row, k in zip(rows, out, strict=True) if not k] for rows in (X, y))
    features = nettalk.template(runs, transitions)
    settings = {"features": features, "c2": 0.5, "beam": MinDivergence(0.02, 2), "max_iter": 10}
    return X, y, X_test, y_test, settings


def tags(held_out: bool) -> tuple[Any, ...]:
    train, test = (
        load_corpus("ud_latvian_lvtb", part, label="xpos") for part in ("train", "dev" if held_out else "test")
    )
    settings = {"features": "auto", "c2": 0.1, "beam": MinDivergence(0.1, 2), "max_iter": 5}
    return train.X, train.y, test.X, test.y, settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=["nettalk", "latvian"])
    parser.add_argument("--orders", default="1,2,3")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--passes", type=int, help="over the training data, instead of the usual number")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--transitions", action="store_true")
    parser.add_argument("--folds", type=int)
    arguments = parser.parse_args()
    tenths = range(arguments.folds) if arguments.folds and arguments.held_out else [3]
    if arguments.data == "nettalk":
        features = arguments.runs, arguments.transitions
        parts = [words(k if arguments.held_out else None, *features) for k in tenths]
    else:
        parts = [tags(arguments.held_out)]
    for part in parts:
        part[-1]["max_iter"] = arguments.passes or part[-1]["max_iter"]
    print(
        "| order | CPU s | of order 1 | a pass | accuracy | each run | sequences right | tokens labelled per second |"
    )
    print("|---" * 8 + "|")
    first = None
    for order in map(int, arguments.orders.split(",")):
        runs = [
            run(CRF(order=order, algorithm="sgd", tol=0, random_state=seed, n_jobs=1, **settings), *data)
            for *data, settings in parts
            for seed in range(arguments.seeds)
        ]
        trained, a_pass, accuracy, right, speed = np.mean(runs, axis=0)
        first = first or trained
        seeds = ", ".join(f"{row[2]:.2f}" for row in runs)
        row = f"{trained:.1f} | {trained / first:.2f} | {a_pass:.2f} | {accuracy:.2f} | {seeds} | {right:.2f}"
        print(f"| {order} | {row} | {speed:,.0f} |", flush=True)


def run(crf: CRF, X: Any, y: Any, X_test: Any, y_test: Any) -> tuple[float, ...]:
    """CPU seconds of training and of a pass, accuracy, sequences right, tokens labelled per CPU second."""
    marks: list[float] = []
    crf.callback = lambda progress, w: marks.append(time.process_time())
    began = time.process_time()
    crf.fit(X, y)
    trained = marks[-1] - began
    began = time.process_time()
    found = crf.predict(X_test)
    speed = sum(map(len, found)) / (time.process_time() - began)
    right = 100 * np.mean([list(a) == list(b) for a, b in zip(found, y_test, strict=True)])
    return trained, float(np.median(np.diff(marks))), 100 * token_accuracy(y_test, found), float(right), speed


if __name__ == "__main__":
    main()
