"""Label bias: Lafferty, McCallum and Pereira's rib/rob machine, an HMM, a MEMM and a CRF.

    python experiments/label_bias.py

The machine writes "rib" along the states 1 2 3 and "rob" along 4 5 3. Each state writes its letter with probability
1 - noise, otherwise one of the other letters of r, i, o, b. The paper has noise 1/32, 2,000 training and 500 test
sequences, and errors of 42 % (MEMM) and 4.6 % (CRF). Tokens see only their own letter.
Prints a table, writes docs/experiments/label_bias.svg.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import figures
import numpy as np

from crfkit import CRF, HMM, MEMM, Template

HERE = Path(__file__).parents[1] / "docs" / "experiments"
LETTERS = "riob"
NOISES = [0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4]


def draw(n: int, noise: float, rng: np.random.Generator) -> tuple[list[Any], list[Any]]:
    """Sequences of letters and their states."""
    X, y = [], []
    for _ in range(n):
        word, states = ("rib", "123") if rng.random() < 0.5 else ("rob", "453")
        letters = [c if rng.random() >= noise else rng.choice([d for d in LETTERS if d != c]) for c in word]
        X.append([str(c) for c in letters])
        y.append(list(states))
    return X, y


def errors(noise: float, seed: int) -> dict[str, float]:
    """Part of the test tokens labelled wrong, by each model."""
    rng = np.random.default_rng(seed)
    X, y = draw(2000, noise, rng)
    X_test, y_test = draw(500, noise, rng)
    now = Template("U:%x[0,0]\nB")
    models = {
        "HMM": HMM(smoothing=1e-3, transition_smoothing=1e-3),
        "MEMM": MEMM(now, c2=1e-3, all_possible_transitions=False),
        "CRF": CRF(now, c2=1e-3, all_possible_transitions=False),
    }
    return {name: 1 - m.fit(X, y).score(X_test, y_test) for name, m in models.items()}  # type: ignore[attr-defined]


def main() -> None:
    """Trains them all."""
    table = {noise: [errors(noise, seed) for seed in range(5)] for noise in NOISES}
    names = list(table[0.0][0])
    mean = {noise: {k: float(np.mean([r[k] for r in runs])) for k in names} for noise, runs in table.items()}
    lines = ["| noise | " + " | ".join(names) + " |", "|" + "---|" * (len(names) + 1)]
    lines += [
        f"| {noise:.4f} | " + " | ".join(f"{100 * row[k]:.1f} %" for k in names) + " |" for noise, row in mean.items()
    ]
    print("\n".join(lines))
    figures.keep("label_bias", mean)


if __name__ == "__main__":
    main()
