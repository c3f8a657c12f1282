"""Gradients from backward passes alone against forward-backward: how far apart they are, and what each costs.

    python experiments/backward.py

Random sequences over growing numbers of labels and of attributes. Prints a table, writes docs/experiments/backward.svg.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import figures
import numpy as np

from crfkit import CRF

HERE = Path(__file__).parents[1] / "docs" / "experiments"


def measure(n_labels: int, n_attributes: int) -> tuple[int, float, float, float]:
    """Weights, the largest difference of the gradients, and processor seconds of either, the least of five."""
    rng = np.random.default_rng(0)
    X: Any = [[{f"a{k}": 1.0 for k in rng.integers(0, n_attributes, 5)} for _ in range(20)] for _ in range(10)]
    y = [[f"L{k}" for k in rng.integers(0, n_labels, 20)] for _ in range(10)]
    options: dict[str, Any] = {"dtype": "float64", "all_possible_states": True, "n_jobs": 1}
    backward, both = (CRF(gradient=g, **options).objective(X, y) for g in ("backward", "forward-backward"))
    w = rng.normal(size=both.size)
    seconds, gradients = [], []
    for f in (backward, both):
        gradients.append(f.value_and_grad(w)[1])
        times = []
        for _ in range(5):
            began = time.process_time()
            f.value_and_grad(w)
            times.append(time.process_time() - began)
        seconds.append(min(times))
    return both.size, float(np.abs(gradients[0] - gradients[1]).max()), seconds[0], seconds[1]


def main() -> None:
    """Measures all cases."""
    cases = [(labels, 50) for labels in (2, 4, 8, 16, 32)] + [(8, attributes) for attributes in (10, 25, 100, 200)]
    found = [(case, measure(*case)) for case in cases]
    lines = [
        "| labels | attributes | weights | largest difference | backward only, ms | forward-backward, ms | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for (labels, attributes), (size, difference, a, b) in found:
        lines.append(
            f"| {labels} | {attributes} | {size} | {difference:.0e} | {1e3 * a:.1f} | {1e3 * b:.2f} | {a / b:.0f} |"
        )
    print("\n".join(lines))
    by_labels = [[case[0], 1e3 * a, 1e3 * b] for case, (_, _, a, b) in found if case[1] == 50]
    by_attributes = sorted([case[1], 1e3 * a, 1e3 * b] for case, (_, _, a, b) in found if case[0] == 8)
    figures.keep("backward", {"labels": by_labels, "attributes": by_attributes})


if __name__ == "__main__":
    main()
