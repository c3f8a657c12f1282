"""Exact inference on segmentations: sums, probabilities, best segmentations, samples, entropies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit import _core
from crfkit.base.parameters import check_number
from crfkit.base.shown import Record
from crfkit.base.threads import resolve_threads
from crfkit.segment.potentials import Floats, Potentials

#: (start, end, label) of each segment, [M, 3]
Segments = NDArray[np.int64]


class NBest(NamedTuple):
    """The best segmentations of a sequence, best first.

    Attributes
    ----------
    segments : list of int64 arrays [M, 3]
    scores : float64 array [k]
    """

    segments: list[Segments]
    scores: NDArray[np.float64]


class Sums(NamedTuple):
    """What scores are summed into, as the core takes it; the same shapes as the scores."""

    log_z: NDArray[np.float64]
    nodes: Any = None
    begins: Any = None
    ends: Any = None
    pairs: Any = None
    lengths: Any = None
    tail: Any = None
    items: Any = None
    enter: Any = None
    leave: Any = None

    @classmethod
    def of(cls, p: Potentials, tokens: bool = True, messages: bool = False) -> Sums:
        """Empty places for all sums of potentials."""
        tokens_shape, kind = p.unary.shape, p.unary.dtype
        n = p.n_labels

        out = cls(np.zeros(len(p)))
        if messages:
            out = out._replace(enter=np.zeros(tokens_shape), leave=np.zeros(tokens_shape))
        if not tokens:
            return out
        listed = 0 if p.segments is None else len(p.segments)
        return out._replace(
            nodes=np.zeros(tokens_shape, kind),
            begins=np.zeros(tokens_shape, kind),
            ends=np.zeros(tokens_shape, kind),
            pairs=np.zeros((n, n)),
            lengths=np.zeros((p.max_length, n)),
            tail=np.zeros(n) if p.tail is not None else None,
            items=np.zeros((listed, n), kind) if listed else None,
        )


def _require_alive(log_z: NDArray[np.float64]) -> None:
    dead = np.flatnonzero(np.isneginf(log_z))
    if len(dead):
        raise ValueError(f"sequence {int(dead[0])}: no segmentation is allowed")


def _sums(p: Potentials, n_jobs: int | None, out: Sums, weight: Any = None) -> Sums:
    _core.segment_sums(p.lattice, resolve_threads(n_jobs), weight, tuple(out))
    _require_alive(out.log_z)
    return out


def _one(p: Potentials, values: NDArray[np.float64]) -> Any:
    return values if p.offsets is not None else float(values[0])


def _in_given_order(p: Potentials, items: Any) -> Any:
    """Rows of the listed segments in the order in which they were given."""
    if items is None:
        return None if p.segments is None else np.zeros((0, p.n_labels), p.unary.dtype)
    out = np.empty_like(items)
    out[p.item_order] = items
    return out


@dataclass(frozen=True, eq=False, repr=False)
class Marginals(Record):
    r"""Probabilities of labels, borders and segments.

    Attributes
    ----------
    log_z : float, or float64 array [S] for a batch
    nodes : array [T, L]
        P(token t is in a segment with label j); for a batch, the tokens of all sequences one after another.
    begins, ends : array [T, L]
        P(a segment with label j begins with token t), and that one ends with it.
    pairs : float64 array [L, L]
        Expected number of neighbouring segments with labels i and j, in all sequences.
    lengths : float64 array [K, L]
        Expected number of segments of each length and label; with a tail, the last row counts all that are longer too.
    tail : float64 array [L] or None
        Expected number of tokens beyond K.
    listed : array [M, L] or None
        P(segment has label j), for the segments that have scores of their own.
    """

    log_z: Any
    nodes: Floats
    begins: Floats
    ends: Floats
    pairs: NDArray[np.float64]
    lengths: NDArray[np.float64]
    tail: NDArray[np.float64] | None
    listed: Floats | None
    _potentials: Potentials
    _messages: tuple[NDArray[np.float64], NDArray[np.float64]] | None
    _n_jobs: int | None

    def _shown(self) -> dict[str, str]:
        return {k: v for k, v in super()._shown().items() if not k.startswith("_")}

    @property
    def borders(self) -> Floats:
        """P(a segment begins with token t), [T]."""
        out: Floats = self.begins.sum(axis=1)
        return out

    @cached_property
    def _both(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """What leads to a beginning, what follows an end, both in log space, and log Z of each token's sequence."""
        p = self._potentials
        if p.unary.dtype == np.float32:  # logarithms of long sequences need more digits
            fields = {name: getattr(p, name) for name in p.__dataclass_fields__}
            p = Potentials(**{k: v.astype(np.float64) if _is_single(v) else v for k, v in fields.items()})
        found = _sums(p, self._n_jobs, Sums.of(p, tokens=False, messages=True))
        of_token = np.repeat(found.log_z, np.diff(p.all_offsets))
        return found.enter, found.leave, of_token

    def probability(self, segments: ArrayLike) -> NDArray[np.float64]:
        """Probability of each segment (start, end, label): that a segmentation has it with exactly these boundaries.

        Parameters
        ----------
        segments : int array [M, 3]
            For a batch, in tokens of the whole batch.

        Returns
        -------
        float64 array [M]

        Examples
        --------
        >>> from crfkit import segment
        >>> p = segment.Potentials([[0.0], [0.0]], [[0.0], [0.0]], [[0.0]])  # one segment, or two
        >>> segment.marginals(p).probability([(0, 2, 0), (0, 1, 0)]).round(6).tolist()
        [0.5, 0.5]
        """
        from crfkit.segment.scores import segment_scores

        p = self._potentials
        asked = p._check_rows(segments)
        enter, leave, log_z = self._both
        a, b, j = asked.T
        inner = segment_scores(p, asked)
        with np.errstate(invalid="ignore"):
            found = np.exp(enter[a, j] + inner + leave[b - 1, j] - log_z[a])
        return np.asarray(np.nan_to_num(found, nan=0.0))

    @cached_property
    def segments(self) -> NDArray[np.float64]:
        """P(a segment with label j begins with token t and has k tokens), [T, K, L], where row k - 1 is of length k."""
        p = self._potentials
        tokens, n = p.unary.shape
        out = np.zeros((tokens, p.max_length, n))
        room = np.repeat(p.all_offsets[1:], np.diff(p.all_offsets)) - np.arange(tokens)
        for k in range(1, p.max_length + 1):
            t = np.flatnonzero(room >= k)
            asked = np.stack([np.repeat(t, n), np.repeat(t + k, n), np.tile(np.arange(n), len(t))], axis=1)
            out[t, k - 1] = self.probability(asked).reshape(-1, n)
        return out


def _is_single(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype == np.float32


def log_partition(p: Potentials, n_jobs: int | None = None) -> Any:
    r"""Logarithm of the sum over all segmentations, :math:`\log Z`.

    Time :math:`O(T (L^2 + K L))`: the previous label is summed out before the lengths are.

    Returns
    -------
    float, or float64 array [S] for a batch

    Examples
    --------
    >>> from crfkit import segment
    >>> p = segment.Potentials([[0.0]] * 3, [[0.0]] * 3, [[0.0]])
    >>> round(float(np.exp(segment.log_partition(p))))  # ways to cut three tokens
    4
    """
    return _one(p, _sums(p, n_jobs, Sums.of(p, tokens=False)).log_z)


def marginals(p: Potentials, n_jobs: int | None = None) -> Marginals:
    """Probabilities of labels at tokens, of borders, lengths and segments.

    Returns
    -------
    Marginals

    Examples
    --------
    >>> from crfkit import segment
    >>> p = segment.Potentials([[0.0]] * 3, [[0.0]] * 2, [[0.0]])  # 1+1+1, 1+2 or 2+1
    >>> m = segment.marginals(p)
    >>> m.borders.round(6).tolist(), m.segments[0, :, 0].round(6).tolist()
    ([1.0, 0.666667, 0.666667], [0.666667, 0.333333])
    """
    s = _sums(p, n_jobs, Sums.of(p))
    rows = s.nodes, s.begins, s.ends, s.pairs, s.lengths, s.tail
    return Marginals(_one(p, s.log_z), *rows, _in_given_order(p, s.items), p, None, n_jobs)


def _segmentations(p: Potentials, found: tuple[Any, ...]) -> list[list[Segments]]:
    """Segments of each segmentation of each sequence, out of counts, sizes, ends and labels."""
    count, size, end, label = found[:4]
    start = np.concatenate([[0], end[:-1]]) if len(end) else end
    firsts = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    start[firsts[:-1][size > 0]] = 0
    rows = np.stack([start, end, label.astype(np.int64)], axis=1) if len(end) else np.zeros((0, 3), np.int64)
    parts = np.split(rows, firsts[1:-1]) if len(size) else []
    bounds = np.concatenate([[0], np.cumsum(count)])
    return [parts[a:b] for a, b in pairwise(bounds.tolist())]


def decode(p: Potentials, n_jobs: int | None = None) -> Any:
    """The best segmentation.

    Returns
    -------
    int64 array [M, 3], or a list of them for a batch
        (start, end, label) of each segment, in tokens of its sequence.

    Examples
    --------
    >>> from crfkit import segment
    >>> p = segment.Potentials([[1.0, 0.0]] * 3, [[0.0, 0.0]] * 2 + [[1.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]])
    >>> segment.decode(p).tolist()
    [[0, 3, 0]]
    """
    found = nbest(p, 1, n_jobs)
    if p.offsets is None:
        return found.segments[0]
    return [x.segments[0] for x in found]


def nbest(p: Potentials, k: int, n_jobs: int | None = None) -> Any:
    """The ``k`` best segmentations, best first, with their scores; fewer if there are not as many.

    Returns
    -------
    NBest, or a list of them for a batch

    Examples
    --------
    >>> from crfkit import segment
    >>> best = segment.nbest(segment.Potentials([[0.0]] * 2, [[0.0], [1.0]], [[0.0]]), 5)
    >>> [s.tolist() for s in best.segments], best.scores.tolist()
    ([[[0, 2, 0]], [[0, 1, 0], [1, 2, 0]]], [1.0, 0.0])
    """
    check_number("nbest", "k", k, 1, integer=True)
    found = _core.segment_best(p.lattice, resolve_threads(n_jobs), min(int(k), 2**31 - 1))
    counts = found[0]
    if (counts == 0).any():
        raise ValueError(f"sequence {int(np.argmax(counts == 0))}: no segmentation is allowed")
    scores = np.split(found[4], np.cumsum(counts)[:-1]) if len(counts) else []
    out = [NBest(s, x) for s, x in zip(_segmentations(p, found), scores, strict=True)]
    return out if p.offsets is not None else out[0]


def sample(p: Potentials, n: int = 1, rng: Any = None, n_jobs: int | None = None) -> Any:
    """Segmentations drawn from their distribution.

    Parameters
    ----------
    p : Potentials
        The scores.
    n : int
        Number of samples for each sequence.
    rng : int or numpy.random.Generator, optional
        Results do not depend on the number of threads.
    n_jobs : int, optional
        Threads; -1 or None for all cores.

    Returns
    -------
    list of int64 arrays [M, 3], or a list of such lists for a batch

    Examples
    --------
    >>> from crfkit import segment
    >>> [s.tolist() for s in segment.sample(segment.Potentials([[0.0]] * 2, [[0.0]], [[0.0]]), 1, rng=0)]
    [[[0, 1, 0], [1, 2, 0]]]
    """
    check_number("sample", "n", n, 0, integer=True)
    seed = int(np.random.default_rng(rng).integers(2**63))
    wide = tuple(x.astype(np.float64) if _is_single(x) else x for x in p.lattice)
    if wide[8] is not None:
        wide = (*wide[:8], (*wide[8][:2], wide[8][2].astype(np.float64)), *wide[9:])
    found = _core.segment_sample(wide, resolve_threads(n_jobs), int(n), seed)
    if n and (found[0] == 0).any():
        raise ValueError(f"sequence {int(np.argmax(found[0] == 0))}: no segmentation is allowed")
    out = _segmentations(p, found)
    return out if p.offsets is not None else out[0]
