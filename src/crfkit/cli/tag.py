"""``crfkit tag``."""

from __future__ import annotations

import copy
import io
import itertools
import json as json_format
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
import typer

from crfkit import _core
from crfkit.base.files import whole_file
from crfkit.base.messages import counted
from crfkit.base.threads import resolve_threads
from crfkit.chain.beams import Beam, as_rule
from crfkit.chain.inference import decode_flat, log_partition, marginals
from crfkit.chain.inference import nbest as best_paths
from crfkit.cli.cluster import DaskOption, cluster
from crfkit.cli.files import (
    Reading,
    check_output,
    check_stored,
    encoded,
    is_segments,
    knows_some,
    load_chain,
    model_columns,
    output_file,
    read_pieces,
    require_file,
    say,
    warn_unknown,
    warnings_said,
)
from crfkit.cli.options import (
    CommentOption,
    EncodingOption,
    Format,
    JobsOption,
    JsonOption,
    LinesOption,
    ModelOption,
    OptionError,
    OtherFormatOption,
    QuietOption,
    check_options,
    given_options,
)
from crfkit.data import Columns, DataError, tokenize
from crfkit.data.blocks import is_block_file
from crfkit.data.labels import Entity, Tagging
from crfkit.data.readers import CONLLU_COLUMNS, EncodedPath, Source, open_source, read_lines, source_name
from crfkit.estimators.chained import ChainEstimator
from crfkit.features.encoders import PlanEncoder
from crfkit.model.streaming import Tagged, tag_columns

EntitiesOption = Annotated[
    bool, typer.Option("--entities", "-e", help="Write entities and their probabilities as JSON.")
]
TextOption = Annotated[bool, typer.Option("--text", help="Read raw text; split it into sentences and tokens.")]
_PARAGRAPHS = 1 << 16  # characters of raw text at a time, or a bit more


@dataclass(frozen=True)
class _Written:
    """What is written of the data of that name; ``framed``: as CoNLL-U, with one column changed.

    ``tokens``: whether the data has tokens, and not only attributes.
    """

    name: str
    reading: Reading
    tokens: bool
    framed: bool
    probabilities: bool
    nbest: int
    json: bool
    entities: bool
    beam: Beam | None


def tag(
    context: typer.Context,
    model: ModelOption,
    data: Annotated[str, typer.Argument(help="Data to label; standard input by default.")] = "-",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Output file; - or none: standard output.")
    ] = None,
    format: OtherFormatOption = None,
    comment: CommentOption = "",
    encoding: EncodingOption = "utf-8",
    probabilities: Annotated[
        bool,
        typer.Option("--probabilities", "-p", help="Append the probability of each label; with segments, of its type."),
    ] = False,
    nbest: Annotated[int, typer.Option("--nbest", "-n", help="Write the N best labellings, with probabilities.")] = 1,
    beam: Annotated[
        str | None,
        typer.Option(
            help="Decode within beams of labels: min-divergence:EPSILON[:MIN_SIZE], fixed:N or threshold:DELTA."
        ),
    ] = None,
    entities: EntitiesOption = False,
    text: TextOption = False,
    lines: LinesOption = False,
    n_jobs: JobsOption = -1,
    dask: DaskOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Label data: write its columns with the predicted label appended.

    A label column in the input is copied and otherwise ignored. CoNLL-U is written unchanged except for the label
    column; for CRFsuite and block files only labels are written. An output file that ends in .jsonl has a JSON object
    per sequence, one that ends in .parquet a row per sequence. Input of any size is processed piece by piece. In the
    output of --json and --entities, tokens are the columns that the model was trained on; with --text, char_start and
    char_end count characters of the input. --dask labels files in UTF-8, but no raw text, block files or standard
    input.
    """
    if lines and not text:
        raise OptionError("--lines needs --text")
    _check(nbest, entities, beam, format if text else None)
    rule = check_options(context, lambda: resolve_threads(n_jobs) and as_rule(beam, "tag"))
    output = None if str(output) == "-" else output
    check_output("--output", output, data, model)
    require_file(data := encoded(data, encoding))
    crf = load_chain(model, n_jobs=n_jobs if dask is None else 1)
    reading = Reading.of_model(crf, Format.columns if text else format, comment=comment)
    kind = reading.format
    began = time.perf_counter()
    counts = [0, 0]

    def show(sequences: int, tokens: int) -> None:
        counts[:] = counts[0] + sequences, counts[1] + tokens
        if not quiet and sys.stderr.isatty() and output is not None:
            rate = counts[1] / (time.perf_counter() - began)
            line = f"\r\x1b[2K{counted(counts[0], 'sequence')}, {rate:.0f} tokens/s"
            print(line, end="", file=sys.stderr, flush=True)

    name = source_name(data)
    stored = _check_input(data, crf, reading, entities, given_options(context))
    as_table, as_lines = _kind_of(output, entities)
    json = json or as_lines
    own = is_segments(crf)
    if own and rule is not None:
        raise OptionError("--beam is for linear chains, not for models of segments")
    plain = kind is Format.columns and not (json or entities or text or stored or own) and nbest == 1 and rule is None
    _check_cluster(dask, data, text, stored)
    framed = kind is Format.conllu and not json and nbest == 1 and not entities and not stored
    tokens = kind is not Format.crfsuite and not stored
    how = _Written(name, reading, tokens, framed, probabilities, nbest, json, entities, rule)
    known = plain or quiet or dask is not None  # whether the model knows some attribute; until there is one
    with (
        _record_file(output, as_table, how) as out,
        _readable_twice(data, kind) as data,
        cluster(dask, quiet) as client,
        warnings_said(quiet),
    ):
        if plain or client is not None:
            for done in _labelled(client, crf, data, how, plain, n_jobs):
                if as_table:
                    out.write(done.text.decode())
                else:
                    out.buffer.write(done.text)
                if data == "-":
                    out.buffer.flush()
                show(done.sequences, done.tokens)
        else:
            pieces = _text_pieces(data, name, entities, lines) if text else read_pieces(data, reading)
            for X in _write(crf, data, pieces, how, out):
                known = known or knows_some(crf, X)
                show(*_size(X))
    if not quiet:
        seconds = time.perf_counter() - began
        start = "\r\x1b[2K" if sys.stderr.isatty() and output is not None else ""
        say(f"{start}labelled {counted(counts[0], 'sequence')}, {counted(counts[1], 'token')} in {seconds:.2f}s")
    if counts[1] and not known:
        warn_unknown(name)


def _check_input(data: str, crf: ChainEstimator, reading: Reading, entities: bool, given: dict[str, str]) -> bool:
    """Whether the data is a block file; raises where it does not go with the model or the options."""
    stored = is_block_file(data)
    if stored:
        check_stored(data, given, crf)
        if entities:
            raise DataError(f"{data}: a block file holds no tokens to make entities of")
    if "text" in given and (not isinstance(crf.model_.encoder, PlanEncoder) or (reading.n_columns or 1) > 1):
        raise DataError("--text needs a model of tokens alone: this one was trained on attributes or more columns")
    return stored


def _kind_of(output: Path | None, entities: bool) -> tuple[bool, bool]:
    """Whether the output is a file of Parquet, and whether it has JSON objects, or rows, in place of columns."""
    if output is not None and output.suffix in (".gz", ".bz2", ".xz") and Path(output.stem).suffix == ".parquet":
        raise OptionError(f"--output: Parquet is compressed already: name the file {output.stem}, not {output.name}")
    as_table = output is not None and output.suffix == ".parquet"
    if as_table and entities:
        raise OptionError("--entities are written as JSON, not as Parquet")
    if output is not None and entities and {".csv", ".tsv"} & set(output.suffixes):
        raise OptionError(
            f"--entities are written as JSON, an object per line: name the file .jsonl, not {output.name}"
        )
    return as_table, as_table or (output is not None and ".jsonl" in output.suffixes)


def _check_cluster(dask: str | None, data: str, text: bool, stored: bool) -> None:
    """Raises where a cluster is asked for what it does not do."""
    wrong = {
        "standard input": data == "-",
        "block files": stored,
        "--text": text,
        "--encoding": isinstance(data, EncodedPath),
    }
    if dask is not None and any(wrong.values()):
        which = next(name for name, here in wrong.items() if here)
        raise OptionError(
            f"--dask labels files of columns, CoNLL-U or CRFsuite's format in UTF-8, not {which}: leave out --dask"
        )


def _labelled(client: Any, crf: Any, data: str, how: _Written, plain: bool, n_jobs: int) -> Iterator[Tagged]:
    """A file, labelled piece by piece, here or on a cluster; ``plain``: in columns, by a linear chain."""
    reading = how.reading
    select = {"select": partial(model_columns, how=reading)}
    columns: dict[str, Any] = {**select, "comment": reading.comment, "probabilities": how.probabilities}
    if client is None:
        return tag_columns(crf.model_, data, **columns, n_jobs=n_jobs)
    from crfkit.dask.tagging import tag_file, tag_text

    label = partial(tag_text, **columns) if plain else partial(_label, how=how)
    return tag_file(client, crf.model_ if plain else crf, os.path.abspath(data), label)


def _label(crf: Any, source: Source, how: _Written) -> Tagged:
    """What is written of a source."""
    out, pieces = io.StringIO(), read_pieces(copy.copy(source), how.reading)  # CoNLL-U is read twice
    sizes = [_size(X) for X in _write(crf, source, pieces, how, out)]
    return Tagged(out.getvalue().encode(), sum(a for a, _ in sizes), sum(b for _, b in sizes))


def _size(X: Any) -> tuple[int, int]:
    """Sequences and tokens."""
    return len(X), sum(map(len, X)) if isinstance(X, list) else int(X.lengths.sum())


@contextmanager
def _record_file(path: Path | None, as_table: bool, how: _Written) -> Iterator[Any]:
    """The output, as text; or a file of Parquet, which takes the same lines of JSON."""
    if not as_table:
        with output_file(path) as out:
            yield out
        return
    assert path is not None
    with whole_file(path) as file:
        table = _Parquet(file, how)
        yield table
        table.close()


class _Parquet:
    """Takes JSON objects, one per line, and writes them as rows of a table, some thousand at a time."""

    _ROWS = 10_000

    def __init__(self, file: IO[bytes], how: _Written) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise DataError("Parquet needs pyarrow: pip install 'crfkit[tables]'") from None
        self._arrow, self._file, self._how = pyarrow, file, how
        self._rows: list[dict[str, Any]] = []
        self._writer: Any = None

    def write(self, lines: str) -> None:
        """A row for each line."""
        self._rows += map(json_format.loads, lines.split("\n")[:-1])
        if len(self._rows) >= self._ROWS:
            self._flush()

    def _flush(self) -> None:
        pa, how = self._arrow, self._how
        if self._writer is None:
            token = next((x for row in self._rows for x in row.get("tokens", ())), None)
            several = (how.reading.n_columns or 1) > 1 if token is None else not isinstance(token, str)
            kinds = {"tokens": pa.list_(pa.list_(pa.string()) if several else pa.string())} if how.tokens else {}
            kinds["labels"] = pa.list_(pa.string())
            if how.probabilities:
                kinds["probabilities"] = pa.list_(pa.float64())
            if how.nbest > 1:
                kinds |= {"rank": pa.int64(), "probability": pa.float64()}
            self._writer = pa.parquet.ParquetWriter(self._file, pa.schema(kinds))
        self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._writer.schema))
        self._rows = []

    def close(self) -> None:
        """Writes the rest."""
        self._flush()
        self._writer.close()


def _check(nbest: int, entities: bool, beam: str | None, format: Format | None) -> None:
    """Raises where options do not go together; ``format`` is what was given beside --text."""
    if nbest < 1:
        raise OptionError(f"--nbest must be >= 1, got {nbest}")
    if entities and (nbest > 1 or beam is not None):
        raise OptionError("--entities shows those of the best labels: leave out --nbest and --beam")
    if format is not None:
        raise OptionError(f"--text reads raw text: leave out --format {format}")


@contextmanager
def _readable_twice(data: str, kind: Format) -> Iterator[str]:
    """The path of a file with the data; CoNLL-U from standard input goes into a temporary one."""
    if data != "-" or kind is not Format.conllu:
        yield data
        return
    with tempfile.NamedTemporaryFile(suffix=".conllu") as file, open_source(data) as source:
        shutil.copyfileobj(source, file)
        file.flush()
        yield file.name


def _text_pieces(data: str, name: str, entities: bool, by_line: bool) -> Iterator[tuple[Any, Any]]:
    """Sentences of raw text, some paragraphs at a time; for entities with the number of characters before them."""
    before, size = 0, 0
    held: list[str] = []
    number = 0
    try:
        for raw in itertools.chain(read_lines(data), [b""]):
            number += 1
            line = raw.decode()
            held.append(line)
            size += len(line)
            ends = line.endswith("\n") if by_line else not line.strip()
            if not line or (size >= _PARAGRAPHS and ends):
                X = tokenize("".join(held), lines=by_line)
                if X:
                    yield (before, X) if entities else (Columns.from_sequences(X),) * 2
                before, held, size = before + size, [], 0
    except UnicodeDecodeError as e:
        raise DataError(f"{name}:{number}: not valid UTF-8: {e.reason}") from None


def _write_entities(crf: ChainEstimator, table: Any, X: Any, out: IO[str]) -> None:
    """A JSON object for each sequence; ``table`` is None for attributes, of raw text the characters before it."""
    for i, found in enumerate(crf.predict_entities(X)):
        record: dict[str, Any] = {}
        if isinstance(table, int):
            first, last = X[i][0], X[i][-1]
            record = {"text": first.source[first.start : last.end]}
            record |= {"char_start": table + first.start, "char_end": table + last.end, "tokens": X[i]}
        elif table is not None:
            record = {"tokens": X[i]}
        record["entities"] = [_entity(e, table if isinstance(table, int) else 0) for e in found]
        out.write(json_format.dumps(record, ensure_ascii=False) + "\n")


def _entity(entity: Entity, before: int) -> dict[str, Any]:
    record = {k: v for k, v in entity._asdict().items() if v is not None}
    record["probability"] = round(entity.probability, 6)
    return record | {k: v + before for k, v in record.items() if k.startswith("char_")}


class _Conllu:
    """A CoNLL-U file that is written again with one column changed; comments, ranges and empty nodes stay."""

    def __init__(self, source: Source, label: str, name: str) -> None:
        for column in label.split("+"):
            if column not in CONLLU_COLUMNS:
                raise DataError(f"CoNLL-U has no column {column!r}; there are {', '.join(CONLLU_COLUMNS)}")
        self.columns = [CONLLU_COLUMNS.index(column) for column in label.split("+")]
        self.name = name
        self.lines = enumerate(self._read(source), 1)

    def _read(self, source: Source) -> Iterator[str]:
        for line in read_lines(source):
            yield line.decode()

    def sequence(self, labels: list[str], probabilities: list[float] | None) -> Iterator[str]:
        """The lines up to the end of the next sequence."""
        t = 0
        for number, line in self.lines:
            cells = line.rstrip("\r\n").split("\t")
            if line.startswith("#") or not cells[0].isdigit():
                yield line
                if t and not line.strip():
                    return
                continue
            if len(cells) != len(CONLLU_COLUMNS):
                raise DataError(f"{self.name}:{number}: CoNLL-U has 10 columns, the line has {len(cells)}")
            for column, value in zip(self.columns, labels[t].split("|", len(self.columns) - 1), strict=True):
                cells[column] = value
            if probabilities is not None:
                note = f"Probability={probabilities[t]:.6f}"
                cells[9] = note if cells[9] == "_" else f"{cells[9]}|{note}"
            t += 1
            yield "\t".join(cells) + "\n"


def _write(crf: Any, source: Source, pieces: Iterator[tuple[Any, Any]], how: _Written, out: IO[str]) -> Iterator[Any]:
    """Writes what is asked for of labelled data; gives what was labelled, piece by piece."""
    frame = _Conllu(source, how.reading.label or "upos", how.name) if how.framed else None
    for table, X in pieces:
        if how.entities:
            _write_entities(crf, table, X, out)
        else:
            _write_tags(crf, table, X, out, how, frame)
        yield X
    if frame is not None:
        out.writelines(line for _, line in frame.lines)


def _write_tags(
    crf: ChainEstimator, table: Columns | None, X: Any, out: IO[str], how: _Written, frame: _Conllu | None
) -> None:
    i, k = -1, how.nbest
    for names, each, rank, probability in _labellings(crf, X, how.probabilities, k, how.beam):
        i += rank == 0
        if frame is not None:
            out.writelines(frame.sequence(names, each))
        elif how.json:
            record: dict[str, Any] = {} if table is None else {"tokens": X[i]}
            record["labels"] = names
            if each is not None:
                record["probabilities"] = [round(x, 6) for x in each]
            if k > 1:
                record |= {"rank": rank, "probability": probability}
            out.write(json_format.dumps(record, ensure_ascii=False) + "\n")
        else:
            if k > 1:
                out.write(f"# {rank} {probability:.6f}\n")
            out.write(_with_labels(table, i, names, each))


#: Labels, their probabilities if asked for, rank and probability of a labelling.
_Labelling = tuple[list[str], list[float] | None, int, float]


def _labellings(crf: Any, X: Any, probabilities: bool, k: int, beam: Beam | None) -> Iterator[_Labelling]:
    """The best labellings of each sequence, best first."""
    if is_segments(crf):
        yield from _segmented(crf, X, probabilities, k)
        return
    labels = [str(label) for label in crf.model_.labels]
    for p in crf.model_.potentials(X, crf.n_jobs, np.float64 if probabilities or k > 1 else None):
        assert p.offsets is not None
        bounds = p.offsets.tolist()
        nodes = marginals(p, crf.n_jobs).nodes if probabilities else None
        best: list[list[tuple[Any, float]]]
        if k == 1:
            best = [[(path, 0.0)] for path in p.split(decode_flat(p, crf.n_jobs, beam))]
        else:
            log_z = log_partition(p, crf.n_jobs)
            best = [
                list(zip(found.paths, np.exp(found.scores - z).tolist(), strict=True))
                for found, z in zip(best_paths(p, k, beam=beam), log_z, strict=True)
            ]
        for s, paths in enumerate(best):
            for rank, (path, probability) in enumerate(paths):
                each = None if nodes is None else nodes[np.arange(bounds[s], bounds[s + 1]), path].tolist()
                yield [labels[j] for j in path.tolist()], each, rank, probability


def _segmented(crf: Any, X: Any, probabilities: bool, k: int) -> Iterator[_Labelling]:
    """The same of segments; the probability of a token is that of its segment's label."""
    number = {str(label): j for j, label in enumerate(crf.model_.labels)}
    nodes = crf.predict_marginals(X) if probabilities else None
    best = crf.predict_nbest(X, k) if k > 1 else [[Tagging(labels, 0.0)] for labels in crf.predict(X)]
    for s, taggings in enumerate(best):
        for rank, (names, probability) in enumerate(taggings):
            tags = [str(name) for name in names]
            each = None
            if nodes is not None:
                columns = [number[tag] if tag in number else number[tag[2:]] for tag in tags]
                each = nodes[s][np.arange(len(tags)), columns].tolist()
            yield tags, each, rank, probability


def _with_labels(table: Columns | None, i: int, names: list[str], probabilities: list[float] | None) -> str:
    """The columns of sequence i, if there are any, and its labels."""
    labels = list(dict.fromkeys(names))
    path = np.array([labels.index(name) for name in names], np.int32)
    strings, ids = _core.StringTable(), np.empty((len(path), 0), np.uint32)
    if table is not None:
        strings, ids = table.strings, table.ids[table.offsets[i] : table.offsets[i + 1]]
    chances = None if probabilities is None else np.array(probabilities, np.float64)
    return _core.write_columns(strings, ids, np.array([0, len(path)]), path, labels, chances).decode()
