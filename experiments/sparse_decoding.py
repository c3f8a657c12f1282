"""How many labels a beam needs to find the best path: minimum divergence, fixed size and threshold, on synthetic HMMs.

    python experiments/sparse_decoding.py [--out docs/experiments]

Hidden Markov models of 100 states and sequences of 75 steps, as in "Sparse forward-backward using minimum divergence
beams". For each criterion the loosest setting is found with which all paths come out exactly; given is its average
beam.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import figures
import hmm
import numpy as np

from crfkit import chain
from crfkit.chain import FixedSize, MinDivergence, Threshold

STATES, LENGTH, MODELS, EACH = 100, 75, 5, 20
GRID: dict[str, list[Any]] = {
    "minimum divergence, at least 4": [MinDivergence(e, 4) for e in (0.1, 0.03, 0.01, 0.003, 0.001, 3e-4, 1e-4, 1e-5)],
    "fixed size": [FixedSize(n) for n in (5, 8, 10, 12, 15, 18, 20, 22, 25, 30, 35, 40, 50, 60, 80)],
    "threshold": [Threshold(d) for d in (3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 15.0)],
}
#: Average beams that the paper reports: one number, or a range.
PAPER = {"minimum divergence": [9.6], "fixed size": [20, 25], "threshold": [30.4]}


def average_beams(symbols: int, share: float) -> dict[str, tuple[str, float]]:
    """For each criterion the loosest setting that decodes this share of the sequences exactly, and its average beam."""
    batches = []
    for seed in range(MODELS):
        rng = np.random.default_rng(seed)
        model = hmm.make_hmm(STATES, symbols, rng)
        p = hmm.potentials(model, [hmm.draw(model, LENGTH, rng)[1] for _ in range(EACH)])
        batches.append((p, chain.decode(p)))
    out = {}
    for name, beams in GRID.items():
        for beam in beams:
            right = total = 0
            for p, best in batches:
                found = chain.decode(p, beam=beam)
                right += sum(bool((a == b).all()) for a, b in zip(found, best, strict=True))
                total += len(best)
            if right >= share * total:
                sizes = np.concatenate([chain.marginals(p, beam=beam).sizes for p, _ in batches])
                out[name] = (beam.text(), float(sizes.mean()))
                break
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "experiments")
    parser.add_argument("--symbols", default="100,500,1000,2000,5000")
    arguments = parser.parse_args()
    symbols = [int(s) for s in arguments.symbols.split(",")]
    table = {(s, share): average_beams(s, share) for s in symbols for share in (1.0, 0.99)}
    lines = ["| symbols | exact paths | " + " | ".join(GRID) + " |", "|---" * (2 + len(GRID)) + "|"]
    for (s, share), row in table.items():
        cells = [f"{row[c][1]:.1f} (`{row[c][0]}`)" if c in row else "-" for c in GRID]
        lines.append(f"| {s} | {share:.0%} | " + " | ".join(cells) + " |")
    text = "\n".join(lines)
    print(text)
    arguments.out.mkdir(parents=True, exist_ok=True)

    exact = {
        str(s): {name.partition(",")[0]: row[name][1] for name in GRID}
        for (s, share), row in table.items()
        if share == 1
    }
    figures.keep("sparse_decoding", {"beams": exact, "paper": PAPER})


if __name__ == "__main__":
    main()
