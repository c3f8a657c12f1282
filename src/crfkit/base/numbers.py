"""Logarithms, ragged arrays, and arrays that are not to be written to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def whole_number(digits: str) -> int:
    """The int of a text; of one that is very long, Python's own message would be about Python.

    >>> whole_number("-12")
    -12
    """
    if len(digits) > 1000:
        raise ValueError(f"a number of {len(digits)} digits is too long")
    return int(digits)


def log_sum_exp(x: Any) -> Any:
    """Logarithm of the sum of exponentials over the last axis, which is kept; minus infinity where all are.

    >>> log_sum_exp(np.log([[1.0, 3.0], [0.5, 0.5]])).round(6).tolist()
    [[1.386294], [0.0]]
    """
    top = x.max(axis=-1, keepdims=True)
    safe = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(divide="ignore"):  # recursion: log-sum-exp
        return safe + np.log(np.exp(x - safe).sum(axis=-1, keepdims=True))


def inner_tokens(offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each token [N] has a token of the same sequence before it, so that an edge leads into it.

    >>> inner_tokens(np.array([0, 2, 2, 5])).astype(int).tolist()
    [0, 1, 0, 1, 1]
    """
    inner = np.ones(int(offsets[-1]), bool)
    inner[offsets[:-1][np.diff(offsets) > 0]] = False
    return inner


PIECE = 1 << 18  # tokens at a time, where arrays of all of them would take more memory than training


def pieces(offsets: NDArray[np.int64], tokens: int) -> Iterator[tuple[int, int]]:
    """Runs of sequences, first and last + 1, of at most this many tokens each, and at least one sequence.

    >>> list(pieces(np.array([0, 2, 4, 9, 10]), 4))
    [(0, 2), (2, 3), (3, 4)]
    """
    begin = 0
    while begin < len(offsets) - 1:
        end = max(begin + 1, int(np.searchsorted(offsets, offsets[begin] + tokens, side="right")) - 1)
        yield begin, end
        begin = end


def over_rows(take: np.ufunc, values: NDArray[Any], offsets: NDArray[np.int64], empty: Any = 0.0) -> NDArray[Any]:
    """The sum, or another ufunc, of the values of each ragged row; ``empty`` for rows without any.

    >>> over_rows(np.add, np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2, 3])).tolist()
    [3.0, 0.0, 4.0]
    """
    filled = offsets[1:] > offsets[:-1]
    out = np.full(len(filled), empty)
    if filled.any():
        out[filled] = take.reduceat(values, offsets[:-1][filled])
    return out


def frozen(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same array, not to be written to."""
    x = x.view()
    x.flags.writeable = False
    return x


def n_tuples(n_labels: int, order: int) -> int:
    """How many tuples of three labels there are, and of up to ``order`` + 1.

    >>> n_tuples(2, 2), n_tuples(2, 3)
    (8, 24)
    """
    return int(sum(n_labels ** (n + 1) for n in range(2, order + 1)))


def tuple_numbers(columns: Sequence[NDArray[Any]], n_labels: int) -> NDArray[np.uint64]:
    """The number of each tuple of three labels or more, oldest first: its labels as digits; longer ones come later.

    Where labels have classes, tuples are of classes.

    >>> tuple_numbers([np.array([0, 1]), np.array([0, 1]), np.array([1, 0])], 2).tolist()
    [1, 6]
    """
    n = np.uint64(n_labels)
    out = np.zeros(columns[0].shape, np.uint64)
    for column in columns:
        out = out * n + column.astype(np.uint64)
    return out + n * n * n * np.uint64(max(0, len(columns) - 3))


def tuple_columns(numbers: Any, n_labels: int, length: int) -> list[Any]:
    """The labels of tuples of this length, oldest first, from their numbers or number.

    >>> tuple_columns(6, 2, 3), tuple_columns(np.array([8, 23], np.uint64), 2, 4)[3].tolist()
    ([1, 1, 0], [0, 1])
    """
    rest = numbers - n_labels**3 * (length - 3)
    return [rest // n_labels**k % n_labels for k in range(length - 1, -1, -1)]


def with_attribute(tuples: NDArray[np.uint64], attribute: NDArray[Any], many: int) -> NDArray[np.uint64]:
    """The numbers of tuples that have a weight with an attribute, -1: with none; ``many``: as by ``n_tuples``.

    >>> with_attribute(np.array([1, 6], np.uint64), np.array([-1, 2]), 8).tolist()
    [1, 30]
    """
    return np.asarray(tuples + (attribute.astype(np.int64) + 1).astype(np.uint64) * np.uint64(many), np.uint64)


def split_attribute(numbers: NDArray[np.uint64], many: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The attributes of such numbers, -1 for none, and the tuples.

    >>> [x.tolist() for x in split_attribute(np.array([1, 30], np.uint64), 8)]
    [[-1, 2], [1, 6]]
    """
    above, tuples = np.divmod(numbers, np.uint64(many))
    return above.astype(np.int64) - 1, tuples
