"""What a cluster learns from and labels: bags, data frames, delayed parts, pieces of files."""

from __future__ import annotations

import errno
import glob
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from dask import delayed
from dask.base import is_dask_collection
from dask.delayed import Delayed

from crfkit import _core
from crfkit.base.messages import counted
from crfkit.dask.encoding import BlockRange, Part
from crfkit.data.blocks import Blocks
from crfkit.data.readers import DataError, Labelled, feed, pieces, split_label
from crfkit.data.sequences import Columns
from crfkit.integrations.tables import from_lists, from_table

_PIECE = 1 << 26
_TOKENS = 2_000_000  # per partition of a block file


class Fields(NamedTuple):
    """Columns of a data frame: what is learned from, labels, numbers of the sequences."""

    columns: str | Sequence[str] | None
    label: str | None
    by: str | Sequence[str] | None


def _kind(data: Any) -> str:
    """How messages, and this file, call what a cluster is given."""
    if isinstance(data, (list, tuple)) and data and all(isinstance(x, Delayed) for x in data):
        return "delayed"
    if isinstance(data, Blocks) or (isinstance(data, list) and data and all(isinstance(x, Blocks) for x in data)):
        return "blocks"
    if not is_dask_collection(data):
        return ""
    return "frame" if hasattr(data, "columns") else "bag" if hasattr(data, "map_partitions") else ""


def stored(data: Any) -> list[Blocks]:
    """The block files among what a cluster is given."""
    return [] if _kind(data) != "blocks" else [data] if isinstance(data, Blocks) else list(data)


def is_lazy(data: Any) -> bool:
    """Whether data comes in partitions that Dask makes."""
    return _kind(data) not in ("", "blocks")


def require_columns(data: Any, fields: Fields, method: str) -> None:
    """Raises if a data frame lacks a column, before any partition is made."""
    if _kind(data) != "frame":
        return
    known = {*data.columns, data.index.name}
    columns = fields.columns or ("tokens" if fields.by is None else "token")
    for name, given in (("columns", columns), ("label", fields.label), ("by", fields.by)):
        for column in [given] if isinstance(given, str) else given or ():
            if column not in known:
                has = ", ".join(map(repr, data.columns))
                what = (
                    f"{name!r} of fit names {column!r}"
                    if method == "fit"
                    else f"{method} looks for {column!r}, as fit did"
                )
                if method != "fit" and name == "columns" and fields.columns is None:
                    what = f"{method} looks for {column!r}, since fit was given no other 'columns'"
                raise ValueError(f"{what}, but the frame has the columns {has}")
    if method == "fit" and fields.label is None:
        raise ValueError("'label' of fit must name the frame's column of labels, got None")


def parts_of(data: Any, y: Any, fields: Fields) -> list[Delayed]:
    """Labelled data as a list of delayed :class:`Part`."""
    kind = _kind(data)
    if kind == "blocks":
        if y is not None:
            raise ValueError("'y' of fit must be None: a block file holds the labels")
        return [delayed(Part)(x, None) for file in stored(data) for x in _ranges(file)]
    if kind == "frame":
        if y is not None:
            raise ValueError("'y' of fit must be None for a frame: 'label' names its column of labels")
        return [delayed(_frame_part)(x, fields) for x in data.to_delayed()]
    if kind == "":
        raise ValueError(
            "'data' of fit must be a dask bag, a dask data frame, a list of delayed parts, or crfkit.data.Blocks, "
            f"got {type(data).__name__}; crfkit.CRF takes what is in memory"
        )
    rows = data.to_delayed() if kind == "bag" else list(data)
    if y is None:
        return [delayed(_pairs_part if kind == "bag" else _labelled_part)(x) for x in rows]
    if _kind(y) != kind:
        raise ValueError(f"'y' of fit must be of the same kind as the data, got {type(y).__name__}")
    labels = y.to_delayed() if kind == "bag" else list(y)
    if len(labels) != len(rows):
        raise ValueError(f"there are {counted(len(rows), 'partition')} of sequences, but {len(labels)} of labels")
    return [delayed(Part)(a, b) for a, b in zip(rows, labels, strict=True)]


def _ranges(blocks: Blocks) -> Iterator[BlockRange]:
    """Blocks of about as many tokens; how many depends on the file alone."""
    n = blocks.dataset.n_blocks
    many = min(n, max(1, round(blocks.n_tokens / _TOKENS)))
    for first, last in itertools.pairwise(n * k // max(many, 1) for k in range(many + 1)):
        yield BlockRange(blocks.path, first, last)


def _pairs_part(rows: Any) -> Part:
    """A partition of a bag, whose elements are (sequence, labels), or these with a weight."""
    rows = list(rows)
    for i, row in enumerate(rows):
        if not isinstance(row, (tuple, list)) or len(row) not in (2, 3):
            kind = type(row).__name__
            raise ValueError(f"element {i} must be a sequence and its labels, or these and a weight, got {kind}")
    weights = [row[2] if len(row) == 3 else 1.0 for row in rows] if any(len(row) == 3 for row in rows) else None
    return Part([row[0] for row in rows], [row[1] for row in rows], weights)


def _labelled_part(given: Any) -> Part:
    """A delayed part: (X, y), or (X, y, weights)."""
    if isinstance(given, Part):
        return given
    if not isinstance(given, tuple) or len(given) not in (2, 3):
        kind = type(given).__name__
        raise ValueError(f"a delayed part must give X and y, or these and the sequences' weights, got {kind}")
    return Part(*given)


def _frame_part(frame: Any, fields: Fields) -> Part:
    """A partition of a data frame."""
    X, y = frame_sequences(frame, fields)
    if fields.by is None or not len(frame):
        return Part(X, y)
    frame = _with_index(frame, fields.by)
    names = [fields.by] if isinstance(fields.by, str) else list(fields.by)
    keys = frame[names]
    return Part(X, y, None, (tuple(keys.iloc[0]), tuple(keys.iloc[-1])))


def frame_sequences(frame: Any, fields: Fields) -> Labelled:
    """Sequences and labels of a pandas data frame."""
    if not len(frame):
        return Labelled([], [])
    if fields.by is None:
        columns = fields.columns or "tokens"
        for name in [columns] if isinstance(columns, str) else columns:
            if name in frame.columns and isinstance(frame[name].iloc[0], str):
                raise ValueError(
                    f"column {name!r} must hold lists, got text: give 'by' if a row is a token; if Dask made text of "
                    'lists, set dask.config.set({"dataframe.convert-string": False}) before the frame is made'
                )
        return from_lists(frame, columns, label=fields.label)
    return from_table(_with_index(frame, fields.by), fields.columns or "token", label=fields.label, by=fields.by)


def _with_index(frame: Any, by: str | Sequence[str]) -> Any:
    """The frame with its index among the columns, if ``by`` names it."""
    names = [by] if isinstance(by, str) else list(by)
    inside = any(name not in frame.columns and name in frame.index.names for name in names)
    return frame.reset_index() if inside else frame


class Piece(NamedTuple):
    """Bytes of a file from which, and up to which, sequences begin; None for the whole file."""

    path: str
    begin: int | None
    end: int


def read_columns(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    label: int | None = -1,
    columns: Sequence[int] | None = None,
    separator: str = "auto",
    comment: str = "",
    document: str = "-DOCSTART-",
    piece_size: int = _PIECE,
) -> list[Delayed]:
    """Column files as delayed partitions, which workers read: all of them must see the files.

    Large files are cut at blank lines. A compressed file is one partition.

    Parameters
    ----------
    paths : path, pattern such as ``"data/*.txt"``, or list of these
        The files, which every worker sees.
    label, columns, separator, comment, document
        As for :func:`crfkit.data.read_columns`.
    piece_size : int
        Bytes per partition.

    Returns
    -------
    list of Delayed
        Each gives what :func:`crfkit.data.read_columns` gives. For :meth:`CRF.fit`; errors name file and line.

    Examples
    --------
    >>> import tempfile, os
    >>> from crfkit.dask import read_columns
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "data.txt")
    ...     with open(path, "w") as file:
    ...         _ = file.write("two QTY\\n\\none QTY\\npear NAME\\n")
    ...     parts = read_columns(path, piece_size=8)
    ...     [list(part.compute().X) for part in parts]
    [[['two']], [['one', 'pear']]]
    """
    files: list[str] = []
    for given in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        found = sorted(glob.glob(os.fspath(given))) if glob.has_magic(os.fspath(given)) else [os.fspath(given)]
        if not found or not os.path.exists(found[0]):
            raise FileNotFoundError(errno.ENOENT, "no file matches", os.fspath(given))
        files += found
    if piece_size < 1:
        raise ValueError(f"'piece_size' of read_columns must be at least 1, got {piece_size!r}")
    how = (separator, comment, document)
    read = delayed(read_piece)
    return [read(piece, how, label, columns) for path in files for piece in cut_file(path, piece_size)]


def cut_file(path: str, size: int) -> Iterator[Piece]:
    """Pieces of a file; sequences are never cut."""
    total = os.path.getsize(path)
    with open(path, "rb") as file:
        packed = file.read(6).startswith((b"\x1f\x8b", b"\xfd7zXZ", b"BZh"))
        if packed or total <= size:
            yield Piece(path, None, total)
            return
        many = -(-total // size)
        starts = [0, *(_next_sequence(file, total * k // many) for k in range(1, many)), total]
    for begin, end in itertools.pairwise(starts):
        if end > begin:
            yield Piece(path, begin, end)


def _next_sequence(file: Any, at: int) -> int:
    """Where the text after the first blank line at or after a place begins."""
    file.seek(at)
    file.readline()
    while line := file.readline():
        if not line.strip(b" \t\r\n"):
            return int(file.tell())
    return int(file.tell())


def read_piece(piece: Piece, how: tuple[str, str, str], label: int | None, columns: Sequence[int] | None) -> Labelled:
    """The sequences of a piece of a column file."""
    try:
        table = piece_columns(piece, how)
    except OSError as e:
        raise DataError(f"{piece.path}: {e.strerror or e}: all workers must be able to read the file") from e
    if not len(table):
        return Labelled([], [])
    return split_label(table, label, columns, piece.path)


def piece_columns(piece: Piece, how: tuple[str, str, str]) -> Columns:
    """All columns of a piece."""
    separator, comment, document = how
    builder = _core.ColumnBuilder(separator, comment, document, False)
    for text, line in _texts(piece):
        try:
            feed(builder, text, line, piece.path)
        except DataError:
            if not piece.begin:
                raise
            with open(piece.path, "rb") as file:  # lines are counted only to be named
                before = file.read(piece.begin).count(b"\n")
            fresh = _core.ColumnBuilder(separator, comment, document, False)
            for again, at in _texts(piece):
                feed(fresh, again, at + before, piece.path)
            raise
    return Columns.from_builder(builder)


def _texts(piece: Piece) -> Iterator[tuple[bytes, int]]:
    """The text of a piece, some megabytes of whole lines at a time, each with the number of its first line in it."""
    if piece.begin is None:
        yield from pieces(piece.path)
        return
    line, left = 1, piece.end - piece.begin
    with open(piece.path, "rb") as file:
        file.seek(piece.begin)
        while left > 0:
            text = file.read(min(left, 1 << 22))
            if not text:
                raise DataError(f"{piece.path}: the file shrank while it was read")
            text += file.readline() if not text.endswith(b"\n") and len(text) < left else b""
            if piece.begin == 0 and line == 1:
                text = text.removeprefix(b"\xef\xbb\xbf")
            left -= len(text)
            yield text, line
            line += text.count(b"\n")


def map_parts(data: Any, function: Callable[..., Any], model: Any, fields: Fields, name: str) -> Any:
    """The results of ``function(model, sequences)`` for each partition, in the same kind of collection, lazily.

    The model is one task, which every worker gets once.
    """
    kind = _kind(data)
    held = delayed(model, name=f"crfkit-model-{name}")
    if kind == "delayed":
        return [delayed(_of_part)(function, held, x) for x in data]
    if kind == "bag":
        return data.map_partitions(_of_rows, function, held)
    return data.map_partitions(_of_frame, function, held, fields, meta=(name, object), enforce_metadata=False)


def _of_part(function: Callable[..., Any], model: Any, part: Any) -> Any:
    return function(model, part.X if isinstance(part, (Labelled, Part)) else part)


def _of_rows(rows: Any, function: Callable[..., Any], model: Any) -> Any:
    return function(model, list(rows))


def _of_frame(frame: Any, function: Callable[..., Any], model: Any, fields: Fields) -> Any:
    """A series with the index of the frame: of lists, or of one result for each token."""
    import pandas as pd

    found = function(model, frame_sequences(frame, fields._replace(label=None)).X) if len(frame) else []
    if fields.by is not None:
        found = [x for row in found for x in row]
    out = pd.Series([None] * len(frame), index=frame.index, dtype=object)
    for i, x in enumerate(found):
        out.iat[i] = x
    return out
