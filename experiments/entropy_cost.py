"""What the gradient of the entropy costs, over length and labels: likelihood, our kernel, and the O(n^2 s^3) baseline.

    python experiments/entropy_cost.py [--out FOLDER]

Prints a table, writes entropy_cost.svg.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy comes

import figures
import numpy as np
from covariance import quadratic_gradient

from crfkit import chain


def seconds(call: Callable[[], Any], least: int = 5, most: float = 0.5) -> float:
    """Processor time of a call, the least of many."""
    times: list[float] = []
    call()
    while len(times) < least or (sum(times) < most and len(times) < 50):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times)


def measure(n: int, s: int, rng: np.random.Generator) -> tuple[float, float, float]:
    """Seconds a sequence: log Z with marginals, entropy gradient, baseline; the first two over packs of sixteen."""
    offsets = np.arange(17) * n
    pairwise = rng.normal(size=(s, s))
    many = chain.Potentials(rng.normal(size=(16 * n, s)), pairwise, offsets=offsets)
    one = many[0]
    return (
        seconds(lambda: chain.marginals(many, n_jobs=1)) / 16,
        seconds(lambda: chain.entropy_gradient(many, n_jobs=1)) / 16,
        seconds(lambda: quadratic_gradient(one)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "experiments")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    lengths, labels = [5, 10, 20, 40, 80, 160], [3, 9, 22, 51]
    by_length = {n: measure(n, 22, rng) for n in lengths}
    by_labels = {s: measure(40, s, rng) for s in labels}
    lines = ["| length | labels | marginals | entropy gradient | O(n^2 s^3) | ratio to marginals | baseline to ours |"]
    lines.append("|---|---|---|---|---|---|---|")
    rows = [(n, 22, t) for n, t in by_length.items()] + [(40, s, t) for s, t in by_labels.items()]
    for n, s, (a, b, c) in rows:
        lines.append(
            f"| {n} | {s} | {1e6 * a:.1f} us | {1e6 * b:.1f} us | {1e3 * c:.2f} ms | {b / a:.2f} | {c / b:.0f} |"
        )
    options.out.mkdir(parents=True, exist_ok=True)
    print("\n".join(lines))
    panels = {"length": by_length, "labels": by_labels}
    points = {what: [[x, *(1e3 * t for t in times)] for x, times in part.items()] for what, part in panels.items()}
    figures.keep("entropy_cost", points)


if __name__ == "__main__":
    main()
