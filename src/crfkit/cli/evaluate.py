"""``crfkit eval``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crfkit import metrics
from crfkit.cli.files import Reading, emit, load_chain, read_labelled, say
from crfkit.cli.options import (
    ColumnsOption,
    CommentOption,
    JobsOption,
    JsonOption,
    LabelOption,
    OtherFormatOption,
    UnknownOption,
)
from crfkit.data import read_columns


def evaluate(
    data: Annotated[
        str, typer.Argument(help="Labelled data; without --model its last two columns are truth and prediction.")
    ],
    model: Annotated[
        Path | None, typer.Option("--model", "--model-file", "-m", help="A model, to label the data first.")
    ] = None,
    format: OtherFormatOption = None,
    label: LabelOption = None,
    columns: ColumnsOption = None,
    comment: CommentOption = "",
    unknown: UnknownOption = None,
    confusion: Annotated[bool, typer.Option("--confusion", help="Also show which label is taken for which.")] = False,
    n_jobs: JobsOption = -1,
    json: JsonOption = False,
) -> None:
    """Score predictions: tokens, sequences, and chunks as conlleval counts them.

    Sequences that hold the label of --unknown are left out.
    """
    if model is None:
        table, predicted = read_columns(data, comment=comment)
        y: Any = table.select([table.n_columns - 1])
        tags: Any = predicted
    else:
        crf = load_chain(model, n_jobs=n_jobs)
        X, y, _ = read_labelled(data, Reading.of_model(crf, format, label=label, columns=columns, comment=comment))
        tags = crf.predict(X)
    if unknown is not None:
        pairs = [(list(a), b) for a, b in zip(y, tags, strict=True)]
        scored = [(a, b) for a, b in pairs if unknown not in a]
        say(f"left out {len(pairs) - len(scored)} of {len(pairs)} sequences: not all of their labels are known")
        y, tags = [a for a, _ in scored], [b for _, b in scored]
    report = metrics.evaluate(y, tags)
    if json:
        emit(report.to_dict())
        return
    print(report)
    if confusion:
        labels, counts = metrics.confusion(y, tags)
        wrong = [
            (int(counts[i, j]), str(a), str(b)) for i, a in enumerate(labels) for j, b in enumerate(labels) if i != j
        ]
        print("\nmost frequent errors (true -> predicted):")
        for n, a, b in sorted(wrong, reverse=True)[:20]:
            if n:
                print(f"{n:8d}  {a} -> {b}")
