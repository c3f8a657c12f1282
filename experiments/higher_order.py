"""Chains of a higher order beside the first, with the same features: accuracy, and processor seconds of training.

    python experiments/higher_order.py nettalk|latvian [--orders 1,2,3] [--seeds 3] [--passes N] [--held-out]

``nettalk``: letters to 51 phones; ``latvian``: the Latvian treebank's xpos tags, 1,175 labels. All are trained by SGD
within beams, on one thread; the rows are means over the seeds, by which the sequences are shuffled. ``--held-out``
scores a tenth of the training words, or the treebank's held-out part, instead of the test set; settings were chosen
there.
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


def words(held_out: bool) -> tuple[Any, ...]:
    X, y, X_test, y_test = nettalk.corpus("phone")
    if held_out:
        out = np.arange(len(X)) % 10 == 3
        X_test, y_test = ([row for row, k in zip(rows, out, strict=True) if k] for rows in (X, y))
        X, y = ([row for row, k in zip(rows, out, strict=True) if not k] for rows in (X, y))
    settings = {"features": nettalk.template(), "c2": 0.5, "beam": MinDivergence(0.02, 2), "max_iter": 10}
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
    arguments = parser.parse_args()
    X, y, X_test, y_test, settings = (words if arguments.data == "nettalk" else tags)(arguments.held_out)
    settings["max_iter"] = arguments.passes or settings["max_iter"]
    print("| order | CPU s | of order 1 | a pass | accuracy | by seed | sequences right | tokens labelled per second |")
    print("|---" * 8 + "|")
    first = None
    for order in map(int, arguments.orders.split(",")):
        runs = [
            run(CRF(order=order, algorithm="sgd", tol=0, random_state=seed, n_jobs=1, **settings), X, y, X_test, y_test)
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
