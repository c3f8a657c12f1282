"""The scores of segmentations, which every inference function of :mod:`crfkit.segment` takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit.base.numbers import inner_tokens
from crfkit.base.scores import as_scores, check_scores, check_shapes, check_tokens
from crfkit.base.shown import Record

Floats = NDArray[np.floating[Any]]
#: What the core takes: scores of tokens, of beginnings and ends, of pairs and lengths, the tail and its order, borders,
#: listed segments, offsets.
Lattice = tuple[Any, ...]
MOST_ORDER = 1000  # of a tail


@dataclass(frozen=True, eq=False, repr=False)
class Potentials(Record):
    r"""Scores of the segmentations of one sequence, or of a ragged batch of sequences.

    A segmentation cuts a sequence of T tokens into segments :math:`(a, b, j)`: tokens a to b - 1 have the label j. Its
    score is

    .. math::

        s = \sum_{(a, b, j)} \Bigl( \text{first}_a(j) + \sum_{t=a}^{b-1} U_t(j) + \text{last}_{b-1}(j)
            + D_{b-a}(j) + S_{ab}(j) \Bigr) + \sum_{(i, j)} A(i, j) + \text{start} + \text{end}

    with the pairs (i, j) of neighbouring segments, and start and end scores of the first and of the last label. Its
    probability is :math:`e^s / Z`. A score of minus infinity forbids. Segments of the same label may follow each other;
    a score of minus infinity on the diagonal of A forbids that.

    Parameters
    ----------
    unary : array [T, L]
        Scores of the labels of each token, summed over a segment. For a batch, the tokens of all sequences one after
        another.
    lengths : array [K, L]
        Scores of segments of 1, ..., K tokens. Longer ones are forbidden unless there is a ``tail``.
    pairwise : array [L, L]
        Scores of a segment with label i followed by one with label j.
    start, end : array [L], optional
        Scores of the first and of the last label.
    first, last : array [T, L], optional
        Scores of segments that begin with a token, and that end with it.
    segments : int array [M, 2], optional
        Segments that have scores of their own, as (start, end), for a batch in tokens of the whole batch. None may
        be longer than K, or than K - 1 with a tail.
    segment_scores : array [M, L], optional
        Their scores, for each label.
    tail : array [L], optional
        Allows segments of any length: K + m tokens have the score
        :math:`D_K(j) + m\, \text{tail}_j + \log \binom{m + r - 1}{r - 1}`, a geometric distribution of lengths for
        r = 1 and a negative-binomial one otherwise.
    tail_order : int
        The order r of the tail, at most 1000.
    borders : int array [T], optional
        1 where a segment must begin with the token, -1 where none may, 0 elsewhere; not -1 where a sequence begins.
    allowed : bool array [T, L], optional
        Labels that a token may have.
    offsets : int array [S + 1], optional
        Given for a batch: the first token of each sequence, and the number of tokens.

    Raises
    ------
    ValueError
        If shapes do not fit, or a score is NaN or plus infinity.

    Examples
    --------
    >>> from crfkit import segment
    >>> lengths, pairwise = [[0.0, 0.0], [0.5, -1.0]], [[-1.0, 0.0], [0.0, 0.0]]
    >>> p = segment.Potentials([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]], lengths, pairwise)
    >>> segment.decode(p).tolist()  # start, end, label
    [[0, 2, 0], [2, 3, 1]]
    """

    unary: Floats
    lengths: Floats
    pairwise: Floats
    start: Floats | None = None
    end: Floats | None = None
    first: Floats | None = None
    last: Floats | None = None
    segments: NDArray[np.int64] | None = None
    segment_scores: Floats | None = None
    tail: Floats | None = None
    tail_order: int = 1
    borders: NDArray[np.int8] | None = None
    allowed: NDArray[np.bool_] | None = None
    offsets: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        scores = ("unary", "lengths", "pairwise", "start", "end", "first", "last", "segment_scores", "tail")
        given = as_scores({name: getattr(self, name) for name in scores})
        fields: dict[str, Any] = dict(given)
        for name, kind in (("segments", np.int64), ("borders", np.int8), ("allowed", bool), ("offsets", np.int64)):
            if getattr(self, name) is not None:
                value = np.asarray(getattr(self, name))
                if kind is not bool and value.size and value.dtype.kind not in "biu":
                    raise ValueError(f"{name!r} must hold ints, got {value.dtype}")
                value = value.reshape(0, 2) if name == "segments" and value.size == 0 else value
                fields[name] = np.ascontiguousarray(value, kind)
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        self._check_shapes()
        self._check_segments()
        check_scores(given, self.offsets)

    def _check_shapes(self) -> None:
        check_tokens(self.unary, self.offsets)
        tokens, labels = self.unary.shape
        if self.lengths.ndim != 2 or self.lengths.shape[0] == 0 or self.lengths.shape[1] != labels:
            raise ValueError(f"'lengths' must have shape [K, {labels}] with K >= 1, got {self.lengths.shape}")
        if (self.segments is None) != (self.segment_scores is None):
            raise ValueError("'segments' and 'segment_scores' must be given together")
        listed = 0 if self.segments is None else len(self.segments)
        shapes = dict.fromkeys(("first", "last", "allowed"), (tokens, labels))
        shapes |= {"pairwise": (labels, labels), "segments": (listed, 2), "segment_scores": (listed, labels)}
        check_shapes(self, {**shapes, **dict.fromkeys(("start", "end", "tail"), (labels,)), "borders": (tokens,)})
        if not isinstance(self.tail_order, (int, np.integer)) or not 1 <= self.tail_order <= MOST_ORDER:
            raise ValueError(f"'tail_order' must be an int from 1 to {MOST_ORDER}, got {self.tail_order!r}")
        if self.tail is None and self.tail_order != 1:
            raise ValueError(f"'tail_order' needs a 'tail', got {self.tail_order!r} without one")
        if self.borders is not None and not np.isin(self.borders, (-1, 0, 1)).all():
            raise ValueError("'borders' must be 1, 0 or -1")
        if self.borders is not None:
            wrong = np.flatnonzero((self.borders < 0) & ~inner_tokens(self.all_offsets))
            if len(wrong):
                raise ValueError(f"'borders' must not be -1 where a sequence begins, got -1 at borders[{wrong[0]}]")

    def _check_segments(self) -> None:
        if self.segments is None:
            return
        a, b = self.segments.T
        longest = self.max_length - (self.tail is not None)
        wrong = np.flatnonzero(~self._inside(self.segments) | (b - a > longest))
        if len(wrong):
            i = int(wrong[0])
            raise ValueError(
                f"segments[{i}] must lie in one sequence and have at most {longest} tokens, "
                f"got {(int(a[i]), int(b[i]))}"
            )
        order = np.lexsort((b - a, b))
        if (np.diff(b[order]) + np.diff((b - a)[order]) == 0).any() and len(np.unique(self.segments, axis=0)) < len(
            self.segments
        ):
            raise ValueError("'segments' must not name a segment twice")

    def _inside(self, segments: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether segments [M, 2] have tokens and lie in one sequence."""
        a, b = segments.T
        of = np.searchsorted(self.all_offsets, segments - [0, 1], side="right")
        return np.asarray((a >= 0) & (b > a) & (b <= len(self.unary)) & (of[:, 0] == of[:, 1]))

    def _check_rows(self, segments: ArrayLike) -> NDArray[np.int64]:
        """Segments (start, end, label) [M, 3] as an array; raises ValueError unless they can be those of a sequence."""
        given = np.asarray(segments)
        if given.size and (given.dtype.kind not in "iu" or given.ndim != 2 or given.shape[1] != 3):
            shape = f"{given.dtype} {given.shape}"
            raise ValueError(f"'segments' must be rows of ints (start, end, label), got an array of {shape}")
        rows = given.astype(np.int64).reshape(-1, 3)
        j = rows[:, 2]
        if ((j < 0) | (j >= self.n_labels)).any():
            raise ValueError(f"labels in 'segments' must be numbers from 0 to {self.n_labels - 1}, got {j.tolist()}")
        wrong = np.flatnonzero(~self._inside(rows[:, :2]))
        if len(wrong):
            i = int(wrong[0])
            raise ValueError(f"segments[{i}] must lie in one sequence and have tokens, got {tuple(rows[i].tolist())}")
        return rows

    @property
    def n_labels(self) -> int:
        """Number of labels, L."""
        return int(self.unary.shape[1])

    @property
    def max_length(self) -> int:
        """Number of lengths in the table, K."""
        return int(self.lengths.shape[0])

    def __len__(self) -> int:
        """Number of sequences, 1 if this is not a batch."""
        return 1 if self.offsets is None else len(self.offsets) - 1

    @cached_property
    def all_offsets(self) -> NDArray[np.int64]:
        """First token of each sequence, and the number of tokens."""
        return np.array([0, len(self.unary)]) if self.offsets is None else self.offsets

    def __getitem__(self, i: int) -> Potentials:
        """Sequence ``i`` of a batch, by itself."""
        if not -len(self) <= i < len(self):
            raise IndexError(f"there is no sequence {i} in a batch of {len(self)}")
        if self.offsets is None:
            return self
        i %= len(self)
        a, b = int(self.offsets[i]), int(self.offsets[i + 1])
        parts: dict[str, Any] = {
            name: None if (x := getattr(self, name)) is None else x[a:b]
            for name in ("unary", "first", "last", "borders", "allowed")
        }
        if self.segments is not None and self.segment_scores is not None:
            mine = (self.segments[:, 0] >= a) & (self.segments[:, 1] <= b)
            parts |= {"segments": self.segments[mine] - a, "segment_scores": self.segment_scores[mine]}
        same = {name: getattr(self, name) for name in ("lengths", "pairwise", "start", "end", "tail", "tail_order")}
        return Potentials(**parts, **same)

    def __iter__(self) -> Iterator[Potentials]:
        return (self[i] for i in range(len(self)))

    @cached_property
    def item_order(self) -> NDArray[np.int64]:
        """The listed segments in the order of the core: by last token, then by length."""
        assert self.segments is not None
        a, b = self.segments.T
        return np.lexsort((b - a, b))

    @cached_property
    def lattice(self) -> Lattice:
        """The same scores in the form that the core takes."""
        offsets, unary = self.all_offsets, self.unary
        if self.start is not None or self.end is not None or self.allowed is not None:
            unary = unary.copy()
            filled = np.diff(offsets) > 0
            if self.start is not None:
                unary[offsets[:-1][filled]] += self.start
            if self.end is not None:
                unary[offsets[1:][filled] - 1] += self.end
            if self.allowed is not None:
                unary[~self.allowed] = -np.inf
        borders = None if self.borders is None else np.where(self.borders < 0, 2, self.borders).astype(np.uint8)
        items = None
        if self.segments is not None and self.segment_scores is not None and len(self.segments):
            order = self.item_order
            a, b = self.segments[order].T
            ptr = np.searchsorted(b, np.arange(1, len(unary) + 2))
            items = ptr.astype(np.int64), (b - a).astype(np.int32), np.ascontiguousarray(self.segment_scores[order])
        parts = unary, self.first, self.last, self.pairwise, self.lengths, self.tail
        return (*parts, int(self.tail_order), borders, items, np.ascontiguousarray(offsets, np.int64))
