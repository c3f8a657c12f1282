"""HMM, MEMM and CRF on the same data, with the same information.

    python experiments/family.py

"columns": each model sees the token's own columns and the label before, no more. "all features": the templates of
CRFsuite's chunking example, which only the conditional models can use. Writes docs/experiments/family.table.txt.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from crfkit import CRF, HMM, MEMM, Template, metrics
from crfkit.data import load_corpus, read_columns

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from conll2000 import template_text  # noqa: E402

DATA = Path(os.environ.get("CRFKIT_DATA", ROOT.parent / "shared" / "data")) / "conll2000"


def row(corpus: str, features: str, name: str, model: Any, data: tuple[Any, Any, Any, Any]) -> str:
    """A line of the table."""
    X, y, X_test, y_test = data
    began = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - began
    report = metrics.evaluate(y_test, model.predict(X_test))
    f1 = f"{100 * report.f1:.2f}" if corpus.startswith("CoNLL") else ""
    line = f"| {corpus} | {features} | {name} | {100 * report.accuracy:.2f} | {f1} | {seconds:.1f} |"
    print(line, flush=True)
    return line


def main() -> None:
    """Trains them all."""
    lines = ["| corpus | features | model | accuracy, % | chunk F1 | training, s |", "|---|---|---|---|---|---|"]
    sets: dict[str, Any] = {"ingredients": (*load_corpus("ingredients", "train"), *load_corpus("ingredients", "test"))}
    if DATA.is_dir():
        sets["CoNLL-2000"] = (*read_columns(DATA / "train.txt"), *read_columns(DATA / "test.txt"))
    for corpus, data in sets.items():
        own = Template("\n".join([f"U{c}:%x[0,{c}]" for c in range(data[0].n_columns)]) + "\nB")
        rich = "auto" if corpus == "ingredients" else Template(template_text(), padding=False)
        lines.append(row(corpus, "columns", "HMM", HMM(), data))
        for features, name in ((own, "columns"), (rich, "all features")):
            lines.append(row(corpus, name, "MEMM", MEMM(features, c2=0.5, max_iter=100), data))
            lines.append(row(corpus, name, "CRF", CRF(features, c2=0.5, max_iter=100), data))
    (ROOT / "docs" / "experiments" / "family.table.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
