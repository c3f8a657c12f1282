"""The command line of active learning: ``crfkit active next`` and ``crfkit active add``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from crfkit import active
from crfkit._files import whole_file
from crfkit.data import Columns, DataError, read_columns
from crfkit.estimators.loading import load_chain

app = typer.Typer(
    name="active",
    help="Active learning: write the next batch to label, read the answers back.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

#: In the label column: not known, and not asked for.
UNKNOWN = "?"
#: In the label column of a batch: the label that is asked for.
ASKED = "???"

Row = tuple[str, ...]


def _rows(table: Columns) -> list[list[Row]]:
    """All columns of all tokens."""
    return [[(row,) if isinstance(row, str) else tuple(row) for row in sequence] for sequence in table]


def _labelled(path: Path) -> dict[tuple[Row, ...], list[str | None]]:
    """Labels that are known, by the columns of the sequence; none where the file is not there yet."""
    if not path.exists():
        return {}
    X, y = read_columns(str(path))
    assert y is not None
    return {
        tuple(rows): [None if label == UNKNOWN else label for label in labels]
        for rows, labels in zip(_rows(X), y, strict=True)
    }


@app.command("next")
def next_batch(
    pool: Annotated[str, typer.Argument(help="A column file without labels.")],
    model: Annotated[Path, typer.Option("--model", "--model-file", "-m", help="The model file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the batch.")],
    known: Annotated[
        Path | None, typer.Option(help="What is labelled already, as 'active add' writes it; it is not asked again.")
    ] = None,
    n: Annotated[int, typer.Option("--number", "-n", help="Questions to ask.")] = 10,
    strategy: Annotated[str, typer.Option(help=f"One of {', '.join(active.STRATEGIES)}.")] = "sequence_entropy",
    span: Annotated[
        str | None, typer.Option(help="Ask only for the most uncertain span, of this length or LEAST-MOST.")
    ] = None,
    per_token: Annotated[bool, typer.Option("--per-token", help="Divide the uncertainty by the length.")] = False,
    diversity: Annotated[float, typer.Option(help="Between 0 and 1: avoid sequences like those chosen before.")] = 0.0,
    seed: Annotated[int, typer.Option(help="For the random strategy.")] = 0,
    threads: Annotated[int, typer.Option("--threads", "-j", help="Threads; -1 for all cores.")] = -1,
) -> None:
    """Write the next batch to label.

    Each line holds the columns of a token, the label that the model would give it, and the answer: ??? where a label is
    wanted, ? where it is not, or the label where it is known. Replace ??? by labels, then run 'crfkit active add'.
    """
    crf = load_chain(model, n_jobs=threads)
    X, _ = read_columns(pool, label=None)
    table = _rows(X)
    done = {} if known is None else _labelled(known)
    model_labels = set(crf.model_.labels)
    given: list[Any] = []
    for rows in table:
        labels = done.get(tuple(rows))
        given.append(None if labels is None else [x if x in model_labels else None for x in labels])
        if labels is not None and None not in labels:
            given[-1] = labels if all(x in model_labels for x in labels) else [crf.model_.labels[0]] * len(labels)
    questions = active.query(
        crf,
        X,
        n,
        strategy,
        given=given,
        per_token=per_token,
        span=_span(span),
        diversity=diversity,
        random_state=seed,
    )
    best = crf.predict([X[q.sequence] for q in questions], given=[given[q.sequence] for q in questions])
    with whole_file(output, "w", encoding="utf-8") as file:
        for q, labels in zip(questions, best, strict=True):
            answers = given[q.sequence] or [None] * len(labels)
            for t, row in enumerate(table[q.sequence]):
                answer = answers[t] or (ASKED if q.start <= t < q.end else UNKNOWN)
                file.write("\t".join([*row, str(labels[t]), str(answer)]) + "\n")
            file.write("\n")
    tokens = sum(q.end - q.start for q in questions)
    print(f"wrote {len(questions)} questions, {tokens} tokens to label, to {output}", file=sys.stderr)


def _span(text: str | None) -> int | tuple[int, int] | None:
    if text is None:
        return None
    parts = text.split("-")
    if len(parts) > 2 or not all(x.isdigit() and int(x) > 0 for x in parts) or int(parts[0]) > int(parts[-1]):
        raise DataError(f"--span must be a length or LEAST-MOST, such as 1-5, got {text!r}")
    return int(parts[0]), int(parts[-1])


@app.command("add")
def add_answers(
    answers: Annotated[str, typer.Argument(help="A batch of 'crfkit active next', answered.")],
    labelled: Annotated[Path, typer.Argument(help="The file of labelled data; made if it is not there.")],
) -> None:
    """Read answers back: adds them to a file of labelled data, with ? for labels that are not known.

    Train on it with 'crfkit train --unknown ?'. An answer to a sequence that is there already joins that sequence.
    """
    table, y = read_columns(answers)
    assert y is not None
    if table.n_columns < 2:
        raise DataError(f"{answers}: not a batch of 'crfkit active next': it needs columns, a suggestion and an answer")
    X = table.select(list(range(table.n_columns - 1)))
    known = _labelled(labelled)
    fresh = 0
    for i, (rows, labels) in enumerate(zip(_rows(X), y, strict=True)):
        old = known.get(tuple(rows)) or [None] * len(rows)
        new = [None if x in (UNKNOWN, ASKED) else x for x in labels]
        for t, (a, b) in enumerate(zip(old, new, strict=True)):
            if a is not None and b is not None and a != b:
                raise DataError(
                    f"{answers}: sequence {i}, position {t}: the answer is {b!r}, but {labelled} says {a!r} already"
                )
            fresh += a is None and b is not None
        known[tuple(rows)] = [b if b is not None else a for a, b in zip(old, new, strict=True)]
    with whole_file(labelled, "w", encoding="utf-8") as file:
        for tokens, names in known.items():
            if all(name is None for name in names):
                continue
            for row, name in zip(tokens, names, strict=True):
                file.write("\t".join([*row, UNKNOWN if name is None else name]) + "\n")
            file.write("\n")
    print(f"added {fresh} labels to {labelled}", file=sys.stderr)
