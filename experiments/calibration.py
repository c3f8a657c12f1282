"""How far the probabilities of a CRF can be trusted: calibration errors, and prediction sets with a promised coverage.

    python experiments/calibration.py [corpus ...] [--train N] [--test N] [--splits N] [--coverage P]
                                      [--json FILE] [--figure-only]

Trains a CRF with the built-in token features on 90% of the training part, chooses the temperature on the rest, and
prints, for spans and for tokens of the test part, the expected calibration error (ECE, 15 bins) before and after. Then
cuts the test part at random into halves, calibrates prediction sets on one and measures them on the other: coverage
and size, means over all cuts. Writes what was found to docs/experiments/calibration.json, and, if matplotlib is there,
draws the calibration curves of spans to calibration.svg.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from crfkit import CRF
from crfkit.calibration import PredictionSets, calibration_curve, conformal_threshold, fit_temperature
from crfkit.data import load_corpus
from crfkit.metrics import evaluate

PAGE = Path(__file__).parents[1] / "docs" / "experiments"
NAMES = {
    "conll2000": "CoNLL-2000 chunks",
    "bc2gm": "BC2GM genes",
    "snips_slots": "SNIPS slots",
    "ud_english_ewt": "UD English tags",
}


def measure_sets(crf: CRF, unit: Any, X: Any, y: Any, splits: int, coverage: float) -> dict[str, float]:
    """Means over cuts of the data into calibration and evaluation halves."""
    sets = PredictionSets(crf, unit, coverage, max_size=None)
    truth = sets.true_probabilities(X, y)
    rng = np.random.default_rng(0)
    cuts = [np.array_split(rng.permutation(len(truth)), 2) for _ in range(splits)]
    thresholds = [conformal_threshold([truth[i] for i in a], coverage) for a, _ in cuts]
    sets.threshold_ = min(thresholds)  # the sets of all cuts are parts of these
    found = sets.probabilities(X)
    rows = []
    for (_, half), threshold in zip(cuts, thresholds, strict=True):
        covered = np.concatenate([truth[i] for i in half]) >= threshold
        sizes = np.array([(found[i] >= threshold).sum() for i in half])
        per_true = sizes.sum() / max(1, len(covered))
        rows.append((covered.mean(), sizes.mean(), np.median(sizes), (sizes == 0).mean(), per_true, threshold))
    keys = ("coverage", "size", "median_size", "empty", "size_per_truth", "threshold")
    means = dict(zip(keys, np.mean(rows, axis=0).round(5).tolist(), strict=True))
    return means | {"coverage_deviation": round(float(np.std([r[0] for r in rows])), 5)}


def run(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Everything about one corpus."""
    X, y = load_corpus(name, "train")
    order = np.random.default_rng(0).permutation(len(X))[: args.train]
    train, held = np.split(order, [round(0.9 * len(order))])
    X_test, y_test = (part[: args.test] for part in load_corpus(name, "test"))
    begin = time.perf_counter()
    crf = CRF(c2=args.c2, max_iter=args.max_iter).fit(X[train], y[train])
    out: dict[str, Any] = {"corpus": name, "train": len(train), "test": len(X_test)}
    out["seconds"] = round(time.perf_counter() - begin, 1)
    report = evaluate(y_test, crf.predict(X_test))
    out |= {"f1": round(100 * report.f1, 2), "accuracy": round(100 * report.accuracy, 2)}
    out["sentences_right"] = round(100 * report.sequence_accuracy, 2)

    def curves() -> dict[str, Any]:
        found: dict[str, Any] = {}
        for unit in ("spans", "tokens"):
            curve = calibration_curve(crf, X_test, y_test, unit, bins=15)
            found |= {f"ece_{unit}": round(100 * curve.ece, 3)}
            if unit == "spans":
                points = zip(curve.confidence, curve.accuracy, curve.counts.tolist(), strict=True)
                found["curve"] = [[round(float(p), 4), round(float(a), 4), n] for p, a, n in points if n]
        return found

    out["before"] = curves()
    out["temperature"] = round(fit_temperature(crf, X[held], y[held]), 4)
    out["after"] = curves()
    for unit in ("spans", "labellings"):
        out[unit] = measure_sets(crf, unit, X_test, y_test, args.splits, args.coverage)
    return out


def table(runs: list[dict[str, Any]]) -> None:
    """Prints the two tables of the page."""
    print("| corpus | F1 or accuracy | temperature | ECE spans | after | ECE tokens | after |")
    print("|---|---|---|---|---|---|---|")
    for r in runs:
        a, b = r["before"], r["after"]
        print(
            f"| {NAMES[r['corpus']]} | {r['f1']:.2f} | {r['temperature']:.2f} | {a['ece_spans']:.2f}% | "
            f"{b['ece_spans']:.2f}% | {a['ece_tokens']:.2f}% | {b['ece_tokens']:.2f}% |"
        )
    print("\n| corpus | sets of | coverage | deviation | mean size | median | for a true one | empty |")
    print("|---|---|---|---|---|---|---|---|")
    for r in runs:
        for unit in ("spans", "labellings"):
            s = r[unit]
            print(
                f"| {NAMES[r['corpus']]} | {unit} | {100 * s['coverage']:.2f}% | {100 * s['coverage_deviation']:.2f} | "
                f"{s['size']:.2f} | {s['median_size']:.1f} | {s['size_per_truth']:.2f} | {100 * s['empty']:.1f}% |"
            )


def draw(runs: list[dict[str, Any]]) -> None:
    """Calibration curves of spans, before and after the temperature."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(8, 4), sharey=True)
    for axis, when in zip(axes, ("before", "after"), strict=True):
        axis.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
        for r in runs:
            p, right, _ = zip(*r[when]["curve"], strict=True)
            axis.plot(p, right, ".-", linewidth=1, label=NAMES[r["corpus"]])
        axis.set_title(f"{when} the temperature")
        axis.set_xlabel("probability of a span")
    axes[0].set_ylabel("fraction that is right")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(PAGE / "calibration.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="*", default=list(NAMES), metavar="corpus")
    parser.add_argument("--train", type=int, help="most sentences to train on")
    parser.add_argument("--test", type=int, help="most sentences to test on")
    parser.add_argument("--c2", type=float, default=0.1)
    parser.add_argument("--max-iter", type=int, default=100)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--coverage", type=float, default=0.9)
    parser.add_argument("--json", type=Path, default=PAGE / "calibration.json")
    parser.add_argument("--figure-only", action="store_true", help="draw the runs that were written before")
    args = parser.parse_args()
    if not args.figure_only:
        runs = []
        for name in args.corpora:
            runs.append(run(name, args))
            print(json.dumps({k: v for k, v in runs[-1].items() if k not in ("before", "after")}), flush=True)
            args.json.write_text("[\n" + ",\n".join(json.dumps(r) for r in runs) + "\n]\n")
    runs = json.loads(args.json.read_text())
    table(runs)
    if importlib.util.find_spec("matplotlib"):
        draw(runs)


if __name__ == "__main__":
    main()
