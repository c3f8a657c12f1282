"""Word vectors from files of word2vec, fastText and GloVe."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit import _core
from crfkit.base.messages import counted, warn
from crfkit.base.parameters import check_text
from crfkit.data.readers import DataError, feed, open_source, pieces, source_name
from crfkit.data.tokens import lower_case
from crfkit.features.classes import WordClasses, classes_of_vectors
from crfkit.features.lexicon import Part, table_arrays

FORMATS = ("auto", "text", "binary")
_HEADER = re.compile(rb"[ \t]*(\d{1,12})[ \t]+(\d{1,6})[ \t]*\r?\n")
_FASTTEXT = b"\xba\x16\x4f\x2f"  # the first bytes of its models
_HEAD = 1 << 20  # bytes that the format is told from
_CHUNK = 1 << 22


class WordVectors:
    """Words and their vectors, from the files of other tools.

    A word is looked up as written, then in lower case if it is not found.

    Parameters
    ----------
    words : iterable of str
        The words.
    values : float array [words, numbers]
        A row for each word.

    Attributes
    ----------
    words : list of str
    values : float32 array [words, numbers]

    Examples
    --------
    >>> from crfkit import TokenFeatures
    >>> vectors = WordVectors(["cup", "salt"], [[0.5, -1.0], [0.25, 2.0]])
    >>> vectors.values.shape, vectors["Salt"].tolist()
    ((2, 2), [0.25, 2.0])
    >>> features = TokenFeatures(vectors=vectors)
    """

    def __init__(self, words: Iterable[str], values: ArrayLike) -> None:
        table = _core.StringTable()
        count = 0
        for word in words:
            if not isinstance(word, str):
                raise ValueError(f"'words' of WordVectors must be strings, got {word!r}")
            check_text(word, "a word of WordVectors")
            if table.add(word) < count:
                raise ValueError(f"'words' of WordVectors must be distinct, got {word!r} twice")
            count += 1
        if not count:
            raise ValueError("'words' of WordVectors must not be empty")
        with np.errstate(over="ignore"):
            found = np.ascontiguousarray(values, np.float32)
        if not np.isfinite(found).all():
            raise ValueError("'values' of WordVectors must be finite in single precision")
        if found.ndim != 2 or found.shape[0] != count or not found.shape[1]:
            shape = f"[{count}, numbers]"
            raise ValueError(f"'values' of WordVectors must have the shape {shape}, got {list(found.shape)}")
        self._keep(table, found)

    def _keep(self, table: _core.StringTable, values: NDArray[np.float32]) -> None:
        self._table, self.values = table, values
        self.values.flags.writeable = False

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, limit: int | None = None, format: str = "auto") -> Self:
        """Vectors from a file, which may be compressed (.gz, .xz, .bz2).

        Text has a word and its numbers on each line, separated by blanks (GloVe), and may have the number of words and
        the length of the vectors on the first line (word2vec, fastText's ``.vec``). Binary files are word2vec's.

        Parameters
        ----------
        path : path
            The file, which may be compressed.
        limit : int, optional
            Maximum number of words to read, from the beginning; most files have the most frequent words first.
        format : {"auto", "text", "binary"}
            ``"auto"`` looks at the file.

        Raises
        ------
        DataError
            If the file has another format, or not as many words as its first line announces; the message gives the file
            and the line or word.

        Warns
        -----
        UserWarning
            If words are left out because they are not valid UTF-8.
        """
        if format not in FORMATS:
            raise ValueError(f"'format' must be one of {', '.join(FORMATS)}, got {format!r}")
        if limit is not None and (type(limit) is not int or limit < 1):
            raise ValueError(f"'limit' must be an int >= 1 or None, got {limit!r}")
        name = source_name(path)
        with open_source(path) as file:
            head = file.read(_HEAD).removeprefix(b"\xef\xbb\xbf")
        if head.startswith(_FASTTEXT):
            raise DataError(f"{name}: this is a model of fastText (.bin), which is not read: give its .vec file")
        header = _HEADER.match(head)
        promised = int(header[1]) if header else None
        if format == "auto":
            format = "binary" if header and not _is_text(head[header.end() :], int(header[2])) else "text"
        if format == "binary" and header is None:
            raise DataError(f"{name}: a binary file of vectors begins with the number of words and their length")
        try:
            reader = _core.VectorReader(int(header[2]) if header else 0)
            if header and not int(header[2]):
                raise ValueError("a vector has at least one number, got 0")
        except ValueError as e:
            raise DataError(f"{name}:1: {e}") from None
        (_read_binary if format == "binary" else _read_text)(path, reader, header.end() if header else 0, limit)
        if promised is not None and (reader.seen > promised or reader.seen < min(promised, limit or promised)):
            words = counted(promised, "word")
            raise DataError(f"{name}: the first line announces {words}, but the file has {reader.seen}")
        if reader.invalid:
            many = f"{counted(reader.invalid, 'word')} left out, not valid UTF-8"
            warn(f"{name}: {many}; the first is word {reader.first_invalid}", UserWarning, stacklevel=2)
        table, values = reader.take()
        if not len(table):
            raise DataError(f"{name}: the file holds no vectors")
        out = cls.__new__(cls)
        found = values.reshape(len(table), reader.n)
        if limit is not None and limit < len(table):
            table, found = table.pruned((np.arange(len(table)) < limit).astype(np.uint8)), found[:limit].copy()
        out._keep(table, found)
        return out

    @cached_property
    def words(self) -> list[str]:
        """The words, in the order of the values."""
        return self._table.tolist()

    def classes(self, n_classes: int = 500, *, random_state: int | None = None, n_jobs: int | None = -1) -> WordClasses:
        """Classes of words whose vectors point the same way: k-means, then Ward's tree of the clusters.

        If all words are in lower case, words are looked up in lower case.

        Parameters
        ----------
        n_classes : int
            Number of classes.
        random_state : int, optional
            Seed.
        n_jobs : int, optional
            Threads; -1 or None for all cores.

        Examples
        --------
        >>> vectors = WordVectors(["cup", "spoon", "salt"], [[1, 0], [2, 0.1], [0, 1]])
        >>> classes = vectors.classes(2)
        >>> classes["cup"] == classes["spoon"] != classes["Salt"]
        True
        """
        return classes_of_vectors(self.words, self.values, n_classes, random_state, n_jobs)

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, word: str) -> NDArray[np.float32]:
        if (place := self._find(word)) < 0:
            raise KeyError(word)
        found: NDArray[np.float32] = self.values[place]
        return found

    def __contains__(self, word: object) -> bool:
        return self._find(word) >= 0

    def _find(self, word: object) -> int:
        """The number of a word as written, or else of its lower case; -1 if there is none."""
        if not isinstance(word, str):
            return -1
        place = self._table.find(word)
        return place if place >= 0 else self._table.find(lower_case(word))

    def __repr__(self) -> str:
        return f"<WordVectors: {len(self)} words, {self.values.shape[1]} numbers each>"

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # it never changes

    def __reduce__(self) -> tuple[Any, ...]:
        return WordVectors, (self.words, self.values)

    @cached_property
    def part(self) -> Part:
        """As encoders look at it: all numbers divided by their root mean square."""
        spread = float(np.sqrt(np.mean(np.square(self.values, dtype=np.float64)))) or 1.0
        values = self.values / np.float32(spread)
        native = _core.VectorTable(self._table, "either", values)
        return Part("either", {**table_arrays(self._table), "values": values}, native)


def _is_text(head: bytes, n: int) -> bool:
    """Whether what follows the first line of a file is a word and numbers, ``n`` if all is right."""
    line = head.partition(b"\n")[0].split()
    numbers = line[-n:] if len(line) > n else line[1:]  # as many as the first line says, or another number of them
    try:
        return bool(numbers) and all(float(x) is not None for x in numbers)
    except ValueError:
        return False


def _read_text(path: str | os.PathLike[str], reader: _core.VectorReader, skip: int, limit: int | None) -> None:
    for piece, line in pieces(path):
        text = piece[skip:] if line == 1 else piece
        feed(reader, text, line + (line == 1 and skip > 0), source_name(path))
        if limit is not None and reader.seen >= limit:
            return


def _read_binary(path: str | os.PathLike[str], reader: _core.VectorReader, skip: int, limit: int | None) -> None:
    with open_source(path) as file:
        file.read(skip)
        rest = b""
        while chunk := file.read(_CHUNK):
            rest += chunk
            try:
                rest = rest[reader.parse_binary(rest) :]
            except ValueError as e:
                raise DataError(f"{source_name(path)}: {e}") from None
            if limit is not None and reader.seen >= limit:
                return
    if rest.strip(b"\n"):
        raise DataError(f"{source_name(path)}: it is cut short within word {reader.seen + 1}")
