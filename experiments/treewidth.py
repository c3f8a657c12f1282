"""What exact inference costs as the treewidth grows, and how wrong loopy belief propagation is beside it.

Grids of w by 12 cells have treewidth w. Writes docs/experiments/treewidth.md and treewidth.svg. Run as
``python experiments/treewidth.py``.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import figures
import numpy as np
from machine import measured
from sklearn.exceptions import ConvergenceWarning

from crfkit.graph import Inference, grid

DOCS = Path(__file__).parents[1] / "docs" / "experiments"


def measure(labels: int, width: int, length: int, strength: float) -> dict[str, Any]:
    """Cost and time of exact marginals, and the error of loopy ones, on one random grid."""
    rng = np.random.default_rng(width)
    unary = rng.normal(size=(width, length, labels))
    right = strength * rng.normal(size=(width, length - 1, labels, labels))
    down = strength * rng.normal(size=(width - 1, length, labels, labels))
    g = grid(unary, right, down, n_jobs=1)
    cost = g.cost()
    times = []
    for _ in range(5):
        began = time.process_time()
        exact = g.marginals()
        times.append(time.process_time() - began)
    began = time.process_time()
    loopy = g.marginals(Inference("loopy", max_iter=300))
    loopy_time = time.process_time() - began
    error = max(np.abs(a - b).max() for a, b in zip(exact.nodes, loopy.nodes, strict=True))
    return {
        "treewidth": cost.treewidth,
        "entries": cost.entries,
        "megabytes": cost.bytes / 1e6,
        "seconds": min(times),
        "loopy": loopy_time,
        "error": float(error),
        "log_z": abs(loopy.log_z - exact.log_z) / exact.log_z,
        "converged": loopy.convergence.converged,
    }


def main() -> None:
    """Measures, writes the table and the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=float, default=3e7, help="largest number of table entries")
    parser.add_argument("--length", type=int, default=12)
    parser.add_argument("--strength", type=float, default=0.7)
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    results: dict[int, list[dict[str, Any]]] = {}
    for labels in (2, 3, 5):
        results[labels] = []
        width = 1
        while width < args.length and labels ** (width + 1) * width * args.length < args.most:
            row = measure(labels, width, args.length, args.strength)
            results[labels].append(row)
            print(labels, row, flush=True)
            width += 1
    # one number, seconds per entry, from the largest half of all, predicts the rest
    large = sorted((r for rows in results.values() for r in rows), key=lambda r: float(r["entries"]))
    rate = statistics.median(r["seconds"] / r["entries"] for r in large[len(large) // 2 :])
    write(results, rate, args)
    figures.keep("treewidth", {"rate": rate, "rows": results})


def write(results: dict[int, list[dict[str, Any]]], rate: float, args: argparse.Namespace) -> None:
    """The page."""
    lines = [
        "# Treewidth",
        "",
        f"Exact marginals on grids of w by {args.length} cells, one thread, best of five:",
        f"`python experiments/treewidth.py`, {measured()}.",
        f"The prediction is one number, {rate * 1e9:.1f} ns per table entry, times the number of entries that",
        "`FactorGraph.cost` reports beforehand. The last columns are loopy belief propagation on the same grids: its",
        "time, the largest error of a marginal, and the relative error of log Z. Times are CPU seconds.",
        "",
        "| labels | treewidth | entries | memory, MB | exact, s | predicted, s | loopy, s | worst marginal | log Z |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for labels, rows in results.items():
        for r in rows:
            mark = "" if r["converged"] else " (not converged)"
            lines.append(
                f"| {labels} | {r['treewidth']} | {r['entries']:,.0f} | {r['megabytes']:.2f} | {r['seconds']:.4f} | "
                f"{rate * r['entries']:.4f} | {r['loopy']:.4f}{mark} | {r['error']:.3f} | {r['log_z']:.1e} |"
            )
    lines += ["", "![Time over treewidth, and the error of loopy belief propagation](treewidth.svg)", ""]
    DOCS.mkdir(parents=True, exist_ok=True)
    (DOCS / "treewidth.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
