"""Higher-order chains: a label depends on the two or three labels before it.

The lattice of order n has the first order's form over *slots*: a slot of token t is a label of t and those of the n - 1
tokens before, from a beam of labels for each token. A map from slots to labels hides this, so that every function of
:mod:`crfkit.chain` takes and returns labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit.base.numbers import inner_tokens, n_tuples, tuple_numbers, with_attribute
from crfkit.chain.beams import FixedSize
from crfkit.chain.inference import marginals
from crfkit.chain.potentials import Floats, Potentials

#: Slots up to which all labels are looked at.
MOST_SLOTS = 512
#: Labels of a token's beam, by order, where that would be more: the most probable of the first order.
MOST_LABELS = {2: 8, 3: 4}
_LEAST = 1e-3  # probability of a label in a beam
_TABLE = 1 << 22  # largest table of all tuples


def holds_all(order: int, n_labels: int) -> bool:
    """Whether a lattice of this order looks at all labels.

    >>> holds_all(2, 22), holds_all(2, 51), holds_all(3, 8), holds_all(3, 9)
    (True, False, True, False)
    """
    return order == 1 or n_labels**order <= MOST_SLOTS


def tuple_value(n_labels: int) -> float:
    """Value of a tuple of labels as a feature, by which its weight is multiplied.

    With many labels, each tuple is rare in the data, and a smaller value penalises its weight more.

    >>> tuple_value(51), tuple_value(1175)
    (1.0, 0.1)
    """
    return 1.0 if n_labels <= 101 else 0.1


@dataclass(frozen=True, eq=False)
class TupleScores:
    """Scores of three labels in a row, and for the third order of four.

    Attributes
    ----------
    order : int
    classes : uint16 array [L]
        Class of each label; tuples are of classes.
    tuples : uint64 array [K]
        Numbers of the tuples that have a score, ascending, as by ``tuple_numbers`` and ``with_attribute`` of
        :mod:`crfkit.base.numbers`.
    scores : float64 array [K]
    """

    order: int
    classes: NDArray[np.uint16]
    tuples: NDArray[np.uint64]
    scores: NDArray[np.float64]

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.classes.max()) + 1

    @cached_property
    def _table(self) -> NDArray[np.float64] | None:
        size = self._many
        if size > _TABLE:
            return None
        table = np.zeros(size)
        alone = int(np.searchsorted(self.tuples, np.uint64(size)))
        table[self.tuples[:alone]] = self.scores[:alone]
        return table

    @cached_property
    def _many(self) -> int:
        return n_tuples(self.n_classes, self.order)

    def numbers(self, columns: Sequence[NDArray[Any]]) -> NDArray[np.uint64]:
        """Numbers of tuples, whose labels stand in columns, oldest first."""
        return tuple_numbers([self.classes[x] for x in columns], self.n_classes)

    def find(self, numbers: NDArray[np.uint64], attribute: NDArray[np.uint32] | None = None) -> NDArray[np.float64]:
        """The scores of tuples by their numbers, alone or each with an attribute; zero where there is none."""
        value = tuple_value(len(self.classes))
        if attribute is not None:
            numbers = with_attribute(numbers, attribute, self._many)
        elif self._table is not None:
            return value * self._table[numbers]
        if not len(self.tuples):
            return np.zeros(numbers.shape)
        at = np.minimum(np.searchsorted(self.tuples, numbers), len(self.tuples) - 1)
        return np.where(self.tuples[at] == numbers, value * self.scores[at], 0.0)


class OrderedPotentials(Potentials):
    r"""Scores of labellings in which a label depends on the two or three labels before it.

    .. math::

        s(y) = \sum_t U_t(y_t) + \sum_t A(y_{t-1}, y_t) + \sum_t B(y_{t-2}, y_{t-1}, y_t) + \ldots

    Made by ``CRF(order=2).potentials(X)``. The functions of :mod:`crfkit.chain` return labels and their probabilities,
    as for :class:`Potentials`. Internally this is a chain over slots: a label, and the labels before it that the next
    one depends on.

    Attributes
    ----------
    unary, pairwise : arrays [N, S], [E, S, S] or [S, S]
        Of slots.
    slots : int32 array [N, n, S]
        Label of each slot, the label before, and so on; -1 before the first token, and where there is no slot.
    n_labels : int
    """

    slots: NDArray[np.int32]
    _n_labels: int

    def __init__(self, unary: Any, pairwise: Any, offsets: Any, slots: NDArray[np.int32], n_labels: int) -> None:
        super().__init__(unary, pairwise, offsets=offsets)
        object.__setattr__(self, "slots", slots)
        object.__setattr__(self, "_n_labels", n_labels)

    @property
    def n_labels(self) -> int:
        """Number of labels, L."""
        return self._n_labels

    @property
    def is_ordered(self) -> bool:
        """True."""
        return True

    def __getitem__(self, i: int) -> OrderedPotentials:
        """Sequence ``i`` of a batch, by itself."""
        one = super().__getitem__(i)
        if self.offsets is None:
            return self
        i %= len(self)
        part = self.slots[int(self.offsets[i]) : int(self.offsets[i + 1])]
        return OrderedPotentials(one.unary, one.pairwise, None, part, self._n_labels)

    def scaled(self, factor: float) -> OrderedPotentials:
        """All scores times a factor."""
        return OrderedPotentials(self.unary * factor, self.pairwise * factor, self.offsets, self.slots, self._n_labels)

    def masked(self, allowed: NDArray[np.bool_]) -> OrderedPotentials:
        """Only the labels [N, L] that are allowed."""
        return self.of_slots(np.take_along_axis(allowed, np.maximum(self.slots[:, 0], 0), axis=1))

    def of_slots(self, allowed: NDArray[np.bool_]) -> OrderedPotentials:
        """Only the slots [N, S] that are allowed."""
        unary = np.where(allowed, self.unary, -np.inf)
        return OrderedPotentials(unary, self.pairwise, self.offsets, self.slots, self._n_labels)

    def labels_of(self, path: NDArray[Any], tokens: Any = None) -> NDArray[np.int32]:
        """The labels of slots [..., N], at all tokens or at those given."""
        rows = np.arange(len(self.slots)) if tokens is None else tokens
        return np.asarray(self.slots[rows, 0, path])

    def slots_of(self, path: NDArray[Any]) -> NDArray[np.int64]:
        """The slots of a labelling [N]; -1 where its labels are in none."""
        wanted = np.full((len(path), self.slots.shape[1]), -1, np.int32)
        inner = np.arange(len(path)) - np.repeat(self.lattice.offsets[:-1], self.lengths)
        for n in range(self.slots.shape[1]):
            has = inner >= n
            wanted[has, n] = path[np.flatnonzero(has) - n]
        fits = (self.slots == wanted[:, :, None]).all(axis=1) & (self.slots[:, 0] >= 0)
        return np.where(fits.any(axis=1), fits.argmax(axis=1), -1)

    def by_label(self, nodes: Floats) -> Floats:
        """Probabilities of slots [N, S] summed by label, [N, L]."""
        out = np.zeros((len(nodes), self._n_labels), nodes.dtype)
        t, s = np.nonzero(self.slots[:, 0] >= 0)
        np.add.at(out, (t, self.slots[t, 0, s]), nodes[t, s])
        return out

    def by_pair(self, nodes: Floats) -> Floats:
        """Probabilities of slots [N, S] summed by label and the label before, [E, L, L]."""
        inner = np.flatnonzero(inner_tokens(self.lattice.offsets))
        out = np.zeros((len(inner), self._n_labels, self._n_labels), nodes.dtype)
        slots, chances = self.slots[inner], nodes[inner]
        e, s = np.nonzero((slots[:, 0] >= 0) & (slots[:, 1] >= 0))
        np.add.at(out, (e, slots[e, 1, s], slots[e, 0, s]), chances[e, s])
        return out

    def shorter_entropies(self, n_jobs: int | None = None) -> list[NDArray[np.float64]]:
        """Entropies of a token's label, and of it and those before, [N] each: of fewer labels than a slot has."""
        found = marginals(Potentials(self.unary, self.pairwise, offsets=self.offsets), n_jobs).nodes
        t, s = np.nonzero(found > 0)
        number, out = t, []
        for k in range(self.slots.shape[1] - 1):
            number = np.unique(number * (self._n_labels + 1) + self.slots[t, k, s] + 1, return_inverse=True)[1]
            chances = np.bincount(number, found[t, s].astype(np.float64))
            at = np.empty(len(chances), np.int64)
            at[number] = t
            out.append(np.maximum(np.bincount(at, -chances * np.log(chances), len(found)), 0.0))
        return out


#: Attributes of the transition into each token: where those of a token begin [N + 1], and their numbers.
Attributes = tuple[NDArray[np.int64], NDArray[np.uint32]]


def ordered(
    p: Potentials, higher: TupleScores, n_jobs: int | None = None, attributes: Attributes | None = None
) -> Potentials:
    """Higher-order potentials from first-order ones and the scores of longer tuples.

    With few labels all are used (:func:`holds_all`). Otherwise each token has a beam of its most probable labels
    (``MOST_LABELS``), by the first-order marginals.

    Parameters
    ----------
    p : Potentials
        Of a batch.
    higher : TupleScores
    attributes : pair of arrays, optional
        Of the transition into each token, with which tuples have scores: where those of a token begin [N + 1], and
        their numbers.
    """
    x = p.lattice
    n, L = higher.order, p.n_labels
    if n == 1 or not len(x.unary):
        return p
    if holds_all(n, L) and not x.per_step:
        return _all_labels(p, higher)
    beams = _beams(p, higher, n_jobs)
    B = beams.shape[1]
    S = B**n
    inner = np.arange(len(beams)) - np.repeat(x.offsets[:-1], np.diff(x.offsets))
    digits = [np.arange(S) // B ** (n - 1 - k) % B for k in range(n)]
    slots = np.empty((len(beams), n, S), np.int32)
    there = np.ones((len(beams), S), bool)
    for k in range(n):
        has = inner >= k
        slots[:, k] = -1
        slots[has, k] = beams[np.flatnonzero(has) - k][:, digits[k]]
        # before the first token there is one past, not many
        there &= np.where(has[:, None], slots[:, k] >= 0, digits[k] == 0)
    slots[~there.repeat(n, axis=0).reshape(len(beams), n, S)] = -1
    unary = np.where(there, np.take_along_axis(x.unary, np.maximum(slots[:, 0], 0), axis=1), -np.inf)
    at = np.flatnonzero(inner_tokens(x.offsets))
    before, following = slots[at - 1], beams[at]  # [E, n, S], [E, B]
    scores = _steps(x, before, following, higher, None if attributes is None else _of_tokens(attributes, at))
    pairwise = np.full((len(at), S, S), -np.inf, x.unary.dtype)
    groups = B ** (n - 1)
    for k in range(B):
        pairwise[:, np.arange(S), k * groups + np.arange(S) // B] = scores[:, :, k]
    return OrderedPotentials(unary.astype(x.unary.dtype), pairwise, p.offsets, slots, L)


def _of_tokens(attributes: Attributes, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """The attributes of some tokens, [tokens, largest number of attributes]; -1 where there are fewer."""
    ptr, attribute = attributes
    counts = ptr[tokens + 1] - ptr[tokens]
    out = np.full((len(tokens), int(counts.max(initial=0))), -1, np.int64)
    for k in range(out.shape[1]):
        some = counts > k
        out[some, k] = attribute[ptr[tokens[some]] + k]
    return out


def _steps(
    x: Any,
    before: NDArray[np.int32],
    following: NDArray[np.int32],
    higher: TupleScores,
    attributes: NDArray[np.int64] | None = None,
) -> NDArray[Any]:
    """Scores of slots [E, n, S] followed by labels [E, B] at tokens with attributes [E, A], [E, S, B]."""
    edge = np.arange(len(before))[:, None, None] if x.per_step else 0
    now, after = np.maximum(before[:, 0], 0)[:, :, None], np.maximum(following, 0)[:, None, :]
    scores = x.pairwise[edge, now, after].astype(np.float64)
    good = (before[:, 0] >= 0)[:, :, None] & (following >= 0)[:, None, :]
    columns = [now, after]
    for k in range(1, higher.order):
        past = before[:, k][:, :, None]
        columns = [np.maximum(past, 0), *columns]
        cells = np.nonzero(good & (past >= 0))
        numbers = higher.numbers([np.broadcast_to(c, good.shape)[cells] for c in columns])
        scores[cells] += higher.find(numbers)
        for column in () if attributes is None else attributes.T:
            there = column[cells[0]] >= 0
            some = tuple(c[there] for c in cells)
            scores[some] += higher.find(numbers[there], column[some[0]].astype(np.uint32))
    scores[~good] = -np.inf
    return np.asarray(scores)


def _beams(p: Potentials, higher: TupleScores, n_jobs: int | None) -> NDArray[np.int32]:
    """Labels of each token's beam [N, B], ascending, -1 where there are fewer."""
    n, L = higher.order, p.n_labels
    if holds_all(n, L):
        return np.tile(np.arange(L, dtype=np.int32), (len(p.unary), 1))
    most = min(MOST_LABELS[n], L)
    found = marginals(p, n_jobs, beam=FixedSize(most), form="smoothed")
    token = np.repeat(np.arange(len(found.ptr) - 1), found.sizes)
    kept = found.probabilities >= _LEAST
    out = np.full((len(found.ptr) - 1, most), L, np.int32)
    out[token[kept], (np.arange(len(token)) - found.ptr[token])[kept]] = found.labels[kept]
    out.sort(axis=1)
    width = max(1, int((out < L).sum(axis=1).max(initial=1)))
    return np.where(out == L, -1, out).astype(np.int32)[:, :width]


def _all_labels(p: Potentials, higher: TupleScores) -> OrderedPotentials:
    """With all labels the transitions are the same at every step; before the first token stands a label of its own."""
    x = p.lattice
    n, L = higher.order, p.n_labels
    past = L + 1  # the last one stands before the first token
    S = L * past ** (n - 1)
    digits = np.array([np.arange(S) // past ** (n - 1 - k) % (L if k == 0 else past) for k in range(n)], np.int32)
    digits[1:][digits[1:] == L] = -1
    # where nothing is known before a label, nothing is known before that either
    good = np.ones(S, bool)
    for k in range(2, n):
        good &= (digits[k - 1] >= 0) | (digits[k] < 0)
    digits, kept = digits[:, good], np.flatnonzero(good)
    S = len(kept)
    place = np.full(L * past ** (n - 1), -1, np.int64)
    place[kept] = np.arange(S)
    following = np.arange(L, dtype=np.int32)[None]
    scores = _steps(x, digits[None], following, higher)[0]  # [S, L]
    pairwise = np.full((S, S), -np.inf, x.unary.dtype)
    shorter = kept // past if n > 1 else kept
    for k in range(L):
        target = place[k * past ** (n - 1) + shorter]
        pairwise[np.arange(S), target] = scores[:, k]
    inner = np.arange(len(x.unary)) - np.repeat(x.offsets[:-1], np.diff(x.offsets))
    depth = (digits[1:] >= 0).sum(axis=0)
    there = depth == np.minimum(inner, n - 1)[:, None]
    unary = np.where(there, x.unary[:, digits[0]], -np.inf)
    slots = np.where(there[:, None, :], digits[None], -1).astype(np.int32)
    return OrderedPotentials(unary.astype(x.unary.dtype), pairwise, p.offsets, slots, L)
