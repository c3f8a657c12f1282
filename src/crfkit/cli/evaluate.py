"""``crfkit eval``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crfkit import metrics
from crfkit.base.messages import counted
from crfkit.base.threads import resolve_threads
from crfkit.cli import options as o
from crfkit.cli.files import (
    Reading,
    busy,
    check_stored,
    emit,
    encoded,
    is_segments,
    knows_some,
    load_chain,
    read_data,
    require_file,
    say,
    warn_unknown,
    warnings_said,
)
from crfkit.data import read_columns
from crfkit.data.blocks import is_block_file


def evaluate(
    context: typer.Context,
    data: Annotated[
        str, typer.Argument(help="Labelled data; without --model its last two columns are truth and prediction.")
    ],
    model: Annotated[
        Path | None, typer.Option("--model", "--model-file", "-m", help="Model to label the data with.")
    ] = None,
    format: o.OtherFormatOption = None,
    label: o.LabelOption = None,
    columns: o.ColumnsOption = None,
    comment: o.CommentOption = "",
    encoding: o.EncodingOption = "utf-8",
    unknown: o.UnknownOption = None,
    confusion: Annotated[bool, typer.Option("--confusion", help="Also print the confusion matrix.")] = False,
    n_jobs: o.JobsOption = -1,
    json: o.JsonOption = False,
) -> None:
    """Score predictions: tokens, sequences, and chunks as conlleval counts them.

    Sequences with the label of --unknown, or in a block file with unknown labels, are skipped.
    """
    data = encoded(data, encoding)
    require_file(data)
    o.check_options(context, lambda: resolve_threads(n_jobs))
    stored = is_block_file(data)
    if model is None:
        if stored:
            raise o.OptionError(f"{data}: a block file holds no predictions: give a model with --model")
        with busy(f"reading {data}"):
            table, predicted = read_columns(data, comment=comment)
        y: Any = table.select([table.n_columns - 1])
        tags: Any = predicted
    else:
        crf = load_chain(model, n_jobs=n_jobs)
        if stored:
            check_stored(data, o.given_options(context), crf)
        reading = Reading.of_model(crf, format, label=label, columns=columns, comment=comment)
        with busy(f"reading {data}"):
            X, y, _ = read_data(data, reading)
        with busy("labelling"), warnings_said():
            tags = crf.predict(X)
        if stored:
            y = X.label_lists()
        truth, known = {x for row in y for x in row} - {unknown}, {str(x) for x in crf.model_.labels}
        if not knows_some(crf, X):
            warn_unknown(data)
        elif truth and truth.isdisjoint(known) and not is_segments(crf):
            of_data, of_model = (", ".join(sorted(x)[:5]) for x in (truth, known))
            say(f"crfkit: warning: the labels of {data} ({of_data}) are none of the model's ({of_model}): see --label")
    if unknown is not None or (stored and X.n_unknown):
        pairs = [(list(a), b) for a, b in zip(y, tags, strict=True)]
        scored = [(a, b) for a, b in pairs if unknown not in a]
        many = counted(len(pairs), "sequence")
        say(f"left out {len(pairs) - len(scored)} of {many}: not all labels are known")
        y, tags = [a for a, _ in scored], [b for _, b in scored]
    if model is not None and is_segments(crf):
        y = crf.as_predicted(y)
    with busy("scoring"):
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
