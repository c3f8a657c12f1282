"""What the commands read and write: labelled files, the model's columns of a file, messages, records, output."""

from __future__ import annotations

import bz2
import codecs
import errno
import gzip
import io
import itertools
import json
import lzma
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from crfkit.base.files import check_writable, whole_file
from crfkit.base.messages import counted
from crfkit.cli.options import Format, OptionError, refuse_encoded
from crfkit.data import Blocks, Columns, DataError, Items, iter_columns, read_columns, read_conllu, read_crfsuite
from crfkit.data.blocks import is_block_file
from crfkit.data.dataset import NONE, LabelCountError
from crfkit.data.readers import CONLLU_COLUMNS, EncodedPath, Source, read_lines
from crfkit.estimators.chained import ChainEstimator
from crfkit.features.encoders import ItemEncoder
from crfkit.loading import load
from crfkit.model import ModelError
from crfkit.model.streaming import iter_items


def is_segments(crf: Any) -> bool:
    """Whether an estimator is a SegmentCRF, which is not imported for that."""
    return getattr(crf, "_kind", "") == "segment_crf"


def load_chain(path: Path, n_jobs: int | None = -1) -> Any:
    """The estimator in a model file, which must be a linear chain, or of segments."""
    found = load(path, n_jobs=n_jobs)
    if not isinstance(found, ChainEstimator) and not is_segments(found):
        raise ModelError(
            f"{path}: a {type(found).__name__}: the command line takes chains and segments only; use it from Python"
        )
    return found


@dataclass(frozen=True)
class Reading:
    """How data files are laid out."""

    format: Format = Format.columns
    label: str | None = None
    columns: str | None = None
    comment: str = ""
    n_columns: int | None = None  # of the training data, beside the label

    @classmethod
    def of_model(cls, crf: ChainEstimator, format: Format | None = None, **given: str | None) -> Reading:
        """As in training, unless something else is given; names of columns hold for one format only.

        A model trained in Python has no record of a file, but knows what its tokens are.
        """
        encoder = getattr(crf.model_.encoder, "inner", crf.model_.encoder)
        items = isinstance(encoder, ItemEncoder) and encoder.function is None
        known: dict[str, Any] = {
            "format": "crfsuite" if items else "columns",
            "n_columns": getattr(encoder, "n_columns", None),
        }
        known |= {k: v for k, v in crf.model_.info.get("reading", {}).items() if v is not None}
        trained = Format(known.pop("format"))
        try:
            cls(trained, **known).check()
        except ValueError as e:
            raise ModelError(f"the model is damaged: 'info.reading': {str(e).removeprefix('--')}") from None
        if format not in (None, trained):
            known = {"n_columns": known.get("n_columns")}
        return cls(format or trained, **known | {k: v for k, v in given.items() if v is not None})

    def of_data(self, X: Any, n_columns: int | None = None) -> dict[str, Any]:
        """How data was read, for the model, which may know the number of columns; a block file knows it all."""
        if isinstance(X, Blocks):
            return X.reading
        known = {"format": self.format.value, "label": self.label, "columns": self.columns}
        return {**known, "n_columns": n_columns or getattr(X, "n_columns", None)}

    def check(self) -> None:
        """Raises if a column has no such name."""
        chosen = [] if self.columns is None else [c.strip() for c in self.columns.split(",")]
        if self.format is Format.conllu:
            for option, names in (("--label", (self.label or "upos").split("+")), ("--columns", chosen)):
                for name in names:
                    if name not in CONLLU_COLUMNS:
                        several = "; several are joined by +, as in upos+feats" if "," in name else ""
                        raise OptionError(
                            f"{option}: CoNLL-U has no column {name!r}, it has {', '.join(CONLLU_COLUMNS)}{several}"
                        )
        elif self.format is Format.columns:
            column_number(self.label or "-1", "--label")
            column_numbers(chosen)


def encoded(path: str, encoding: str) -> str:
    """The path of a file in this encoding, for the readers."""
    try:
        known = codecs.lookup(encoding).name
    except LookupError:
        raise OptionError(f"--encoding: unknown encoding {encoding!r}") from None
    return path if known == "utf-8" else EncodedPath(path, known)


def require_file(path: str | None) -> None:
    """Raises if a file to be read is not there."""
    if path is not None and path != "-" and not Path(path).exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def check_output(option: str, target: Path | None, *sources: Any) -> None:
    """Raises before any work is done if a file cannot be written, or is one of those that are read."""
    if target is None:
        return
    if str(target) == "-":
        raise OptionError(f"{option} must be a file: - stands for standard input")
    try:
        check_writable(target)
    except OSError as e:
        raise OptionError(f"{option}: {e.strerror}: {e.filename}") from None
    for path in sources:
        if path is not None and target.is_file() and Path(path).exists() and target.samefile(path):
            raise OptionError(f"{option}: {target} would overwrite one of its input files")


def leave_pipes() -> None:
    """Lets what is still written to a pipe that nobody reads go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextmanager
def busy(what: str, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Says on a terminal what is being done, and for how long, if it takes more than two seconds.

    Gives a function that takes how far it has come. Outside a terminal it prints a line now and then.
    """
    done = threading.Event()
    began = last = time.monotonic()
    far = ""
    live = sys.stderr.isatty() and not quiet

    def tell(how_far: str) -> None:
        nonlocal far, last
        far = f" {how_far},"
        if not live and not quiet and time.monotonic() - last > 10:
            last = time.monotonic()
            say(f"{what} ...{far} {last - began:.0f}s")

    def watch() -> None:
        while not done.wait(1 if time.monotonic() - began > 1.5 else 2):
            line = f"{what} ...{far} {time.monotonic() - began:.0f}s"
            print(f"\r\x1b[2K{line}", end="", file=sys.stderr, flush=True)

    watcher = threading.Thread(target=watch, daemon=True)
    if live:
        watcher.start()
    try:
        yield tell
    finally:
        done.set()
        if live:
            watcher.join()
            if time.monotonic() - began > 2:
                print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def say(text: str) -> None:
    """A line on standard error."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def warnings_said(quiet: bool = False) -> Iterator[None]:
    """Warnings become lines on standard error, those of a place once; none if quiet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if quiet else "default")
        warnings.showwarning = lambda message, *_, **__: say(f"crfkit: warning: {in_flags(str(message))}")
        yield


def in_flags(text: str) -> str:
    """A warning of training, with options in place of parameters."""
    return text.replace("'max_iter'", "--max-iter").replace("'tol'", "--tol")


def emit(record: dict[str, Any]) -> None:
    """A JSON object on a line of standard output."""
    print(json.dumps(_finite(record), ensure_ascii=False, allow_nan=False), flush=True)


def _finite(x: Any) -> Any:
    """The same with null for numbers that JSON has not, such as the gradient of an optimiser that computes none."""
    if isinstance(x, dict):
        return {key: _finite(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [_finite(value) for value in x]
    return None if isinstance(x, float) and not np.isfinite(x) else x


def check_stored(path: str, given: dict[str, str], crf: Any) -> None:
    """Raises if a model cannot label a block file, or options are given that are for text."""
    refuse_encoded(given, path)
    if is_segments(crf):
        raise DataError(f"{path}: a model of segments needs text, and this is a block file")


def read_data(path: str, how: Reading) -> tuple[Any, Any, Any]:
    """X, y and weights of a labelled file, or of a block file, which holds the others itself."""
    return (Blocks(path), None, None) if is_block_file(path) else read_labelled(path, how)


def read_labelled(path: str, how: Reading) -> tuple[Any, Any, Any]:
    """X, y and weights of a labelled file."""
    if how.format is Format.crfsuite:
        return tuple(read_crfsuite(path))
    chosen = None if how.columns is None else [c.strip() for c in how.columns.split(",")]
    if how.format is Format.conllu:
        data = read_conllu(path, label=how.label or "upos", columns=chosen or ("form",))
        return data.X, data.y, None
    number = column_number(how.label or "-1", "--label")
    try:
        found = read_columns(path, label=number, columns=column_numbers(chosen), comment=how.comment)
    except DataError as e:
        if path == "-" or not _is_ragged(path):
            raise
        raise DataError(f"{e} (if this is CRFsuite's format, add -f crfsuite)") from None
    return *found, None


@contextmanager
def naming_data(path: str) -> Iterator[None]:
    """Says in which file there are too many labels."""
    try:
        yield
    except LabelCountError as e:
        raise DataError(f"{path}: {e}") from None


def mark_unknown(y: Any, unknown: str | None, quiet: bool = False) -> Any:
    """Labels of a file, None in place of ``unknown``; warns of a label that looks like one that is not known."""
    if unknown is not None:
        return [[None if name == unknown else name for name in row] for row in y]
    n = int((y.ids == y.strings.find("?")).sum()) if isinstance(y, Columns) and not quiet else 0
    if n:
        say(
            f"crfkit: warning: {counted(n, 'token')} with the label '?', learned as a label; did you mean --unknown '?'"
        )
    return y


def _is_ragged(path: str) -> bool:
    """Whether lines have different numbers of cells between tabs, as items of CRFsuite have."""
    tabs = {line.count(b"\t") for line in itertools.islice(read_lines(path), 10_000) if line.strip()}
    return len(tabs) > 1 and 0 not in tabs


def read_unlabelled(path: str, how: Reading, like: Any) -> Any:
    """Sequences without labels; a column file may have the label column, which is not looked at."""
    if how.format is Format.columns and how.columns is None:
        table, _ = read_columns(path, label=None, comment=how.comment)
        if table.n_columns == like.n_columns:
            return table
        if table.n_columns < like.n_columns:
            n = like.n_columns
            raise DataError(
                f"{path} has {counted(table.n_columns, 'column')}, the labelled data has {n} besides the label"
            )
    return read_labelled(path, how)[0]


def column_number(text: str, option: str) -> int:
    """The number that an option gives."""
    try:
        return int(text)
    except ValueError:
        raise OptionError(f"{option} of a column file must be a number, got {text!r}") from None


def column_numbers(texts: list[str] | None) -> list[int] | None:
    """The numbers of ``--columns``."""
    return None if texts is None else [column_number(t, "--columns") for t in texts]


def model_columns(table: Columns, how: Reading) -> Columns:
    """The columns that the model was trained on, out of all that a file has."""
    n = how.n_columns
    if how.columns is not None and how.format is Format.columns:
        return table.select(column_numbers(how.columns.split(",")) or [])
    if n is None or table.n_columns == n:
        return table
    if table.n_columns == n + 1:  # a column of labels, as in training
        gold = int(how.label or -1) % table.n_columns
        return table.select([c for c in range(table.n_columns) if c != gold])
    raise DataError(f"the model was trained on {counted(n, 'column')} (and a label), the file has {table.n_columns}")


def read_pieces(data: Source, how: Reading) -> Iterator[tuple[Any, Any]]:
    """All columns of the input, and those for the model, piece by piece."""
    if isinstance(data, str) and is_block_file(data):
        yield None, Blocks(data)
    elif how.format is Format.crfsuite:
        for X in iter_items(data):
            yield None, X
    elif how.format is Format.conllu:
        names = (how.columns or "form").split(",")
        for table in iter_columns(data, separator="tab", comment="#", document="", conllu=True):
            yield table, table.select([CONLLU_COLUMNS.index(name) for name in names])
    else:
        for table in iter_columns(data, comment=how.comment):
            yield table, model_columns(table, how)


def knows_some(crf: Any, X: Any) -> bool:
    """Whether a model knows any attribute of items; always True of anything else."""
    return not isinstance(X, Items) or bool((crf.model_.encoder.encode(X, False, 1).attr != NONE).any())


def warn_unknown(data: str) -> None:
    """Says that a model knows no attribute of the data."""
    say(
        f"crfkit: warning: {data}: the model knows no attribute of the data, so that labels depend on transitions "
        "alone. It was trained on attributes and expects them in CRFsuite's format (-f crfsuite: on each line a label "
        "and attributes, separated by tabs). To label columns with it, use Python: crfkit.load(path, features=...)"
    )


def file_size(path: Path) -> str:
    """How large a file is, in words."""
    return size_in_words(path.stat().st_size)


def size_in_words(size: int) -> str:
    """Bytes in words."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"


@contextmanager
def output_file(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears only when it is whole; .gz, .bz2 and .xz are compressed."""
    if path is None:
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        sys.stdout.flush()
        yield sys.stdout
        sys.stdout.flush()
        return
    with whole_file(path, "wb") as raw, _compressed(raw, path.suffix) as packed:
        file = io.TextIOWrapper(packed, "utf-8", newline="")
        yield file
        file.detach()  # written out, but not closed: that is for whoever opened it


def _compressed(raw: Any, suffix: str) -> Any:
    """A file that compresses as the end of the name says, or the same."""
    if suffix == ".gz":
        return gzip.GzipFile("", "wb", fileobj=raw, mtime=0)
    if suffix == ".bz2":
        return bz2.BZ2File(raw, "wb")
    return lzma.LZMAFile(raw, "wb") if suffix == ".xz" else nullcontext(raw)
