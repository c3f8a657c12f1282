"""Sequences as numbered strings: what the readers return and the encoders take."""

from __future__ import annotations

import itertools
import reprlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.messages import counted
from crfkit.base.shown import html_table

Ints = NDArray[np.int64]
Ids = NDArray[np.uint32]
T = TypeVar("T")


def rows_of(offsets: Ints, sequences: Ints) -> tuple[Ints, Ints]:
    """Tokens of the given sequences, and the offsets of those sequences by themselves; for any ragged table.

    >>> rows_of(np.array([0, 2, 3, 6]), np.array([2, 0]))
    (array([3, 4, 5, 0, 1]), array([0, 3, 5]))
    """
    lengths = offsets[sequences + 1] - offsets[sequences]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.arange(starts[-1]) + np.repeat(offsets[sequences] - starts[:-1], lengths)
    return tokens, starts


def joined_offsets(parts: Sequence[Ints]) -> Ints:
    """Offsets of ragged tables one after another."""
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(x) for x in parts]))]).astype(np.int64)


def _sequence_numbers(n: int, key: Any) -> Ints:
    if isinstance(key, slice):
        return np.arange(n)[key]
    numbers = np.asarray(key)
    if numbers.dtype == bool:
        if numbers.shape != (n,):
            raise IndexError(f"a mask over {n} sequences must have shape ({n},), got {numbers.shape}")
        return np.flatnonzero(numbers)
    numbers = numbers.astype(np.int64)
    if numbers.size and (numbers.min() < -n or numbers.max() >= n):
        raise IndexError(f"sequence numbers must lie between 0 and {n - 1}")
    return numbers % max(n, 1)


def _is_series(x: Any, text: bool = False) -> bool:
    """Whether something is a sequence of things; a str is one only if ``text``."""
    if isinstance(x, (bytes, Mapping)) or (isinstance(x, str) and not text):
        return False
    try:
        iter(x)
    except TypeError:
        return False
    return True


def _shown(x: Any) -> str:
    hint = ": split text into tokens (crfkit.data.tokenize)" if isinstance(x, str) else ""
    return f"{type(x).__name__} {reprlib.repr(x)}{hint}"


def check_sequence(x: Any, name: str, text: bool = False) -> None:
    """Raises unless ``x`` is a sequence of tokens; with ``text``, a str is one, of characters."""
    if not _is_series(x, text):
        raise ValueError(f"{name} must be a list of tokens, got {_shown(x)}")


#: How hmmlearn's one array of all tokens becomes sequences.
CUT = "np.split(X.ravel(), np.cumsum(lengths)[:-1])"


def _check_array(X: Any) -> None:
    """Raises if an array of ints holds the tokens of all sequences one after another, as hmmlearn's do."""
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "iu" or not X.size:
        return
    if X.ndim == 1 or (X.shape[1:] == (1,) and len(X) > 1):
        raise ValueError(f"an array of shape {X.shape} must be cut into sequences: {CUT}, or [X.ravel()] if it is one")


def check_sequences(X: Any, text: bool = False) -> Any:
    """Returns X, as a list, or as an iterator if it is one; raises unless it holds sequences of tokens.

    All estimators and all their methods use this check. The tokens themselves are checked when they are read.

    >>> check_sequences([["two", "cups"], 7])
    Traceback (most recent call last):
    ValueError: sequence 1 must be a list of tokens, got int 7
    """
    if isinstance(X, _Ragged):
        return X
    if not _is_series(X):
        stored = "; block files are for CRF and MEMM" if type(X).__name__ == "Blocks" else ""
        raise ValueError(f"'X' must be a list of sequences, got {_shown(X)}{stored}")
    _check_array(X)

    def each() -> Iterator[Any]:
        for i, x in enumerate(X):
            if (isinstance(x, str) and not text) or (i == 0 and isinstance(x, (int, np.integer))):
                raise ValueError(
                    f"sequence {i} must be a list of tokens, got {_shown(x)}; give one sequence as [tokens]"
                )
            check_sequence(x, f"sequence {i}", text)
            yield x

    if isinstance(X, Iterator):
        return each()
    checked = list(each())
    return X if isinstance(X, (list, tuple)) else checked


class _Ragged(Sequence[Any]):
    """Ragged sequences of tokens, as a list of sequences; slices and index arrays give the same type."""

    offsets: Ints

    @property
    def lengths(self) -> Ints:
        """Tokens of each sequence, [S]."""
        return np.diff(self.offsets)

    @abstractmethod
    def _sequence(self, first: int, last: int) -> list[Any]:
        """The tokens from ``first`` to ``last - 1``."""

    @abstractmethod
    def _take(self, tokens: Ints, offsets: Ints) -> Self:
        """Some of the tokens, with offsets of their own."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, key: int) -> list[Any]: ...
    @overload
    def __getitem__(self, key: slice | NDArray[np.int64]) -> Self: ...
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, (int, np.integer)):
            if not -len(self) <= key < len(self):
                raise IndexError(f"there is no sequence {key}: there are {len(self)}")
            key = int(key) % len(self)
            return self._sequence(int(self.offsets[key]), int(self.offsets[key + 1]))
        return self._take(*rows_of(self.offsets, _sequence_numbers(len(self), key)))

    def _repr_html_(self) -> str:
        """The first tokens of the first sequences."""
        rows = []
        for i in range(min(len(self), 5)):
            tokens = [x if isinstance(x, str) else "/".join(x) for x in self[i][:12]]
            rows.append((str(i), "  ".join(tokens) + (" ..." if self.lengths[i] > 12 else "")))
        return html_table(repr(self).strip("<>"), rows)

    def __iter__(self) -> Iterator[list[Any]]:
        return (self[i] for i in range(len(self)))


def holds_integers(sequences: Any) -> bool:
    """Whether tokens are ints, Python's or numpy's; judged by the first token.

    >>> holds_integers([[], [3, 1]]), holds_integers([["a"]])
    (True, False)
    """
    if isinstance(sequences, (_Ragged, Iterator)) or not _is_series(sequences):
        return False
    for sequence in sequences:
        if isinstance(sequence, (str, dict)) or not isinstance(sequence, Iterable):
            return False
        for token in sequence:
            return isinstance(token, (int, np.integer)) and not isinstance(token, bool)
    return False


class Columns(_Ragged):
    """Ragged sequences of tokens, where every token is a row of strings; each distinct string is stored once.

    Behaves as a list of sequences: with one column a sequence is a list of strings, with more a list of tuples.
    Slices and index arrays give ``Columns`` again.

    Parameters
    ----------
    strings : native string table
        The distinct strings.
    ids : uint32 array [N, C]
        Numbers of the strings.
    offsets : int64 array [S + 1]
        First token of each sequence, and N.

    Examples
    --------
    >>> x = Columns.from_sequences([[("the", "DT"), ("dog", "NN")], [("runs", "VB")]])
    >>> len(x), x[1], x.select([0])[0]
    (2, [('runs', 'VB')], ['the', 'dog'])
    """

    def __init__(self, strings: _core.StringTable, ids: Ids, offsets: Ints) -> None:
        self.strings = strings
        self.ids = np.ascontiguousarray(ids, np.uint32)
        self.offsets = np.ascontiguousarray(offsets, np.int64)
        self._texts: list[str] | None = None

    @classmethod
    def from_sequences(cls, sequences: Iterable[Iterable[Any]]) -> Columns:
        """Columns from Python sequences, whose tokens are strings, tuples of strings, or ints, which become digits."""
        if isinstance(sequences, Iterator):
            sequences = list(sequences)
        _check_array(sequences)
        if holds_integers(sequences):
            return cls._from_integers(sequences)
        builder = _core.ColumnBuilder("blank", "", "", False)
        builder.read_rows(sequences)
        return cls.from_builder(builder)

    @classmethod
    def _from_integers(cls, sequences: Iterable[Any]) -> Columns:
        arrays = [np.asarray(x) for x in sequences]
        for i, x in enumerate(arrays):
            if x.ndim != 1 or (len(x) and x.dtype.kind not in "iu"):
                raise ValueError(f"sequence {i}: all tokens must be ints, as the first one is")
        flat = np.concatenate(arrays, dtype=np.int64, casting="unsafe")  # empty ones are of floats
        values, ids = np.unique(flat, return_inverse=True)
        table = cls.from_sequences([[str(v) for v in values.tolist()]])
        offsets = np.concatenate([[0], np.cumsum([len(x) for x in arrays])])
        return cls(table.strings, table.ids[ids.reshape(-1)], offsets)

    @classmethod
    def from_builder(cls, builder: _core.ColumnBuilder, final: bool = True) -> Columns:
        """What a native builder has collected."""
        strings, ids, offsets, n = builder.take(final)
        return cls(strings, ids.reshape(-1, max(n, 1)), offsets)

    @classmethod
    def concatenate(cls, parts: Sequence[Columns]) -> Columns:
        """The sequences of several, one after another.

        >>> Columns.concatenate([Columns.from_sequences([["a"]]), Columns.from_sequences([["b", "a"]])])[1]
        ['b', 'a']
        """
        n = {part.n_columns for part in parts}
        if len(n) != 1:
            raise ValueError(f"all parts must have the same number of columns, got {sorted(n)}")
        strings = parts[0].strings.copy()
        ids = [strings.translate(part.strings, True)[part.ids] for part in parts]
        return cls(strings, np.concatenate(ids), joined_offsets([part.offsets for part in parts]))

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return int(self.ids.shape[1])

    def texts(self) -> list[str]:
        """The distinct strings."""
        if self._texts is None:
            self._texts = self.strings.tolist()
        return self._texts

    def select(self, columns: Sequence[int]) -> Columns:
        """The same sequences with some of the columns."""
        for c in columns:
            if not -self.n_columns <= c < self.n_columns:
                raise ValueError(f"there is no column {c}: the data has columns 0 to {self.n_columns - 1}")
        out = Columns(self.strings, self.ids[:, list(columns)], self.offsets)
        out._texts = self._texts
        return out

    def map_column(self, column: int, function: Callable[[str], T]) -> list[list[T]]:
        """``function`` of every string of a column, called once per distinct string."""
        ids = self.ids[:, column]
        known = {int(i): function(self.strings[int(i)]) for i in np.unique(ids)}
        flat = [known[i] for i in ids.tolist()]
        bounds = self.offsets.tolist()
        return [flat[a:b] for a, b in itertools.pairwise(bounds)]

    def _sequence(self, first: int, last: int) -> list[Any]:
        text = self.texts()
        rows = self.ids[first:last].tolist()
        if self.n_columns == 1:
            return [text[row[0]] for row in rows]
        return [tuple(text[i] for i in row) for row in rows]

    def _take(self, tokens: Ints, offsets: Ints) -> Columns:
        out = Columns(self.strings, self.ids[tokens], offsets)
        out._texts = self._texts
        return out

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        sizes = {"sequence": len(self), "token": len(self.ids), "column": self.n_columns}
        return "<Columns: " + ", ".join(counted(n, noun, ",") for noun, n in sizes.items()) + ">"

    def __reduce__(self) -> Any:
        return _columns_from_arrays, (*self.strings.arrays(), self.ids, self.offsets)


def _columns_from_arrays(text: NDArray[np.uint8], ends: NDArray[np.uint64], ids: Ids, offsets: Ints) -> Columns:
    return Columns(_core.StringTable.from_arrays(text, ends), ids, offsets)


class Items(_Ragged):
    """Ragged sequences of tokens, where every token is a bag of named attributes with values.

    Behaves as a list of sequences of dicts ``{attribute: value}``.

    Examples
    --------
    >>> x = Items.from_sequences([[{"word": "the", "long": False, "len": 3}, ["a", "b"]]])
    >>> x[0]
    [{'word:the': 1.0, 'len': 3.0}, {'a': 1.0, 'b': 1.0}]
    """

    def __init__(
        self,
        names: _core.StringTable,
        offsets: Ints,
        ptr: Ints,
        attr: Ids,
        value: NDArray[np.float64] | None = None,
    ) -> None:
        self.names = names
        self.offsets = offsets
        self.ptr = ptr
        self.attr = attr
        self.value = value

    @classmethod
    def from_sequences(cls, sequences: Iterable[Iterable[Any]], keep_zeros: bool = False) -> Items:
        """Items from Python sequences, whose tokens are dicts, lists or sets as python-crfsuite takes them.

        Attributes of value zero are left out, unless ``keep_zeros``: CRFsuite counts them as seen with their labels.
        Values must be from -1e10 to 1e10, so that training stays finite in single precision.
        """
        builder = _core.ItemBuilder(keep_zeros)
        builder.read_items(sequences if isinstance(sequences, (list, tuple)) else list(sequences))
        names, offsets, ptr, attr, value, *_ = builder.take()
        return cls(names, offsets, ptr, attr, value)

    @classmethod
    def concatenate(cls, parts: Sequence[Items]) -> Items:
        """The sequences of several, one after another."""
        names = parts[0].names.copy()
        attr = np.concatenate([names.translate(part.names, True)[part.attr] for part in parts])
        value = None
        if any(part.value is not None for part in parts):
            value = np.concatenate([np.ones(len(p.attr)) if p.value is None else p.value for p in parts])
        offsets = joined_offsets([part.offsets for part in parts])
        return cls(names, offsets, joined_offsets([part.ptr for part in parts]), attr, value)

    def _sequence(self, first: int, last: int) -> list[Any]:
        return [self._token(t) for t in range(first, last)]

    def _take(self, tokens: Ints, offsets: Ints) -> Items:
        entries, ptr = rows_of(self.ptr, tokens)
        value = None if self.value is None else self.value[entries]
        return Items(self.names, offsets, ptr, self.attr[entries], value)

    def _token(self, t: int) -> dict[str, float]:
        out: dict[str, float] = {}
        for k in range(self.ptr[t], self.ptr[t + 1]):
            name = self.names[int(self.attr[k])]
            out[name] = out.get(name, 0.0) + (1.0 if self.value is None else float(self.value[k]))
        return out

    def __repr__(self) -> str:
        sizes = {"sequence": len(self), "token": len(self.ptr) - 1, "attribute": len(self.names)}
        return "<Items: " + ", ".join(counted(n, noun, ",") for noun, n in sizes.items()) + ">"

    def __reduce__(self) -> Any:
        rest = (self.offsets, self.ptr, self.attr, self.value)
        return _items_from_arrays, (*self.names.arrays(), *rest)


def _items_from_arrays(
    text: NDArray[np.uint8],
    ends: NDArray[np.uint64],
    offsets: Ints,
    ptr: Ints,
    attr: Ids,
    value: NDArray[np.float64] | None,
) -> Items:
    return Items(_core.StringTable.from_arrays(text, ends), offsets, ptr, attr, value)
