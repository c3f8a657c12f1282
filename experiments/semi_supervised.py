"""Few labels and many unlabelled sequences: supervised against entropy regularised, on BC2GM and CoNLL-2000.

    python experiments/semi_supervised.py [--corpus NAME] [--seeds N] [--unlabelled N] [--weights W ...]

Prints a table, writes numbers/semi_supervised.NAME.json and docs/experiments/semi_supervised.NAME.svg.
``--unlabelled`` limits how many of the remaining sequences are used.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import figures
import numpy as np
from numpy.typing import NDArray

from crfkit import CRF, Template, metrics
from crfkit.data import load_corpus

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from conll2000 import template_text

FRACTIONS = (0.02, 0.05, 0.10)


def f1(crf: CRF, X: Any, y: Any) -> float:
    return 100 * metrics.evaluate(y, crf.predict(X)).f1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", choices=["conll2000", "bc2gm"], default="conll2000")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--unlabelled", type=int)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.001, 0.01, 0.1])
    parser.add_argument("--max-iter", type=int, default=60)
    parser.add_argument("--c2", type=float, default=1.0)
    options = parser.parse_args()
    X, y = load_corpus(options.corpus, "train")
    X_test, y_test = load_corpus(options.corpus, "test")
    features: Any = Template(template_text()) if options.corpus == "conll2000" else "auto"
    results: dict[tuple[float, float], list[float]] = {}
    began = time.perf_counter()
    for fraction in FRACTIONS:
        for seed in range(options.seeds):
            order = np.random.default_rng(seed).permutation(len(X))
            n = round(fraction * len(X))
            use = order[: n + (options.unlabelled or len(X))]
            labels = [list(y[int(i)]) if k < n else None for k, i in enumerate(use)]
            for weight in (0.0, *options.weights):
                crf = CRF(features, c2=options.c2, max_iter=options.max_iter, entropy_weight=weight)
                crf.fit(X[use], labels)
                results.setdefault((fraction, weight), []).append(f1(crf, X_test, y_test))
                passed = time.perf_counter() - began
                print(f"{passed:6.0f}s {fraction:.0%} seed {seed} weight {weight}: {results[fraction, weight][-1]:.2f}")
    lines = ["| labelled | " + " | ".join(["supervised", *(f"weight {w:g}" for w in options.weights)]) + " |"]
    lines.append("|---" * (2 + len(options.weights)) + "|")
    found: dict[str, dict[str, list[float]]] = {}
    for fraction in FRACTIONS:
        base = np.array(results[fraction, 0.0])
        found.setdefault("supervised", {})[str(fraction)] = mean_and_spread(base)
        cells = [f"{base.mean():.2f} ± {mean_and_spread(base)[1]:.2f}"]
        for weight in options.weights:
            gain = mean_and_spread(np.array(results[fraction, weight]) - base)
            found.setdefault(f"{weight:g}", {})[str(fraction)] = gain
            cells.append(f"{base.mean() + gain[0]:.2f} ({gain[0]:+.2f} ± {gain[1]:.2f})")
        lines.append(f"| {fraction:.0%} | " + " | ".join(cells) + " |")
    print("\n".join(lines))
    figures.keep(f"semi_supervised.{options.corpus}", found)


def mean_and_spread(values: NDArray[np.float64]) -> list[float]:
    """Mean and standard deviation."""
    return [float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0]


if __name__ == "__main__":
    main()
