"""Scores of given segmentations, and entropies with their gradients."""

from __future__ import annotations

from math import lgamma
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit import _core
from crfkit.base.threads import resolve_threads
from crfkit.segment.inference import Sums, _in_given_order, _is_single, _one, _require_alive, log_partition
from crfkit.segment.potentials import Potentials


class EntropyGradient(NamedTuple):
    """The entropy of segmentations and its gradient with respect to the scores, in the shapes of the scores.

    Attributes
    ----------
    entropy : float, or float64 array [S] for a batch
    unary, first, last : float64 arrays [T, L]
    pairwise : float64 array [L, L]
    lengths : float64 array [K, L]
    tail : float64 array [L] or None
    segment_scores : float64 array [M, L] or None
    """

    entropy: Any
    unary: NDArray[np.float64]
    first: NDArray[np.float64]
    last: NDArray[np.float64]
    pairwise: NDArray[np.float64]
    lengths: NDArray[np.float64]
    tail: NDArray[np.float64] | None
    segment_scores: NDArray[np.float64] | None


def length_scores(p: Potentials, k: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float64]:
    """Scores of lengths and labels; minus infinity where a length is not allowed."""
    out = np.full(len(k), -np.inf)
    short = k <= p.max_length
    out[short] = p.lengths[k[short] - 1, j[short]]
    if p.tail is not None:
        m, r = (k - p.max_length)[~short], p.tail_order
        ways = np.array([lgamma(x + r) - lgamma(r) - lgamma(x + 1) for x in m])
        out[~short] = p.lengths[-1, j[~short]] + m * p.tail[j[~short]] + ways
    return out


def segment_scores(p: Potentials, segments: NDArray[np.int64]) -> NDArray[np.float64]:
    """Scores of tokens, length and listed segment, of segments (start, end, label): what is within each."""
    a, b, j = segments.T
    unary = p.lattice[0].astype(np.float64)
    finite = np.where(np.isneginf(unary), 0.0, unary)
    sums = np.concatenate([np.zeros((1, p.n_labels)), np.cumsum(finite, axis=0)])
    closed = np.concatenate([np.zeros((1, p.n_labels)), np.cumsum(np.isneginf(unary), axis=0)])
    out: NDArray[np.float64] = sums[b, j] - sums[a, j] + length_scores(p, b - a, j)
    out[closed[b, j] > closed[a, j]] = -np.inf
    if p.borders is not None:
        crossed = np.concatenate([[0], np.cumsum(p.borders > 0)])
        out[crossed[b] > crossed[a + 1]] = -np.inf
    if p.segments is not None and p.segment_scores is not None and len(p.segments):
        place = {(x, y): i for i, (x, y) in enumerate(p.segments.tolist())}
        at = np.array([place.get(pair, -1) for pair in zip(a.tolist(), b.tolist(), strict=True)], np.int64)
        listed = at >= 0
        out[listed] += p.segment_scores[at[listed], j[listed]]
    return out


def score(p: Potentials, segments: ArrayLike) -> float:
    """The score of one segmentation of a single sequence.

    Parameters
    ----------
    p : Potentials
        The scores.
    segments : int array [M, 3]
        (start, end, label) of each segment, first to last.

    Examples
    --------
    >>> from crfkit import segment
    >>> p = segment.Potentials([[1.0], [2.0]], [[0.0], [0.5]], [[-1.0]])
    >>> segment.score(p, [(0, 2, 0)]), segment.score(p, [(0, 1, 0), (1, 2, 0)])
    (3.5, 2.0)
    """
    if p.offsets is not None:
        raise ValueError("'score' is for a single sequence, not for a batch")
    rows = p._check_rows(segments)
    a, b, j = rows.T
    if (np.append(a, len(p.unary)) != np.append(0, b)).any():
        raise ValueError("'segments' must cover the sequence, one after another")
    total = float(segment_scores(p, rows).sum()) + float(p.pairwise[j[:-1], j[1:]].sum())
    if p.first is not None:
        total += float(p.first[a, j].sum())
    if p.last is not None:
        total += float(p.last[b - 1, j].sum())
    if p.borders is not None and (p.borders[a[1:]] < 0).any():
        return -np.inf
    return total


def log_probability(p: Potentials, segments: ArrayLike) -> float:
    """The logarithm of the probability of one segmentation of a single sequence; arguments as for :func:`score`.

    Examples
    --------
    >>> from crfkit import segment
    >>> p = segment.Potentials([[0.0], [0.0]], [[0.0], [0.0]], [[0.0]])
    >>> round(segment.log_probability(p, [(0, 2, 0)]), 6) == round(float(np.log(0.5)), 6)
    True
    """
    return score(p, segments) - float(log_partition(p))


def _entropies(p: Potentials, n_jobs: int | None, gradient: bool) -> tuple[NDArray[np.float64], Sums]:
    wide = tuple(x.astype(np.float64) if _is_single(x) else x for x in p.lattice)
    if wide[8] is not None:
        wide = (*wide[:8], (*wide[8][:2], wide[8][2].astype(np.float64)), *wide[9:])
    out = Sums.of(p, tokens=gradient)
    if p.unary.dtype == np.float32:
        out = Sums(*(x.astype(np.float64) if _is_single(x) else x for x in out))
    values = np.zeros(len(p))
    _core.segment_entropies(wide, resolve_threads(n_jobs), values, tuple(out))
    _require_alive(out.log_z)
    return values, out


def entropy(p: Potentials, n_jobs: int | None = None) -> Any:
    r"""Entropy of the distribution of segmentations, in nats: :math:`-\sum_y p(y) \log p(y)`.

    Returns
    -------
    float, or float64 array [S] for a batch

    Examples
    --------
    >>> from crfkit import segment
    >>> p = segment.Potentials([[0.0]] * 3, [[0.0]] * 3, [[0.0]])
    >>> round(float(np.exp(segment.entropy(p))), 6)
    4.0
    """
    return _one(p, _entropies(p, n_jobs, False)[0])


def entropy_gradient(p: Potentials, n_jobs: int | None = None) -> EntropyGradient:
    r"""Gradient of the (summed) entropy with respect to all scores, :math:`-\operatorname{Cov}(f(y), s(y))`.

    It is the derivative of the expectations in the direction of the scores, computed in one pass with dual numbers in
    :math:`O(T (L^2 + K L))`.

    Returns
    -------
    EntropyGradient

    Examples
    --------
    >>> from crfkit import segment
    >>> p = segment.Potentials([[0.0]] * 3, [[0.0]] * 3, [[0.0]])
    >>> abs(segment.entropy_gradient(p).lengths).max() < 1e-12  # the uniform distribution has the most entropy
    np.True_
    """
    values, s = _entropies(p, n_jobs, True)
    rows = s.nodes, s.begins, s.ends, s.pairs, s.lengths, s.tail
    return EntropyGradient(_one(p, values), *rows, _in_given_order(p, s.items))
