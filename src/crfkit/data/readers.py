"""Reading files: columns, CoNLL-U, CRFsuite's format; plain, gzip, xz, bzip2, or from a pipe."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.messages import FileError, counted
from crfkit.data.blocks import is_block_head
from crfkit.data.sequences import Columns, Items
from crfkit.data.tokens import tokenize

Source = str | os.PathLike[str] | IO[bytes]

_CHUNK = 1 << 22
_LONGEST = 1 << 24  # bytes of a line, which has to be in memory as a whole: a small compressed file may hold gigabytes
_MARK = b"\xef\xbb\xbf"  # of byte order
#: Openers of compressed files, by their first bytes.
_OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ": lzma.open, b"BZh": bz2.open}

#: Names of the columns of CoNLL-U, as :func:`read_conllu` takes them.
CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


class DataError(FileError):
    """An error in the data; the message begins with the file and line."""


class Labelled(NamedTuple):
    """Sequences and their labels.

    Attributes
    ----------
    X : Columns (or lists, of some corpora)
    y : Columns, or None
        One column: a label for every token.
    """

    X: Any
    y: Any


class Weighted(NamedTuple):
    """Items or columns, their labels, and the weights of the sequences (None if all are one)."""

    X: Any
    y: Any
    weights: NDArray[np.float64] | None


def source_name(source: Source) -> str:
    """The name of a source in messages."""
    if source == "-":
        return "<stdin>"
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    return str(getattr(source, "name", "<stream>"))


class EncodedPath(str):
    """A path, or ``"-"``, of text that is not in UTF-8."""

    encoding: str

    def __new__(cls, path: str, encoding: str) -> EncodedPath:
        """The path with its encoding."""
        self = super().__new__(cls, path)
        self.encoding = encoding
        return self


class _Recoded:
    """Bytes in UTF-8 of a file in another encoding."""

    def __init__(self, file: IO[bytes], path: EncodedPath) -> None:
        self._path = path
        self._text = io.TextIOWrapper(file, path.encoding, newline="")

    def read(self, size: int = -1) -> bytes:
        """As of a binary file."""
        try:
            return self._text.read(size).encode()
        except UnicodeError as e:
            raise DataError(f"{source_name(self._path)}: not valid {self._path.encoding}: {e}") from None


@contextmanager
def open_source(source: Source) -> Iterator[IO[bytes]]:
    """The bytes of a file (gz, xz, bz2 are detected), of standard input (``"-"``), or of an open file."""
    if not (source == "-" or isinstance(source, (str, os.PathLike))):
        if not hasattr(source, "read"):
            raise TypeError(f"a source must be a path, '-' or an open file, got {source!r}")
        yield source
        return
    with nullcontext(sys.stdin.buffer) if source == "-" else open(source, "rb") as file:
        head = file.peek(6)  # type: ignore[union-attr]
        for magic, opener in _OPENERS.items():
            if head.startswith(magic):
                with opener(file, "rb") as inner:
                    try:
                        yield _decoded(inner, source)
                    except (EOFError, OSError, lzma.LZMAError, zlib.error) as e:
                        if isinstance(e, OSError) and e.errno is not None:  # of the disk, not of what is on it
                            raise
                        raise DataError(f"{source_name(source)}: cannot read: {e}") from e
                return
        yield _decoded(file, source)


def _decoded(file: IO[bytes], source: Source) -> Any:
    return _Recoded(file, source) if isinstance(source, EncodedPath) else file


class TextPiece(NamedTuple):
    """Whole lines, and the number of the first."""

    data: bytes
    line: int


def read_chunks(
    source: Source, file: IO[bytes], size: int, *, with_mark: bool = False, longest: int = _LONGEST
) -> Iterator[TextPiece]:
    """Pieces of whole lines, each of about ``size`` bytes or one long line.

    A byte order mark is left out, unless ``with_mark``. A line that is longer than any text has is refused.
    """
    name = source_name(source)
    rest: list[bytes] = []
    line, held = 1, 0  # the first line of what is held, and its bytes
    first = not with_mark
    # a pipe must not hold back what it has said already
    read = getattr(file, "read1", file.read) if source == "-" else file.read
    while True:
        try:
            chunk: Any = read(size)
        except (EOFError, OSError, lzma.LZMAError, zlib.error) as e:
            raise DataError(f"{name}: cannot read: {e}") from e
        if isinstance(chunk, str):
            raise TypeError(f"{name}: open the file in binary mode")
        if first and chunk.startswith(_MARK):
            chunk = chunk[3:]
            if not chunk:
                continue
        if first and is_block_head(chunk):
            raise DataError(f"{name}: a block file, not text: give it by its name, and not compressed")
        first = False
        if not chunk:
            break
        end = chunk.rfind(b"\n") + 1
        if held + (chunk.find(b"\n") if end else len(chunk)) > longest:
            raise DataError(f"{name}:{line}: the line has more than {longest} bytes; break it into shorter ones")
        if end == 0:
            rest.append(chunk)
            held += len(chunk)
            continue
        piece = b"".join([*rest, chunk[:end]])
        yield TextPiece(piece, line)
        line += _n_lines(piece)
        rest, held = ([chunk[end:]] if end < len(chunk) else []), len(chunk) - end
    if rest:
        yield TextPiece(b"".join(rest), line)


def _n_lines(data: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord("\n")))  # ten times as fast as bytes.count


def pieces(source: Source) -> Iterator[TextPiece]:
    """Pieces of whole lines of some megabytes."""
    with open_source(source) as file:
        yield from read_chunks(source, file, _CHUNK)


def read_lines(source: Source) -> Iterator[bytes]:
    """The lines, each with its end."""
    for piece, _ in pieces(source):
        yield from io.BytesIO(piece)


def _last_blank(data: bytes) -> int:
    """Where the text after the last blank line begins; 0 if there is none."""
    end = len(data)
    while (at := data.rfind(b"\n", 0, end)) >= 0:
        before = data.rfind(b"\n", 0, at) + 1
        if not data[before:at].strip(b" \t\r"):
            return at + 1
        end = at
    return 0


def cut_text(source: Source, size: int) -> Iterator[TextPiece]:
    """Pieces of whole sequences; only a sequence that is larger makes one larger than ``size`` and a bit."""
    held: list[bytes] = []
    line = 1
    with open_source(source) as file:
        for chunk, _ in read_chunks(source, file, size):
            if (at := _last_blank(chunk)) == 0:
                held.append(chunk)
                continue
            data = b"".join([*held, chunk[:at]])
            held = [chunk[at:]] if at < len(chunk) else []
            if data:
                yield TextPiece(data, line)
                line += _n_lines(data)
    if held and (rest := b"".join(held)):
        yield TextPiece(rest, line)


def find_separator(data: bytes, comment: str) -> str:
    """The column separator, from the first line that has one; empty if there is none.

    >>> find_separator(b"two CD", "#")
    'blank'
    """
    mark = comment.encode()
    for line in data.split(b"\n"):
        if line.strip() and not (mark and line.startswith(mark)):
            return "tab" if b"\t" in line else "blank"
    return ""


def feed(builder: Any, piece: bytes, line: int, name: str) -> None:
    """Parses a piece of text that begins at this line of the file of this name."""
    fault = builder.parse(piece, line)
    if fault is not None:
        raise DataError(f"{name}:{fault[0]}: {fault[1]}")


def split_label(table: Columns, label: int | None, columns: Sequence[int] | None, name: str) -> Labelled:
    """Splits the columns of a file into input and labels; ``name`` is for messages."""
    n = table.n_columns
    there = "1 column" if n == 1 else f"{n} columns, 0 to {n - 1}"
    if label is not None and not -n <= label < n:
        raise DataError(f"{name}: there is no label column {label}: the file has {there}")
    for c in columns or ():
        if not -n <= c < n:
            raise DataError(f"{name}: there is no column {c}: the file has {there}")
        if label is not None and c % n == label % n:
            raise DataError(f"{name}: column {c} holds the labels, so it cannot be learned from too")
    if columns is None:
        columns = [c for c in range(n) if label is None or c != label % n]
    if not columns:
        lines = table.texts()[:100]
        mark = next((c for c in ";," if n == 1 and lines and all(c in line for line in lines)), None)
        hint = f": with {mark!r} in its lines it looks like a CSV file; read it in Python, as a table, and use "
        more = "" if mark is None else f"{hint}crfkit.integrations.from_table"
        raise DataError(f"{name}: besides the label there is no column to learn from{more}")
    y = None if label is None else table.select([label])
    return Labelled(table.select(columns), y)


def iter_columns(
    source: Source,
    *,
    separator: str = "auto",
    comment: str = "",
    document: str = "-DOCSTART-",
    conllu: bool = False,
) -> Iterator[Columns]:
    """Reads a column file piece by piece, a few megabytes at a time; sequences are never split.

    Takes the arguments of :func:`read_columns`, and yields all columns.

    Examples
    --------
    >>> from io import BytesIO
    >>> sum(len(part) for part in iter_columns(BytesIO(b"two CD\\ncups NN\\n\\nsalt NN\\n")))
    2
    """
    name = source_name(source)
    builder = _core.ColumnBuilder(separator, comment, document, conllu)
    for piece, line in pieces(source):
        feed(builder, piece, line, name)
        part = Columns.from_builder(builder, final=False)
        if len(part):
            yield part
    part = Columns.from_builder(builder)
    if len(part):
        yield part


#: How running text may be laid out, for :func:`iter_text`.
TEXT_FORMATS = ("text", "tokens", "columns", "conllu")


def iter_text(
    source: Source, format: str = "text", *, column: int | None = None, comment: str = ""
) -> Iterator[Columns]:
    """Reads the words of a text piece by piece, as :class:`Columns` with one column.

    ``format``: ``"text"`` is tokenized; ``"tokens"`` has one sentence per line, with blanks between its tokens;
    ``"columns"`` and ``"conllu"`` have one token per line, and one column is read: by default the first, or the form.

    >>> import io
    >>> [list(part) for part in iter_text(io.BytesIO(b"Salt it. Stir."))]
    [[['Salt', 'it', '.'], ['Stir', '.']]]
    """
    if format in ("columns", "conllu"):
        conllu = format == "conllu"
        how: dict[str, Any] = {"separator": "tab", "comment": "#", "document": ""} if conllu else {"comment": comment}
        wanted = column if column is not None else int(conllu)
        for part in iter_columns(source, conllu=conllu, **how):
            yield split_label(part, None, [wanted], source_name(source)).X
        return
    if format not in TEXT_FORMATS:
        raise ValueError(f"'format' must be one of {', '.join(map(repr, TEXT_FORMATS))}, got {format!r}")
    for piece, line in pieces(source):
        try:
            text = piece.decode()
        except UnicodeDecodeError as e:
            at = line + piece.count(b"\n", 0, e.start)
            raise DataError(f"{source_name(source)}:{at}: not valid UTF-8") from None
        if format == "text" and line == 1 and (fields := _looks_columned(text)):
            raise DataError(
                f"{source_name(source)}: not running text: every line has {counted(fields, 'field')}; "
                "the format is 'columns' or 'tokens'"
            )
        yield Columns.from_sequences(tokenize(text) if format == "text" else [row.split() for row in text.split("\n")])


def _looks_columned(text: str) -> int:
    """The number of fields per line, if there are many lines and it is the same in all; 0 for running text."""
    counts = {len(row.split()) for row in text.split("\n", 400)[:400] if row.strip()}
    return counts.pop() if len(counts) == 1 and text.count("\n", 0, 4000) > 20 else 0


def _read_all(source: Source, separator: str, comment: str, document: str, conllu: bool) -> Columns:
    name = source_name(source)
    builder = _core.ColumnBuilder(separator, comment, document, conllu)
    for piece, line in pieces(source):
        feed(builder, piece, line, name)
    table = Columns.from_builder(builder)
    if len(table) == 0:
        raise DataError(f"{name}: the file contains no sequences")
    return table


def read_columns(
    source: Source,
    *,
    label: int | None = -1,
    columns: Sequence[int] | None = None,
    separator: str = "auto",
    comment: str = "",
    document: str = "-DOCSTART-",
) -> Labelled:
    """Reads a column file: one token per line, a blank line between sequences.

    Parameters
    ----------
    source : path, "-" for standard input, or binary file
        Files compressed with gzip, xz or bzip2 are decompressed.
    label : int or None
        Column of the labels, the last by default; None if there are none.
    columns : sequence of int, optional
        Columns to keep besides the label; all by default. The label column cannot be among them.
    separator : {"auto", "tab", "blank"}
        ``"auto"`` splits at tabs if the first line has one, else at blanks.
    comment : str
        Lines that begin with this are skipped; empty for none.
    document : str
        Lines with this in the first column are skipped; they end a sequence.

    Returns
    -------
    Labelled
        ``X`` and ``y``.

    Raises
    ------
    DataError
        If a line has more or fewer columns than those before or is not UTF-8, if the file has no sequence, or if
        ``columns`` includes the label column. The message names the file, and the line where there is one.

    Examples
    --------
    >>> import io
    >>> X, y = read_columns(io.BytesIO(b"the DT O\\ndog NN B-X\\n\\nruns VB O\\n"))
    >>> X[0], y[0]
    ([('the', 'DT'), ('dog', 'NN')], ['O', 'B-X'])
    """
    table = _read_all(source, separator, comment, document, conllu=False)
    return split_label(table, label, columns, source_name(source))


def read_conllu(source: Source, *, columns: Sequence[str] = ("form",), label: str | None = "upos") -> Labelled:
    """Reads CoNLL-U; word ranges (``3-4``) and empty nodes (``5.1``) are skipped.

    Parameters
    ----------
    source : path, "-" for standard input, or binary file
        What to read; files may be compressed.
    columns : sequence of str
        Names from :data:`CONLLU_COLUMNS`, other than the label's.
    label : str or None
        A name, or several joined by ``+`` (``"upos+feats"``), whose values are joined by ``|``.

    Returns
    -------
    Labelled

    Examples
    --------
    >>> import io
    >>> row = "1\\tDogs\\tdog\\tNOUN\\tNNS\\tNumber=Plur\\t0\\troot\\t_\\t_\\n"
    >>> X, y = read_conllu(io.BytesIO(row.encode()), label="upos+feats")
    >>> X[0], y[0]
    (['Dogs'], ['NOUN|Number=Plur'])
    """
    _check_conllu(columns, label)
    return _split_conllu(_read_all(source, "tab", "#", "", conllu=True), columns, label, source_name(source))


def _check_conllu(columns: Sequence[str], label: str | None) -> None:
    """Raises if a column does not exist, or is the label's."""
    wanted = [] if label is None else label.split("+")
    for column in [*columns, *wanted]:
        if column not in CONLLU_COLUMNS:
            raise ValueError(f"CoNLL-U has no column {column!r}: it has {', '.join(CONLLU_COLUMNS)}")
    for column in columns:
        if column in wanted:
            raise ValueError(f"column {column!r} holds the labels, so it cannot be learned from too")


def _split_conllu(table: Columns, columns: Sequence[str], label: str | None, name: str) -> Labelled:
    wanted = [] if label is None else label.split("+")
    if table.n_columns != len(CONLLU_COLUMNS):
        raise DataError(f"{name}: CoNLL-U has 10 columns, the file has {table.n_columns}")
    X = table.select([CONLLU_COLUMNS.index(c) for c in columns])
    if not wanted:
        return Labelled(X, None)
    numbers = [CONLLU_COLUMNS.index(c) for c in wanted]
    if len(numbers) == 1:
        return Labelled(X, table.select(numbers))
    rows, inverse = np.unique(table.ids[:, numbers], axis=0, return_inverse=True)
    strings = _core.StringTable()
    joined = [strings.add("|".join(table.strings[int(i)] for i in row)) for row in rows]
    ids = np.array(joined, np.uint32)[inverse.reshape(-1)]
    return Labelled(X, Columns(strings, ids[:, np.newaxis], table.offsets))


def read_crfsuite(source: Source) -> Weighted:
    r"""Reads CRFsuite's format: ``label TAB attribute[:value] TAB ...``, a blank line between sequences.

    ``\:`` and ``\\`` in an attribute stand for a colon and a backslash. A line ``@weight:w`` sets the weight of the
    next sequence. Values must be from -1e10 to 1e10, weights from 0 to 1e10.

    Returns
    -------
    Weighted
        ``X`` (:class:`Items`), ``y`` and ``weights``, which is None if no sequence has one.

    Examples
    --------
    >>> import io
    >>> X, y, weights = read_crfsuite(io.BytesIO(b"@weight:2\nO\tw=the\tlen:3\n"))
    >>> X[0], y[0], weights
    ([{'w=the': 1.0, 'len': 3.0}], ['O'], array([2.]))
    """
    name = source_name(source)
    builder = _core.ItemBuilder()
    for piece, line in pieces(source):
        feed(builder, piece, line, name)
    names, offsets, ptr, attr, value, labels, label, weights = builder.take()
    if len(offsets) == 1:
        raise DataError(f"{name}: the file contains no sequences")
    y = Columns(labels, label[:, np.newaxis], offsets)
    return Weighted(Items(names, offsets, ptr, attr, value), y, None if (weights == 1).all() else weights)


class PieceReader:
    """Reads a labelled file piece by piece on several threads; formats as for :func:`read_columns` and the others.

    Parameters
    ----------
    source : path, "-" for standard input, or binary file
    format : {"columns", "conllu", "crfsuite"}
    label, columns
        As for the readers of the formats; ``label=None`` if there are none.
    comment, document : str
        As for :func:`read_columns`.

    Examples
    --------
    >>> import io
    >>> reader = PieceReader(io.BytesIO(b"the DT\\ndog NN\\n"), label=-1)
    >>> [(part.X[0], part.y[0]) for part in map(reader.parse, reader.pieces())]
    [(['the', 'dog'], ['DT', 'NN'])]
    """

    size = 1 << 20

    def __init__(
        self,
        source: Source,
        format: str = "columns",
        *,
        label: int | str | None = -1,
        columns: Sequence[Any] | None = None,
        comment: str = "",
        document: str = "-DOCSTART-",
    ) -> None:
        self.source, self.name, self.format = source, source_name(source), format
        self.label, self.columns = label, columns
        self.options = (comment, document)
        self._separator, self._n_columns = "", 0
        if format == "conllu":
            self.columns = columns or ("form",)
            _check_conllu(self.columns, None if label is None else str(label))

    def pieces(self) -> Iterator[TextPiece]:
        """The text, cut between sequences. The first piece must be parsed before the others: it shows the layout."""
        return cut_text(self.source, self.size)

    def parse(self, piece: TextPiece) -> Weighted:
        """Sequences, labels or None, and weights or None."""
        if self.format == "crfsuite":
            items = _core.ItemBuilder()
            feed(items, piece.data, piece.line, self.name)
            names, offsets, ptr, attr, value, labels, label, weights = items.take()
            y = None if self.label is None else Columns(labels, label[:, np.newaxis], offsets)
            return Weighted(Items(names, offsets, ptr, attr, value), y, None if (weights == 1).all() else weights)
        if self.format == "conllu":
            builder = _core.ColumnBuilder("tab", "#", "", True)
        else:
            self._separator = self._separator or find_separator(piece.data, self.options[0])
            builder = _core.ColumnBuilder(self._separator or "blank", *self.options, False, self._n_columns)
        feed(builder, piece.data, piece.line, self.name)
        table = Columns.from_builder(builder)
        if not len(table):
            return Weighted(table, None, None)
        self._n_columns = table.n_columns
        if self.format == "conllu":
            found = _split_conllu(table, self.columns or (), None if self.label is None else str(self.label), self.name)
        else:
            column = None if self.label is None else int(self.label)
            found = split_label(table, column, self.columns, self.name)
        return Weighted(found.X, found.y, None)
