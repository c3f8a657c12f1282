"""All optimisers on CoNLL-2000: objective and held-out F1 against seconds and passes.

    python experiments/compare_optimizers.py [--scale 1.0]

``--scale`` is a factor of the numbers of passes. Writes docs/experiments/optimizers.table.txt and .svg.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from optimizers import curve  # noqa: E402

from crfkit.training.algorithms import find_algorithm  # noqa: E402

HERE = ROOT / "docs" / "experiments"
PASSES = {"lbfgs": 150, "newton-cg": 12, "sgd": 30, "smd": 20, "adagrad": 20, "sag": 40, "ap": 20, "pa": 15, "arow": 15}
CONVEX = ("lbfgs", "newton-cg", "sgd", "smd", "adagrad", "sag")


def main() -> None:
    """Runs them all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=list(PASSES))
    options = parser.parse_args()
    curves = {}
    for name in options.only:
        limit = max(2, int(PASSES[name] * options.scale))
        curves[name] = curve(find_algorithm(name), limit, options.threads, target=None)
        last = curves[name][-1]
        print(
            f"{name}: {last['seconds']:.1f} s, {last['value']:.1f}, F1 {100 * last['f1']:.2f}",
            flush=True,
        )
    lines = ["| algorithm | passes | seconds | best F1 | seconds to F1 93.5 |", "|---|---|---|---|---|"]
    for name, points in curves.items():
        reached = next((f"{p['seconds']:.1f}" for p in points if p["f1"] >= 0.935), "not")
        best = max(p["f1"] for p in points)
        lines.append(
            f"| {name} | {points[-1]['pass']:.0f} | {points[-1]['seconds']:.1f} | {100 * best:.2f} | {reached} |"
        )
    (HERE / "optimizers.table.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "crfkit"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(10, 7))
    for name, points in curves.items():
        for column, key in enumerate(("seconds", "pass")):
            x = [p[key] for p in points]
            axes[1, column].plot(x, [100 * p["f1"] for p in points], label=name)
            if name in CONVEX:
                axes[0, column].plot(x, [p["value"] for p in points], label=name)
    for column, label in enumerate(("seconds", "passes")):
        axes[0, column].set_yscale("log")
        axes[0, column].set_ylabel("objective, as met in the pass")
        axes[1, column].set_ylabel("held-out F1")
        axes[1, column].set_ylim(90, 94.2)
        for ax in axes[:, column]:
            ax.set_xlabel(label)
            ax.set_xscale("log")
    axes[1, 0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(HERE / "optimizers.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
