"""Sequences as numbers: attributes of tokens, and which weights a model has for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.numbers import PIECE, n_tuples, pieces, split_attribute, tuple_columns, tuple_numbers, with_attribute
from crfkit.base.shown import Record
from crfkit.data.sequences import joined_offsets, rows_of

NONE = 2**32 - 1  # the core's "no such number"
Rows = tuple[NDArray[np.uint32], NDArray[np.uint32]]  # first column of each row, and one; the columns
#: Labels that training takes; a table of their pairs has 400 MB.
MOST_TRAINED = 10_000


class LabelCountError(ValueError):
    """Training data has more labels than training takes."""


def check_label_count(n: int, states: bool = False) -> None:
    """Raises if a table of all pairs of labels, or of their states, would be too large to train with."""
    if n > MOST_TRAINED:
        what = "states" if states else "different labels"
        hint = "" if states else ": are the columns of words and labels swapped?"
        raise LabelCountError(f"there are {n:,} {what}, more than the {MOST_TRAINED:,} that training takes{hint}")


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(Record):
    """Ragged sequences of tokens; each token has a few attributes.

    Attributes
    ----------
    offsets : int64 [S + 1]
        First token of each sequence, and the number of tokens N.
    ptr : int64 [N + 1]
        First attribute of each token.
    attr : uint32 [ptr[N]]
        Attribute numbers; numbers that the model does not know add nothing to the score.
    value : float64 [ptr[N]], or None
        Their values; None means one for all.
    edge_ptr, edge_attr : arrays like ptr and attr, or None
        Attributes of the transition into each token.
    """

    offsets: NDArray[np.int64]
    ptr: NDArray[np.int64]
    attr: NDArray[np.uint32]
    value: NDArray[np.float64] | None = None
    edge_ptr: NDArray[np.int64] | None = None
    edge_attr: NDArray[np.uint32] | None = None

    @property
    def n_sequences(self) -> int:
        """Number of sequences, S."""
        return len(self.offsets) - 1

    @property
    def n_tokens(self) -> int:
        """Number of tokens, N."""
        return len(self.ptr) - 1

    def without_zeros(self) -> Dataset:
        """The same without attributes of value zero, which score nothing."""
        if self.value is None or self.value.all():
            return self
        kept = self.value != 0
        ptr = np.concatenate([[0], np.cumsum(kept)])[self.ptr]
        value = self.value[kept]
        return replace(self, ptr=ptr, attr=self.attr[kept], value=None if (value == 1).all() else value)

    @cached_property
    def native(self) -> _core.Tokens:
        """The same arrays, as the core takes them."""
        return _core.Tokens(self.offsets, self.ptr, self.attr, self.value, self.edge_ptr, self.edge_attr)

    def __getstate__(self) -> dict[str, Any]:
        return {name: x for name, x in vars(self).items() if name not in ("native", "stored", "_flat")}

    @property
    def digested(self) -> list[Any]:
        """What distinguishes this data from other data, for checkpoints."""
        return [self.offsets, self.ptr, self.attr, self.value, self.edge_ptr, self.edge_attr]

    @property
    def stored(self) -> _core.StoredTokens | None:
        """The blocks of a file, as the core takes them, for data that lies in one."""
        return None

    @classmethod
    def concatenate(cls, parts: Sequence[Dataset]) -> Dataset:
        """The sequences of several, one after another; all with values, or none."""

        def joined(name: str) -> Any:
            found = [getattr(part, name) for part in parts]
            if found[0] is None:
                return None
            return joined_offsets(found) if name in ("offsets", "ptr", "edge_ptr") else np.concatenate(found)

        return cls(*(joined(name) for name in ("offsets", "ptr", "attr", "value", "edge_ptr", "edge_attr")))

    def take(self, sequences: NDArray[np.int64]) -> Dataset:
        """Some of the sequences, in the given order."""
        tokens, offsets = rows_of(self.offsets, sequences)
        entries, ptr = rows_of(self.ptr, tokens)
        edge_ptr = edge_attr = None
        if self.edge_ptr is not None and self.edge_attr is not None:
            edges, edge_ptr = rows_of(self.edge_ptr, tokens)
            edge_attr = self.edge_attr[edges]
        value = None if self.value is None else self.value[entries]
        return Dataset(offsets, ptr, self.attr[entries], value, edge_ptr, edge_attr)


def _row_keys(ptr: NDArray[np.uint32], column: NDArray[np.integer], n_columns: int) -> NDArray[np.int64]:
    counts = np.diff(ptr)
    filled = np.flatnonzero(counts)  # few, where most attributes have no weight yet
    return np.repeat(filled * n_columns, counts[filled].astype(np.int64)) + column


def _from_keys(keys: NDArray[np.int64], n_rows: int, n_columns: int) -> Rows:
    counts = np.bincount(keys // n_columns, minlength=n_rows)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32), (keys % n_columns).astype(np.uint32)


def _union(a: Rows, b: Rows, n_columns: int) -> Rows:
    """Rows of columns that are in either of two tables of rows."""
    keys = np.union1d(_row_keys(*a, n_columns), _row_keys(*b, n_columns))
    return _from_keys(keys, max(len(a[0]), len(b[0])) - 1, n_columns)


def _labelled_entries(
    data: Dataset, labels: NDArray[np.int32], hints: NDArray[np.float64] | None
) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float64] | None, NDArray[np.uint32]]:
    """Attributes of tokens, and their labels; a token of which several labels are possible comes once for each."""
    ptr, attr, value = data.ptr, data.attr, data.value
    column = np.maximum(labels, -1).view(np.uint32)  # -1 is NONE
    if hints is not None and len(hints):
        tokens = np.flatnonzero(labels < -1)
        which, label = np.nonzero(hints[-2 - labels[tokens]] > -np.inf)
        entries, more = rows_of(data.ptr, tokens[which])
        ptr, attr, value = np.concatenate([ptr, ptr[-1] + more[1:]]), np.concatenate([attr, attr[entries]]), None
        column = np.concatenate([column, label.astype(np.uint32)])
    return ptr, attr, value, column


@dataclass(frozen=True)
class WeightRules:
    """Rules for which weights a model gets from labelled data.

    Attributes
    ----------
    min_freq : float
        (attribute, label) pairs seen less often have no weight.
    all_possible_states, all_possible_transitions : bool
        Weights for all pairs, or only for those seen.
    start_end : bool
        Whether the first and the last label have weights.
    transitions : bool
        Whether label pairs have weights at all.
    sums : bool
        CRFsuite's rule for ``min_freq`` > 0: the values of a pair are summed instead of counted, rare transitions
        are left out too, and unseen pairs have no weights.
    order : int
        How many labels before it a label depends on. Beyond the first order, tuples of labels that are seen have
        weights; with ``all_possible_transitions`` all tuples of a length, if there are at most 2^20.
    classes : tuple of int
        Class of each label: tuples whose labels have the same classes share a weight. Empty: each label is its own.
    """

    min_freq: float = 0
    all_possible_states: bool = False
    all_possible_transitions: bool = True
    start_end: bool = True
    transitions: bool = True
    sums: bool = False
    order: int = 1
    classes: tuple[int, ...] = ()

    @property
    def rare(self) -> bool:
        """Whether rare transitions are left out too."""
        return self.sums and self.min_freq > 0

    def rows(
        self,
        ptr: NDArray[np.int64],
        attr: NDArray[np.uint32],
        value: NDArray[np.float64] | None,
        n_attributes: int,
        column: NDArray[np.uint32],
        n_columns: int,
    ) -> Rows:
        """Rows of the columns that each attribute has weights with."""
        if self.rare:
            of_entry = np.repeat(column, np.diff(ptr))
            seen = of_entry != NONE
            keys = attr[seen].astype(np.int64) * n_columns + of_entry[seen]
            found, inverse = np.unique(keys, return_inverse=True)
            sums = np.bincount(inverse, None if value is None else value[seen], minlength=len(found))
            return _from_keys(found[sums >= self.min_freq], n_attributes, n_columns)
        if self.all_possible_states:
            first = np.arange(n_attributes + 1, dtype=np.uint32) * n_columns
            return first, np.tile(np.arange(n_columns, dtype=np.uint32), n_attributes)
        return _core.observed_pairs(ptr, attr, n_attributes, column, n_columns, float(self.min_freq))

    def all_rows(
        self,
        data: Dataset,
        labels: NDArray[np.int32],
        n_labels: int,
        n_attributes: tuple[int, int],
        hints: NDArray[np.float64] | None,
    ) -> tuple[Rows, Rows]:
        """Rows of labels for tokens' attributes, of label pairs for transitions'; see :meth:`Layout.build`."""
        if data.stored is not None and not self.rare and not self.all_possible_states and hints is None:
            counted = n_labels, float(self.min_freq)
            state = _core.stored_pairs(data.stored, False, n_attributes[0], labels, *counted)
            if not data.stored.has_edges:
                return state, _NO_ROWS
            return state, _core.stored_pairs(data.stored, True, n_attributes[1], labels, *counted)
        ptr, attr, value, column = _labelled_entries(data, labels, hints)
        state = self.rows(ptr, attr, value, n_attributes[0], column, n_labels)
        if data.edge_ptr is None or data.edge_attr is None:
            return state, _NO_ROWS
        pairs = _label_pairs(labels, data.offsets, n_labels)
        return state, self.rows(data.edge_ptr, data.edge_attr, None, n_attributes[1], pairs, n_labels * n_labels)

    def class_of(self, n_labels: int) -> NDArray[np.uint16]:
        """Class of each label."""
        return np.array(self.classes or range(n_labels), np.uint16)

    def tuples(
        self, labels: NDArray[np.int32], data: Dataset, n_labels: int, attributes: bool = False
    ) -> NDArray[np.uint64]:
        """Numbers of the tuples of three labels, and of up to ``order`` + 1, that have weights; ascending.

        First those of labels alone, then, with ``attributes``, those with one of the transition into their last token.
        """
        found: list[NDArray[np.uint64]] = []
        attributed: list[NDArray[np.uint64]] = []
        no_tuples = np.zeros(0, np.uint64)
        classes, offsets = self.class_of(n_labels), data.offsets
        n_labels = int(classes.max()) + 1
        many = n_tuples(n_labels, self.order)
        position = np.arange(len(labels)) - np.repeat(offsets[:-1], np.diff(offsets))

        def often(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
            distinct, counts = np.unique(numbers, return_counts=True)
            return distinct[counts >= self.min_freq]

        for n in range(2, self.order + 1):
            at = np.flatnonzero(position >= n)
            columns = [labels[at - k] for k in range(n, -1, -1)]
            known = np.all([x >= 0 for x in columns], axis=0) if len(at) else np.zeros(0, bool)
            seen = tuple_numbers([classes[x[known]] for x in columns], n_labels)
            if self.all_possible_transitions and not self.rare and n_labels ** (n + 1) <= _MANY:
                first = tuple_numbers([np.zeros(1, np.int64)] * (n + 1), n_labels)
                found.append(first + np.arange(n_labels ** (n + 1), dtype=np.uint64))
            else:
                found.append(often(seen))
            if attributes and data.edge_ptr is not None and data.edge_attr is not None:
                entries, ptr = rows_of(data.edge_ptr, at[known])
                attributed.append(often(with_attribute(seen.repeat(np.diff(ptr)), data.edge_attr[entries], many)))
        return np.concatenate([*found, np.unique(np.concatenate([no_tuples, *attributed]))])


_MANY = 1 << 20


def _tuples_among(tuples: NDArray[np.uint64], order: int, n_labels: int, among: int) -> NDArray[np.uint64]:
    """The numbers of the same tuples among more labels."""
    if order == 1:
        return tuples
    attribute, tuples = split_attribute(tuples, n_tuples(n_labels, order))
    longer = tuples >= n_labels**3
    out = np.empty_like(tuples)
    for some, length in ((~longer, 3), (longer, 4)):
        out[some] = tuple_numbers(tuple_columns(tuples[some], n_labels, length), among)
    return with_attribute(out, attribute, n_tuples(among, order))


_NO_ROWS: Rows = (np.zeros(0, np.uint32), np.zeros(0, np.uint32))


def _label_pairs(labels: NDArray[np.int32], offsets: NDArray[np.int64], n_labels: int) -> NDArray[np.uint32]:
    """The label before and the label of every token [N]; NONE at the first of a sequence, and if one is not known."""
    column = labels.view(np.uint32)
    pairs = np.full(len(labels), NONE, np.uint32)
    pairs[1:] = column[:-1] * np.uint32(n_labels) + column[1:]
    pairs[1:][(labels[:-1] < 0) | (labels[1:] < 0)] = NONE
    pairs[offsets[:-1][np.diff(offsets) > 0]] = NONE
    return pairs


def _seen_pairs(
    labels: NDArray[np.int32], offsets: NDArray[np.int64], n_labels: int, least: float
) -> NDArray[np.int64]:
    """The label pairs that occur at least this often; counted a few sequences at a time, to save memory."""
    found: list[tuple[NDArray[Any], NDArray[Any]]] = []
    for first, last in pieces(offsets, PIECE):
        a, b = int(offsets[first]), int(offsets[last])
        pairs = _label_pairs(labels[a:b], offsets[first : last + 1] - a, n_labels)
        found.append(np.unique(pairs[pairs != NONE], return_counts=True))
    if not found:
        return np.zeros(0, np.int64)
    seen, where = np.unique(np.concatenate([x for x, _ in found]), return_inverse=True)
    counts = np.bincount(where, np.concatenate([n for _, n in found]), minlength=len(seen))
    return seen[counts >= least].astype(np.int64)


Counts = tuple[NDArray[np.int64], NDArray[np.int64]]  # row * columns + column, ascending; how often each is seen


def _merged(parts: Sequence[Counts]) -> Counts:
    """The sum of counts."""
    keys, inverse = np.unique(np.concatenate([keys for keys, _ in parts]), return_inverse=True)
    counts = np.bincount(inverse, np.concatenate([counts for _, counts in parts]), minlength=len(keys))
    return keys, counts.astype(np.int64)


@dataclass(frozen=True, eq=False)
class PairCounts:
    """How often labelled data has each pair that may get a weight; counts of parts of the data add up.

    Attributes
    ----------
    n_labels : int
    state, edge : (int64 [K], int64 [K])
        (attribute, label) and (attribute, label pair), as one number, ascending; how often each is seen.
    labels : int64 [L], transitions : int64 [L * L]
        How often labels and label pairs are seen.
    """

    n_labels: int
    state: Counts
    edge: Counts
    labels: NDArray[np.int64]
    transitions: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        data: Dataset,
        labels: NDArray[np.int32],
        n_labels: int,
        n_attributes: tuple[int, int],
        hints: NDArray[np.float64] | None = None,
    ) -> PairCounts:
        """Those of a data set; arguments as for :meth:`Layout.build`."""
        check_label_count(n_labels)
        pairs = _label_pairs(labels, data.offsets, n_labels)
        ptr, attr, _, column = _labelled_entries(data, labels, hints)

        def counted(
            ptr: NDArray[np.int64], attr: NDArray[np.uint32], n: int, column: NDArray[np.uint32], n_columns: int
        ) -> Counts:
            rows, columns, counts = _core.count_pairs(ptr, attr, n, column, n_columns)
            return _row_keys(rows, columns, n_columns), counts.astype(np.int64)

        edge: Counts = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        if data.edge_ptr is not None and data.edge_attr is not None:
            edge = counted(data.edge_ptr, data.edge_attr, n_attributes[1], pairs, n_labels * n_labels)
        state = counted(ptr, attr, n_attributes[0], column, n_labels)
        known = np.bincount(labels[labels >= 0], minlength=n_labels)
        return cls(n_labels, state, edge, known, np.bincount(pairs[pairs != NONE], minlength=n_labels * n_labels))

    def moved(self, attributes: tuple[Any, Any], labels: NDArray[np.int64], n_labels: int) -> PairCounts:
        """The same where attributes, of tokens and of transitions, and labels have other numbers; None for the same."""
        n, m = self.n_labels, n_labels
        pairs = (labels[:, np.newaxis] * m + labels).reshape(-1)

        def move(counts: Counts, numbers: Any, columns: NDArray[np.int64], old: int, new: int) -> Counts:
            row, column = np.divmod(counts[0], old)
            keys = (row if numbers is None else numbers.astype(np.int64)[row]) * new + columns[column]
            order = np.argsort(keys)
            return keys[order], counts[1][order]

        known, transitions = np.zeros(m, np.int64), np.zeros(m * m, np.int64)
        known[labels], transitions[pairs] = self.labels, self.transitions
        state = move(self.state, attributes[0], labels, n, m)
        return PairCounts(m, state, move(self.edge, attributes[1], pairs, n * n, m * m), known, transitions)

    def __add__(self, other: PairCounts) -> PairCounts:
        state, edge = _merged([self.state, other.state]), _merged([self.edge, other.edge])
        return PairCounts(self.n_labels, state, edge, self.labels + other.labels, self.transitions + other.transitions)


@dataclass(frozen=True, eq=False, repr=False)
class Layout(Record):
    """Which weights a model has, in the order of its weight vector.

    First the state weights, by attribute and label; then transitions by label and next label, start weights, end
    weights, edge weights by attribute, label and next label, and, beyond the first order, those of tuples of labels.

    Attributes
    ----------
    n_labels : int
    state_ptr : uint32 [attributes + 1], state_label : uint16
        Labels that each attribute has a weight with.
    transition : int32 [L * L]
        Number of the weight of each label pair, -1 where there is none.
    start, end : int
        First of L weights, or -1.
    edge_ptr : uint32 [edge attributes + 1], edge_pair : uint32
        Label pairs (i * L + j) that each edge attribute has a weight with; empty without edge attributes.
    edge_first : int
        Number of the first edge weight.
    size : int
        Number of weights.
    order : int
        How many labels before it a label depends on.
    tuples : uint64 [K]
        Numbers of the tuples of three labels or more that have weights, the last K of all; see ``tuple_numbers`` and
        ``with_attribute`` of :mod:`crfkit.base.numbers`.
    classes : uint16 [L]
        Class of each label, by which tuples are numbered; empty for the first order.
    """

    n_labels: int
    state_ptr: NDArray[np.uint32]
    state_label: NDArray[np.uint16]
    transition: NDArray[np.int32]
    start: int
    end: int
    edge_ptr: NDArray[np.uint32]
    edge_pair: NDArray[np.uint32]
    edge_first: int
    size: int
    order: int = 1
    tuples: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    classes: NDArray[np.uint16] = field(default_factory=lambda: np.zeros(0, np.uint16))

    @property
    def class_of(self) -> NDArray[np.uint16]:
        """Class of each label; where there are none, each label is its own."""
        return self.classes if len(self.classes) else np.arange(self.n_labels, dtype=np.uint16)

    @property
    def n_classes(self) -> int:
        """Number of the classes of labels."""
        return int(self.class_of.max(initial=0)) + 1

    @property
    def tuples_with_attributes(self) -> bool:
        """Whether attributes of transitions have weights with tuples."""
        return len(self.tuples) > 0 and int(self.tuples[-1]) >= n_tuples(self.n_classes, self.order)

    @property
    def tuple_first(self) -> int:
        """Number of the first weight of a tuple."""
        return self.size - len(self.tuples)

    @classmethod
    def build(
        cls,
        data: Dataset,
        labels: NDArray[np.int32],
        n_labels: int,
        n_attributes: tuple[int, int],
        rule: WeightRules = WeightRules(),  # noqa: B008
        *,
        base: Layout | None = None,
        hints: NDArray[np.float64] | None = None,
    ) -> Layout:
        """The weights that labelled data asks for.

        Parameters
        ----------
        data : Dataset
        labels : int32 [N]
            -1 where the label is not known; such tokens ask for no weights. -2 - k where hint k says which ones are
            possible; they ask for the weights of all of these.
        n_labels : int
        n_attributes : (int, int)
            Of tokens, of transitions.
        rule : WeightRules
        base : Layout, optional
            A layout whose weights must be among the new ones; its labels come first.
        hints : float64 [K, L], optional
            Minus infinity for labels that are not possible.
        """
        state, edge = rule.all_rows(data, labels, n_labels, n_attributes, hints)
        seen = _seen_pairs(labels, data.offsets, n_labels, rule.min_freq if rule.rare else 0)
        if base is not None:
            old = base.n_labels
            state = _union(state, (base.state_ptr, base.state_label.astype(np.uint32)), n_labels)
            if len(base.edge_ptr):
                edge = _union(edge, (base.edge_ptr, base._edge_pairs(n_labels)), n_labels * n_labels)
            i, j = np.nonzero(base.transition.reshape(old, old) >= 0)
            seen = np.union1d(seen, i * n_labels + j)
        if rule.all_possible_transitions and not rule.rare:
            seen = np.arange(n_labels * n_labels)
        first = cls._numbered(n_labels, state, seen if rule.transitions else seen[:0], rule.start_end, edge)
        if rule.order == 1:
            return first
        classes = rule.class_of(n_labels)
        n_classes = int(classes.max()) + 1
        many = n_tuples(n_classes, rule.order)
        if many * (n_attributes[1] + 1) >= 2**63:
            raise ValueError(
                f"{n_classes} labels and {n_attributes[1]} attributes of transitions are too many for 'order' "
                f"{rule.order}: lower 'order'"
            )
        tuples = rule.tuples(labels, data, n_labels, len(first.edge_ptr) > 1)
        if base is not None:
            tuples = np.union1d(tuples, _tuples_among(base.tuples, base.order, base.n_classes, n_classes))
        if len(first.edge_ptr):  # attributes whose label pairs are all rare have no weights
            attribute, _ = split_attribute(tuples, many)
            tuples = tuples[np.concatenate([[True], np.diff(first.edge_ptr) > 0])[attribute + 1]]
        size = first.size + len(tuples)
        return replace(first, size=size, order=rule.order, tuples=tuples, classes=classes)

    @classmethod
    def of_counts(cls, counts: PairCounts, n_attributes: tuple[int, int], rule: WeightRules) -> Layout:
        """The weights for labelled data of which only the counts are known; not for ``rule.sums``."""
        n, (n_state, n_edge) = counts.n_labels, n_attributes

        def kept(table: Counts, n_rows: int, n_columns: int) -> Rows:
            if rule.all_possible_states:
                none = np.zeros(0, np.uint32)
                return rule.rows(np.zeros(1, np.int64), none, None, n_rows, none, n_columns)
            return _from_keys(table[0][table[1] >= rule.min_freq], n_rows, n_columns)

        state = kept(counts.state, n_state, n)
        edge = kept(counts.edge, n_edge, n * n) if n_edge else _NO_ROWS
        seen = np.arange(n * n) if rule.all_possible_transitions else np.flatnonzero(counts.transitions)
        return cls._numbered(n, state, seen if rule.transitions else seen[:0], rule.start_end, edge)

    @classmethod
    def _numbered(cls, n_labels: int, state: Rows, pairs: NDArray[Any], ends: bool, edge: Rows) -> Layout:
        """Numbers the weights."""
        size = len(state[1])
        transition = np.full(n_labels * n_labels, -1, np.int32)
        transition[pairs] = size + np.arange(len(pairs))
        size += len(pairs)
        start, end = (size, size + n_labels) if ends else (-1, -1)
        size += 2 * n_labels * ends
        total = size + len(edge[1])
        if total >= 2**31:
            raise ValueError(f"the model would have {total} weights, more than 2^31: raise 'min_freq'")
        return cls(n_labels, state[0], state[1].astype(np.uint16), transition, start, end, *edge, size, total)

    def _edge_pairs(self, n_labels: int) -> NDArray[np.uint32]:
        """The label pairs of the edge attributes, numbered as among more labels."""
        return self.edge_pair // self.n_labels * n_labels + self.edge_pair % self.n_labels

    def without_empty_rows(self) -> Layout:
        """The same weights, with the attributes renumbered that have any."""

        def packed(ptr: NDArray[np.uint32]) -> NDArray[np.uint32]:
            return np.unique(ptr) if len(ptr) else ptr

        tuples = self.tuples
        if self.tuples_with_attributes:
            many = n_tuples(self.n_classes, self.order)
            number = np.concatenate([np.cumsum(np.diff(self.edge_ptr) > 0) - 1, [-1]])  # the last: of those without
            attribute, tuples = split_attribute(tuples, many)
            tuples = with_attribute(tuples, number[attribute], many)
        return replace(self, state_ptr=packed(self.state_ptr), edge_ptr=packed(self.edge_ptr), tuples=tuples)

    def move_weights(self, w: NDArray[np.float64], target: Layout) -> NDArray[np.float64]:
        """The weights of this layout in the places of a larger one; the others are zero."""
        out = np.zeros(target.size)
        n, m = self.n_labels, target.n_labels

        def move(mine: NDArray[Any], theirs: NDArray[Any], first: int, target_first: int) -> None:
            at = np.searchsorted(theirs, mine)
            found = at < len(theirs)
            found[found] = theirs[at[found]] == mine[found]
            out[target_first + at[found]] = w[first : first + len(mine)][found]

        states = _row_keys(target.state_ptr, target.state_label, m)
        move(_row_keys(self.state_ptr, self.state_label, m), states, 0, 0)
        if len(self.edge_ptr) and len(target.edge_ptr):
            edges = _row_keys(target.edge_ptr, target.edge_pair, m * m)
            move(_row_keys(self.edge_ptr, self._edge_pairs(m), m * m), edges, self.edge_first, target.edge_first)
        mine_among = _tuples_among(self.tuples, self.order, self.n_classes, target.n_classes)
        move(mine_among, target.tuples, self.tuple_first, target.tuple_first)
        mine = self.transition.reshape(n, n)
        theirs = target.transition.reshape(m, m)[:n, :n]
        both = (mine >= 0) & (theirs >= 0)
        out[theirs[both]] = w[mine[both]]
        for a, b in ((self.start, target.start), (self.end, target.end)):
            if a >= 0 and b >= 0:
                out[b : b + n] = w[a : a + n]
        return out

    @cached_property
    def native(self) -> _core.Layout:
        """The same, as the core takes it."""
        own = ("order", "tuples", "classes")
        arrays = self.arrays()
        for x in arrays.values():
            x.flags.writeable = False  # the core takes no copies
        return _core.Layout(**{k: v for k, v in {**arrays, **self.numbers()}.items() if k not in own})

    def __getstate__(self) -> dict[str, Any]:
        return {name: x for name, x in vars(self).items() if name != "native"}

    def arrays(self) -> dict[str, Any]:
        """The arrays, by name."""
        names = ["state_ptr", "state_label", "transition", "edge_ptr", "edge_pair"]
        return {
            name: np.ascontiguousarray(getattr(self, name)) for name in names + ["tuples", "classes"] * (self.order > 1)
        }

    def numbers(self) -> dict[str, Any]:
        """The plain numbers, by name."""
        names = ["n_labels", "start", "end", "edge_first", "size"]
        return {name: int(getattr(self, name)) for name in names + ["order"] * (self.order > 1)}
