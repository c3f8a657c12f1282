"""Which weights a model of segments has, and the likelihood that training maximises."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.threads import resolve_threads
from crfkit.data.dataset import Dataset, Layout
from crfkit.data.sequences import rows_of
from crfkit.segment.known import Known
from crfkit.training.objective import SINGLE_NOISE, Objective

Vector = NDArray[np.float64]
FORBIDDEN = -2  # as the core has it
_BUCKETS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


@dataclass(frozen=True)
class Shape:
    """What decides which weights a model of segments has, besides those of attributes.

    Attributes
    ----------
    n_labels, max_length : int
    single : int
        The label whose segments have one token each, or -1.
    lengths : {"table", "buckets"}
        Whether each length has weights of its own, or lengths of about the same size share them.
    order : int
        Of the tail: 0 without one.
    first, last : bool
        Whether tokens have weights for beginning and for ending a segment.
    """

    n_labels: int
    max_length: int
    single: int
    lengths: str
    order: int
    first: bool
    last: bool

    @property
    def columns(self) -> int:
        """Columns that attributes may have weights for."""
        return self.n_labels * (1 + self.first + self.last)

    def longest(self, n_tokens: int) -> NDArray[np.int64]:
        """How many of ``n_tokens`` tokens a segment with each label may have, [L]."""
        out = np.full(self.n_labels, max(1, n_tokens) if self.order else self.max_length)
        if self.single >= 0:
            out[self.single] = 1
        return out

    @cached_property
    def length_rows(self) -> NDArray[np.int64]:
        """Which row of weights a length has, [K]."""
        k = np.arange(1, self.max_length + 1)
        return np.searchsorted(_BUCKETS, k, side="right") - 1 if self.lengths == "buckets" else k - 1

    def numbers(self, first: int) -> tuple[tuple[NDArray[np.int32], ...], int]:
        """Weights of pairs, lengths, tail, start and end, numbered from ``first`` on; and their end."""
        n = self.n_labels
        pairs = first + np.arange(n * n)
        start = pairs[-1] + 1 + np.arange(n)
        end = start + n
        rows = int(self.length_rows.max()) + 1
        lengths = (end[-1] + 1 + np.arange(rows * n)).reshape(rows, n)[self.length_rows]
        after = int(lengths.max()) + 1
        tail = after + np.arange(n if self.order else 0)
        if self.single >= 0:
            lengths = lengths.copy()
            lengths[1:, self.single] = FORBIDDEN
            if self.order:
                tail[self.single] = FORBIDDEN
        parts = pairs, lengths.ravel(), tail, start, end
        return tuple(x.astype(np.int32) for x in parts), after + (n if self.order else 0)

    def core(self, size: int) -> tuple[int, int, int, bool, bool, int]:
        """As the core takes it."""
        return self.n_labels, self.max_length, self.order, self.first, self.last, size

    def scores(self, numbers: NDArray[np.int32], w: Vector) -> Vector:
        """Scores by the numbers of their weights."""
        found = np.where(numbers == FORBIDDEN, -np.inf, 0.0)
        found[numbers >= 0] = w[numbers[numbers >= 0]]
        return found


def column_hints(shape: Shape, known: Known) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Columns that each token asks weights for, as numbers and hints of :meth:`Layout.build`."""
    n, width = shape.n_labels, shape.columns
    numbers, codes = known.labels, known.borders.astype(np.int64)
    after = np.append(known.borders, 1)[1:].astype(np.int64)
    after[known.offsets[1:][np.diff(known.offsets) > 0] - 1] = 1
    sets = np.zeros((n + len(known.hints), n), bool)
    sets[:n] = np.eye(n, dtype=bool)
    sets[n:] = known.hints > -np.inf
    row = np.where(numbers >= 0, numbers, n - 2 - numbers)
    keys = np.where(numbers == -1, -1, (row * 3 + codes) * 3 + after)
    found, inverse = np.unique(keys, return_inverse=True)
    table = np.full((len(found), width), -np.inf)
    for k, key in enumerate(found.tolist()):
        if key < 0:
            continue
        labels = sets[key // 9]
        may_begin, may_end = key // 3 % 3 != 2, key % 3 != 2
        table[k, :n][labels] = 0
        if shape.first and may_begin:
            table[k, n : 2 * n][labels] = 0
        if shape.last and may_end:
            table[k, width - n :][labels] = 0
    return np.where(keys < 0, -1, -2 - inverse.reshape(-1)).astype(np.int32), table


@dataclass(frozen=True, eq=False)
class Items:
    """Segments that have attributes, by their last tokens and lengths.

    Attributes
    ----------
    ptr : int64 [N + 1]
        First of those whose last token is t.
    length : int32 [M]
    attr_ptr : int64 [M + 1], attr : uint32, value : float64 or None
        Their attributes.
    """

    ptr: NDArray[np.int64]
    length: NDArray[np.int32]
    attr_ptr: NDArray[np.int64]
    attr: NDArray[np.uint32]
    value: NDArray[np.float64] | None = None

    @property
    def end(self) -> NDArray[np.int64]:
        """The token after the last, [M]."""
        return np.repeat(np.arange(1, len(self.ptr)), np.diff(self.ptr))

    def take(self, tokens: NDArray[np.int64]) -> Items:
        """Those of some tokens, whole sequences, in a new order."""
        mine, ptr = rows_of(self.ptr, tokens)
        entries, attr_ptr = rows_of(self.attr_ptr, mine)
        value = None if self.value is None else self.value[entries]
        return Items(ptr, self.length[mine], attr_ptr, self.attr[entries], value)


def joined(data: Dataset, items: Items | None) -> Dataset:
    """Tokens, and after them the listed segments as one more sequence."""
    if items is None:
        return data
    value = None
    if data.value is not None or items.value is not None:
        one = np.ones(len(data.attr)) if data.value is None else data.value
        value = np.concatenate([one, np.ones(len(items.attr)) if items.value is None else items.value])
    return Dataset(
        np.append(data.offsets, data.n_tokens + len(items.length)),
        np.concatenate([data.ptr, data.ptr[-1] + items.attr_ptr[1:]]),
        np.concatenate([data.attr, items.attr]),
        value,
    )


class SegmentObjective(Objective):
    r"""Penalised negative log-likelihood of what is known of segmentations.

    .. math::

        f(w) = \sum_s \omega_s \bigl( \log Z_w(x^{(s)}) - \log Z_w(x^{(s)}, \text{known}^{(s)}) \bigr)
            + c_2 \lVert w \rVert^2

    The second sum is over the segmentations that fit what is known; where all is known it is the score of one. Its
    gradient is the difference of the expected counts of every feature, plus :math:`2 c_2 w`.

    Parameters
    ----------
    shape : Shape
    columns : Layout
        Weights of attributes.
    data : Dataset
    items : Items or None
    known : Known
        Sequences of which nothing is known are left out.
    weights : float64 [S], optional
    c2 : float
    dtype : numpy dtype
    n_jobs : int, optional
    """

    def __init__(
        self,
        shape: Shape,
        columns: Layout,
        data: Dataset,
        items: Items | None,
        known: Known,
        weights: Vector | None = None,
        c2: float = 0.0,
        dtype: Any = np.float32,
        n_jobs: int | None = None,
    ) -> None:
        numbers, self.size = shape.numbers(columns.size)
        self.c2, self.threads = float(c2), resolve_threads(n_jobs)
        single = np.dtype(dtype) == np.float32
        self.noise = SINGLE_NOISE if single else 1e-13
        full, unknown = known.full, known.unknown
        order = np.concatenate([np.flatnonzero(full), np.flatnonzero(~full & ~unknown)])
        tokens, _ = rows_of(known.offsets, order)
        data = data.take(order)
        self.n_tokens = data.n_tokens
        listed = None if items is None else items.take(tokens)
        both = joined(data, listed)
        native = _core.SegmentObjectiveF32 if single else _core.SegmentObjectiveF64
        omega = None if weights is None else np.ascontiguousarray(weights[order])
        self._native = native(
            columns.native,
            numbers,
            shape.core(self.size),
            both.native,
            None if listed is None else (listed.ptr, listed.length),
            np.ascontiguousarray(known.labels[tokens]),
            np.ascontiguousarray(known.hints),
            (np.ascontiguousarray(known.borders[tokens]), int(full.sum()), omega),
            self.threads,
        )
        self.n_labels = shape.n_labels

    def value_and_grad(self, w: Vector, out: Vector | None = None) -> tuple[float, Vector]:
        """Value and gradient at w."""
        w = np.ascontiguousarray(w, np.float64)
        if w.shape != (self.size,):
            raise ValueError(f"'w' must have shape ({self.size},), got {w.shape}")
        gradient = np.empty(self.size) if out is None else out
        return self._native.value_and_grad(w, self.c2, gradient, self.threads), gradient

    @property
    def n_redone(self) -> int:
        """Sequences that the last evaluation went through in log space."""
        return self._native.n_redone
