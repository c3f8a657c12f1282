"""All optimisers on CoNLL-2000: objective and test F1 against seconds and passes.

    python experiments/compare_optimizers.py [--only NAME ...]

Prints a table, writes numbers/optimizers.json and docs/experiments/optimizers.svg. With ``--only`` the curves of the
others are those in the .json.

The objective is that of the weights after each pass, over all the data. Time is processor time on one thread, which
other work on the machine changes little; neither computing the objective nor scoring the test sentences counts.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
import figures  # noqa: E402
from optimizers import curve  # noqa: E402

from crfkit.training.registry import find_algorithm  # noqa: E402

#: Most passes; of newton-cg iterations, each of which has many products with the Hessian.
PASSES = {
    "lbfgs": 160,
    "newton-cg": 25,
    "sgd": 100,
    "smd": 80,
    "adagrad": 60,
    "sag": 40,
    "ap": 15,
    "pa": 15,
    "arow": 15,
}
CONVEX = ("lbfgs", "newton-cg", "sgd", "smd", "adagrad", "sag")
CLOSE = 1e-3  # of the optimum
GOOD = 0.935  # F1

Curve = list[dict[str, float]]


def first(points: Curve, key: str, reached: list[bool]) -> str:
    """When something is first so, and a dash if never."""
    return next((f"{p[key]:.4g}" for p, yes in zip(points, reached, strict=True) if yes), "-")


def table(curves: dict[str, Curve]) -> str:
    """A line for each optimiser."""
    best = min(p["value"] for p in curves["lbfgs"])
    lines = [
        "| algorithm | passes | CPU s | relative distance to the optimum | passes, s to 1e-3 "
        "| best F1 | last F1 | s to F1 93.5 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, points in curves.items():
        last = points[-1]
        above, when = "", ""
        if name in CONVEX:
            close = [p["value"] <= best * (1 + CLOSE) for p in points]
            above = f"{max(0.0, last['value'] / best - 1):.1e}"
            when = f"{first(points, 'pass', close)}, {first(points, 'cpu', close)}"
        lines.append(
            f"| {name} | {last['pass']:.0f} | {last['cpu']:.1f} | {above} | {when} "
            f"| {100 * max(p['f1'] for p in points):.2f} | {100 * last['f1']:.2f} "
            f"| {first(points, 'cpu', [p['f1'] >= GOOD for p in points])} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs them all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PASSES), default=list(PASSES))
    options = parser.parse_args()
    curves: dict[str, Curve] = figures.numbers("optimizers") if len(options.only) < len(PASSES) else {}
    for name in options.only:
        points = curve(find_algorithm(name), PASSES[name], 1, target=None, exact=True)
        curves[name] = [{key: float(f"{x:.9g}") for key, x in p.items()} for p in points]
        last = points[-1]
        print(f"{name}: {last['cpu']:.1f} s, {last['value']:.1f}, F1 {100 * last['f1']:.2f}", flush=True)
    print(table(curves))
    figures.keep("optimizers", curves)


if __name__ == "__main__":
    main()
