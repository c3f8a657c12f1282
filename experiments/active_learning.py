"""Learning curves of all query strategies, on SNIPS or CoNLL-2000.

    python experiments/active_learning.py [--corpus NAME] [--seeds N] [--batches N ...] [--pool N] [--out FOLDER]

Prints a table (tokens labelled to reach 98% of the F1 of all data), draws active.NAME.svg. The curves are
kept in numbers/active.NAME.json; runs that are there already are not repeated. The model of all data may take up to 160
iterations, since in a campaign every round begins where the last one ended.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import figures
import numpy as np

from crfkit import CRF, Template, active, metrics
from crfkit.data import load_corpus

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from conll2000 import template_text

RUNS: dict[str, dict[str, Any]] = {
    "random": {"strategy": "random"},
    **{name: {"strategy": name} for name in active.STRATEGIES[1:]},
    "span queries (1 to 5 tokens)": {"strategy": "span_entropy", "length": (1, 5)},
    "sequence_entropy, diverse": {"strategy": "sequence_entropy", "diversity": 0.3},
    **{f"{name}, per token": {"strategy": name, "per_token": True} for name in active.STRATEGIES[1:]},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", choices=["snips_slots", "conll2000"], default="snips_slots")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--start", type=int, default=50)
    parser.add_argument("--batches", type=int, nargs="+", default=[50, 100, 200, 400, 800, 1600])
    parser.add_argument("--pool", type=int)
    parser.add_argument("--max-iter", type=int, default=60)
    parser.add_argument("--runs", nargs="*", default=list(RUNS))
    parser.add_argument("--full-f1", type=float, help="F1 of all data, if it is known already")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "experiments")
    options = parser.parse_args()
    X, y = load_corpus(options.corpus, "train")
    X_test, y_test = load_corpus(options.corpus, "test")
    features: Any = Template(template_text()) if options.corpus == "conll2000" else "auto"
    crf = CRF(features, c2=0.5, max_iter=options.max_iter)
    began = time.perf_counter()
    options.out.mkdir(parents=True, exist_ok=True)
    kept = figures.NUMBERS / f"active.{options.corpus}.json"
    curves: dict[str, list[active.LearningCurve]] = read(kept) if kept.exists() else {}
    full = options.full_f1
    if full is None:
        best = CRF(features, c2=0.5, max_iter=160).fit(X, y)
        full = metrics.evaluate(y_test, best.predict(X_test)).f1
    total = sum(len(row) for row in y)
    print(f"all data, {total} tokens: F1 {100 * full:.2f}, {time.perf_counter() - began:.0f}s", flush=True)
    for name in options.runs:
        if name in curves:
            continue
        for seed in range(options.seeds):
            curve = active.simulate(
                crf,
                X,
                y,
                X_test,
                y_test,
                start=options.start,
                batch_size=options.batches,
                pool=options.pool,
                random_state=seed,
                **RUNS[name],
            )
            curves.setdefault(name, []).append(curve)
        passed = time.perf_counter() - began
        print(f"{passed:6.0f}s {name}: {(100 * curves[name][-1].f1).round(2).tolist()}", flush=True)
        write(curves, options.corpus, full, total, options.out)
    if curves:
        write(curves, options.corpus, full, total, options.out)


def read(path: Path) -> dict[str, list[active.LearningCurve]]:
    """Curves of an earlier run."""
    table = json.loads(path.read_text())["curves"]
    return {
        name: [active.LearningCurve(np.array(a), np.array(b), np.array(c), []) for a, b, c in runs]
        for name, runs in table.items()
    }


def write(curves: dict[str, list[active.LearningCurve]], corpus: str, full: float, total: int, out: Path) -> None:
    """Table and figure of what there is so far."""
    table = {
        name: [[run.sequences.tolist(), run.tokens.tolist(), run.f1.tolist()] for run in runs]
        for name, runs in curves.items()
    }
    target = 0.98 * full
    last = next(iter(curves.values()))[0]
    steps = ", ".join(f"{n} sequences" for n in last.sequences.tolist())
    lines = [
        f"All {total} tokens labelled: F1 {100 * full:.2f}; 98% of that is {100 * target:.2f}. Rounds: {steps}.",
        "",
        "| strategy | tokens to 98% | of all tokens | tokens to random's last F1 | F1 at the end | tokens at the end |",
        "|---|---|---|---|---|---|",
    ]
    for name, runs in curves.items():
        reached = [run.tokens_to_reach(target) for run in runs]
        there = [r for r in reached if r is not None]
        cell = f"{np.mean(there):.0f}" if len(there) == len(runs) else "not reached"
        share = f"{100 * np.mean(there) / total:.1f}%" if len(there) == len(runs) else ""
        level = np.mean([run.f1[-1] for run in curves["random"]]) if "random" in curves else np.inf
        like = [run.tokens_to_reach(float(level)) for run in runs]
        found = [r for r in like if r is not None]
        other = f"{np.mean(found):.0f}" if len(found) == len(runs) else "not reached"
        end = 100 * np.mean([run.f1[-1] for run in runs])
        tokens = np.mean([run.tokens[-1] for run in runs])
        lines.append(f"| {name} | {cell} | {share} | {other} | {end:.2f} | {tokens:.0f} |")
    print("\n".join(lines))
    figures.keep(f"active.{corpus}", {"target": round(target, 4), "curves": table})


if __name__ == "__main__":
    main()
