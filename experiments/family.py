"""HMM, MEMM and CRF on the same data, with the same information.

    python experiments/family.py

"columns": each model sees the token's own columns and the label before, no more. "all features": the templates of
CRFsuite's chunking example (token features for the ingredients), which only the conditional models can use. Smoothing
and c2 are chosen on training data: by five-fold cross-validation on the ingredients, on the last fifth of 2,000
sentences of CoNLL-2000. Prints a table.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine import date
from sklearn.model_selection import KFold

from crfkit import CRF, HMM, MEMM, Template, metrics
from crfkit.data import load_corpus, read_columns

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from conll2000 import template_text  # noqa: E402

DATA = Path(os.environ.get("CRFKIT_DATA", ROOT.parent / "shared" / "data")) / "conll2000"
SETTINGS = (0.02, 0.1, 0.5)


def score(model: Any, X: Any, y: Any) -> tuple[float, float]:
    """Accuracy and F1 of chunks."""
    report = metrics.evaluate(y, model.predict(X))
    return report.accuracy, report.f1


def pick(sequences: Any, part: Any) -> Any:
    """Some of the sequences."""
    return [sequences[i] for i in part.tolist()]


def row(corpus: str, features: str, name: str, make: Callable[..., Any], data: tuple[Any, Any, Any, Any]) -> str:
    """A line of the table."""
    X, y, X_test, y_test = data
    folds = KFold(5).split(range(min(2000, len(X))))
    splits = [[(pick(X, part), pick(y, part)) for part in fold] for fold in folds]
    tried = {
        x: sum(score(make(x, 60).fit(*train), *held)[1] for train, held in splits[0 if len(X) < 1000 else 4 :])
        for x in SETTINGS
    }
    best = max(SETTINGS, key=lambda x: tried[x])
    accuracy, f1 = score(make(best, 100).fit(X, y), X_test, y_test)
    line = f"| {corpus} | {features} | {name} | {best:g} | {100 * accuracy:.2f} | {100 * f1:.2f} |"
    print(line, flush=True)
    return line


def main() -> None:
    """Trains them all."""
    lines = [
        "| corpus | features | model | smoothing or c2 | accuracy, % | chunk F1 |",
        "|---|---|---|---|---|---|",
    ]
    sets: dict[str, Any] = {"ingredients": (*load_corpus("ingredients", "train"), *load_corpus("ingredients", "test"))}
    if DATA.is_dir():
        sets["CoNLL-2000"] = (*read_columns(DATA / "train.txt"), *read_columns(DATA / "test.txt"))
    for corpus, data in sets.items():
        own = Template("\n".join([f"U{c}:%x[0,{c}]" for c in range(data[0].n_columns)]) + "\nB")
        rich = "auto" if corpus == "ingredients" else Template(template_text(), padding=False)
        lines.append(row(corpus, "columns", "HMM", lambda x, _: HMM(smoothing=x), data))
        for features, name in ((own, "columns"), (rich, "all features")):
            for kind in (MEMM, CRF):

                def make(x: float, most: int, kind: Any = kind, features: Any = features) -> Any:
                    return kind(features, c2=x, max_iter=most)

                lines.append(row(corpus, name, kind.__name__, make, data))
    print("\n".join(lines), date(), sep="\n")


if __name__ == "__main__":
    main()
