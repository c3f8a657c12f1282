"""The command line of active learning: ``crfkit active next`` and ``crfkit active add``."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from crfkit import active
from crfkit.active.strategies import fit_to_model
from crfkit.base.fields import ModelError
from crfkit.base.files import whole_file
from crfkit.base.messages import counted
from crfkit.base.threads import resolve_threads
from crfkit.cli.files import (
    Reading,
    busy,
    check_output,
    encoded,
    is_segments,
    load_chain,
    model_columns,
    output_file,
    require_file,
    say,
)
from crfkit.cli.options import (
    EncodingOption,
    Format,
    JobsOption,
    ModelOption,
    OptionError,
    SeedOption,
    check_options,
    complete,
)
from crfkit.data import Columns, DataError, read_columns
from crfkit.estimators import CRF

app = typer.Typer(
    name="active",
    help="Active learning: write a batch to label, then add the answers.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

#: In the label column: not known, and not asked for.
UNKNOWN = "?"
#: In the label column of a batch: the label that is asked for.
ASKED = "???"

#: The strategy that asks for the uncertain spans of sentences, by entropy per second of the person's time.
PER_SECOND = "entropy_per_second"
STRATEGIES = (*active.STRATEGIES, PER_SECOND)

Row = tuple[str, ...]


def _rows(table: Columns) -> list[list[Row]]:
    """All columns of all tokens."""
    return [[(row,) if isinstance(row, str) else tuple(row) for row in sequence] for sequence in table]


def _labelled(path: str) -> tuple[int, dict[tuple[Row, ...], list[str | None]]]:
    """Columns beside the label, and labels that are known, by the columns of the sequence."""
    X, y = read_columns(path)
    assert y is not None
    known = {
        tuple(rows): [None if label == UNKNOWN else label for label in labels]
        for rows, labels in zip(_rows(X), y, strict=True)
    }
    return X.n_columns, known


def _pool(path: str, reading: Reading) -> Columns:
    """All columns of a pool that fits the model; each sequence once."""
    if reading.format is not Format.columns:
        raise DataError(f"'crfkit active' reads column files only, but the model was trained on {reading.format}")
    try:
        X, _ = read_columns(path, label=None)
    except DataError as e:
        raise DataError(f"{e} ('crfkit active' reads column files only)") from None
    n = reading.n_columns
    if reading.columns is None and n is not None and X.n_columns != n:
        raise DataError(
            f"{path}: a pool needs the {counted(n, 'column')} that the model was trained on, and no label, "
            f"got {counted(X.n_columns, 'column')}"
        )
    first: dict[tuple[Row, ...], int] = {}
    for i, rows in enumerate(_rows(X)):
        first.setdefault(tuple(rows), i)
    chosen: Columns = X[np.array(list(first.values()))]
    return chosen


@app.command("next")
def next_batch(
    context: typer.Context,
    pool: Annotated[str, typer.Argument(help="A column file without labels; duplicate sequences count once.")],
    model: ModelOption,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the batch.")],
    known: Annotated[
        Path | None, typer.Option(help="Labelled data, as written by 'active add'; it is not queried again.")
    ] = None,
    n: Annotated[int, typer.Option("--number", "-n", help="Number of queries.")] = 10,
    strategy: Annotated[
        str,
        typer.Option(help=f"Query strategy: {', '.join(STRATEGIES)}.", autocompletion=complete(STRATEGIES)),
    ] = "sequence_entropy",
    length: Annotated[
        str | None, typer.Option(help="Query only the most uncertain span, of this length or range MIN-MAX.")
    ] = None,
    per_token: Annotated[bool, typer.Option("--per-token", help="Divide the uncertainty by the length.")] = False,
    diversity: Annotated[float, typer.Option(help="From 0 to 1: avoid sequences similar to those chosen.")] = 0.0,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of an earlier batch.")] = False,
    encoding: EncodingOption = "utf-8",
    random_state: SeedOption = 0,
    n_jobs: JobsOption = -1,
) -> None:
    """Write the next batch to label.

    Each line holds the columns of a token, the label that the model would give it, and the answer: ??? where a label is
    wanted, ? where it is not, or the label where it is known. Replace ??? with labels, then run 'crfkit active add'.
    """
    check_options(context, lambda: resolve_threads(n_jobs))
    if strategy not in STRATEGIES:
        raise OptionError(f"--strategy must be one of {', '.join(STRATEGIES)}, got {strategy!r}")
    if n < 1:
        raise OptionError(f"--number must be >= 1, got {n}")
    if not 0 <= diversity <= 1:
        raise OptionError(f"--diversity must be from 0 to 1, got {diversity:g}")
    lengths = _length(length)
    if strategy == PER_SECOND and (lengths or per_token or diversity):
        raise OptionError(
            f"--strategy {PER_SECOND} chooses spans itself: leave out --length, --per-token and --diversity"
        )
    if output.is_file() and output.stat().st_size and not force:
        raise OptionError(f"--output {output} already exists: once its answers are added, give --force to replace it")
    check_output("--output", output, pool, model, known)
    require_file(pool)
    crf = load_chain(model, n_jobs=n_jobs)
    if is_segments(crf):
        raise ModelError(f"{model}: crfkit active needs a linear chain, such as a CRF, got a SegmentCRF")
    reading = Reading.of_model(crf)
    with busy(f"reading {pool}"):
        table = _pool(encoded(pool, encoding), reading)
    X = model_columns(table, reading)
    sequences = _rows(table)
    done = {} if known is None else _labelled(encoded(str(known), encoding))[1]
    given = [done.get(tuple(rows)) for rows in sequences]
    with busy("choosing questions"):
        if strategy == PER_SECOND:
            questions = _per_second(crf, X, n, given, random_state)
        else:
            how: dict[str, Any] = {"per_token": per_token, "length": lengths, "diversity": diversity}
            found = active.query(crf, X, n, strategy, given=given, random_state=random_state, **how)
            questions = [(q.sequence, set(range(q.start, q.end))) for q in found]
    tokens = 0
    best = crf.predict([X[i] for i, _ in questions], given=fit_to_model(crf, [given[i] for i, _ in questions]))
    with output_file(output) as file:
        for (i, asked), labels in zip(questions, best, strict=True):
            answers = given[i] or [None] * len(labels)
            for t, row in enumerate(sequences[i]):
                answer = answers[t] or (ASKED if t in asked else UNKNOWN)
                tokens += answer == ASKED
                file.write("\t".join([*row, str(labels[t]), str(answer)]) + "\n")
            file.write("\n")
    say(f"wrote {counted(len(questions), 'question')}, {counted(tokens, 'token')} to label, to {output}")


def _per_second(crf: CRF, X: Any, n: int, given: list[Any], random_state: int | None) -> list[tuple[int, set[int]]]:
    """Sentences, and the tokens of them that are asked, as the annotation page would ask them."""
    pool = active.Pool(X, crf=crf, random_state=random_state or 0, n_jobs=crf.n_jobs)
    for i, row in enumerate(fit_to_model(crf, given)):
        if row is not None:
            pool.know(i, pool.scheme.path(row))
            if all(label is not None for label in given[i]):
                pool.closed[i] = True
    pool.rescore()
    out: list[tuple[int, set[int]]] = []
    while len(out) < n and (question := pool.ask()) is not None:
        out.append((question.sequence, {t for span in question.spans for t in range(span.start, span.end)}))
        pool.note(question.sequence, whole=True)
    return out


def _length(text: str | None) -> int | tuple[int, int] | None:
    if text is None:
        return None
    parts = text.split("-")
    if len(parts) > 2 or not all(x.isdigit() and int(x) > 0 for x in parts) or int(parts[0]) > int(parts[-1]):
        raise OptionError(f"--length must be a number or MIN-MAX, such as 1-5, got {text!r}")
    return int(parts[0]), int(parts[-1])


def _line(path: str, encoding: str, token: int) -> str:
    """The file and line of a token, for messages."""
    if path == "-":
        return f"standard input, token {token}"
    with open(path, encoding=encoding) as file:
        numbers = (number for number, line in enumerate(file, 1) if line.strip())
        return f"{path}:{next(islice(numbers, token, None))}"


@app.command("add", short_help="Add answers to a file of labelled data.")
def add_answers(
    answers: Annotated[str, typer.Argument(help="A batch from 'crfkit active next', with answers.")],
    labelled: Annotated[Path, typer.Argument(help="The file of labelled data; created if missing.")],
    encoding: EncodingOption = "utf-8",
) -> None:
    """Add answers to a file of labelled data, with ? for unknown labels.

    Train on it with 'crfkit train --unknown ?'. Blank answers are ignored. An answer to a sequence that is
    there already joins that sequence.
    """
    check_output("LABELLED", labelled, answers)
    table, y = read_columns(encoded(answers, encoding))
    assert y is not None
    if table.n_columns < 2:
        raise DataError(f"{answers}: not a batch of 'crfkit active next': it needs columns, a suggestion and an answer")
    X = table.select(list(range(table.n_columns - 1)))
    n, known = _labelled(encoded(str(labelled), encoding)) if labelled.exists() else (X.n_columns, {})
    if X.n_columns != n:
        raise DataError(
            f"{answers} has {counted(X.n_columns, 'column')} besides the suggestion and the answer, "
            f"{labelled} has {n} besides the label"
        )
    guesses = table.select([table.n_columns - 1])
    seen = {x for labels in known.values() for x in labels} | {x for labels in guesses for x in labels}
    fresh = 0
    for first, rows, labels in zip(X.offsets.tolist(), _rows(X), y, strict=False):
        old = known.get(tuple(rows)) or [None] * len(rows)
        new = [None if x.strip() in ("", UNKNOWN, ASKED) else x for x in labels]
        for t, (a, b) in enumerate(zip(old, new, strict=True)):
            if a is not None and b is not None and a != b:
                place = _line(answers, encoding, first + t)
                raise DataError(f"{place}: the answer is {b!r}, but {labelled} has {a!r} for this token")
            fresh += a is None and b is not None
            if b is not None and b not in seen and labelled.exists():
                place = _line(answers, encoding, first + t)
                say(f"crfkit: warning: {place}: the label {b!r} is new; is it a typo?")
                seen.add(b)
        known[tuple(rows)] = [b if b is not None else a for a, b in zip(old, new, strict=True)]
    if fresh:
        with whole_file(labelled, "w", encoding=encoding) as file:  # as it was
            for tokens, names in known.items():
                if all(name is None for name in names):
                    continue
                for row, name in zip(tokens, names, strict=True):
                    file.write("\t".join([*row, UNKNOWN if name is None else name]) + "\n")
                file.write("\n")
    say(f"added {counted(fresh, 'label')} to {labelled}")
