"""For study, not for use: measures of uncertainty as defined in the literature.

For use, see the exact or faster ones in :mod:`crfkit.chain`. :func:`kbest_entropy` is the usual approximation to
:func:`crfkit.chain.entropy`; Mann and McCallum's lattices give the entropy of the other labels once some are known.
The O(n^2 s^3) gradient of the entropy, which :func:`crfkit.chain.entropy_gradient` replaces, is in
experiments/covariance.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfkit.chain.entropy import (
    Vector,
    _best,
    _entropies,
    _mask_log_probability,
    _one,
    _require_single,
    _span_mask,
    entropy,
)
from crfkit.chain.potentials import Potentials


@dataclass(frozen=True, eq=False)
class EntropyLattices:
    """The remaining entropy, given one label.

    Attributes
    ----------
    entropy : float, or float64 array [S] for a batch
    before : float64 array [N, L]
        H(labels before t | label j at t); 0 where the label is impossible.
    after : float64 array [N, L]
        H(labels after t | label i at t), likewise.
    """

    entropy: Any
    before: Vector
    after: Vector


def entropy_lattices(p: Potentials, n_jobs: int | None = None) -> EntropyLattices:
    r"""Entropies of all that comes before and after each label (Mann and McCallum's lattices).

    .. math::

        H^\alpha_t(j) = \sum_i p(i \mid j) (-\log p(i \mid j) + H^\alpha_{t-1}(i)), \quad H^\alpha_0 = 0, \qquad
        H^\beta_t(i) = \sum_j p(j \mid i) (-\log p(j \mid i) + H^\beta_{t+1}(j)), \quad H^\beta_{T-1} = 0

    Examples
    --------
    >>> p = Potentials([[0.0, 0.0]] * 3, [[0.0, 0.0], [0.0, 0.0]])
    >>> (entropy_lattices(p).before[:, 0] / np.log(2)).round(6)
    array([0., 1., 2.])
    """
    if p.is_ordered:
        raise ValueError("entropy_lattices is for the first order: with more, the labels before and after one depend")
    found, before, after = _entropies(p, n_jobs, "lattices")
    return EntropyLattices(_one(p, found), before, after)


def _fixed(p: Potentials, start: int, labels: Sequence[int]) -> tuple[float, float]:
    """Log-probability of fixed labels from ``start`` on, and the entropy of all others given these."""
    _require_single(p, "conditional_entropy")
    if any(not isinstance(x, (int, np.integer)) for x in labels):
        raise ValueError(f"'labels' must hold one number for each token, got {labels!r}")
    allowed = _span_mask(p, start, start + len(labels), labels)
    chance = _mask_log_probability(p, allowed)
    return chance, 0.0 if np.isneginf(chance) else float(entropy(p.masked(allowed)))


def conditional_entropy(p: Potentials, start: int, labels: Sequence[int]) -> float:
    r"""Entropy of all other labels once those from ``start`` on are known, :math:`H^\alpha_a(y_a) + H^\beta_b(y_b)`.

    If those labels are impossible, an error is raised.

    Examples
    --------
    >>> p = Potentials([[0.0, 0.0]] * 3, [[0.0, 0.0], [0.0, 0.0]])
    >>> round(conditional_entropy(p, 1, [0]) / float(np.log(2)), 6)
    2.0
    """
    chance, rest = _fixed(p, start, labels)
    if np.isneginf(chance):
        raise ValueError(f"'labels' from {start} on are impossible, got {labels!r}")
    return rest


def constrained_entropy(p: Potentials, start: int, labels: Sequence[int]) -> float:
    r"""The part of the entropy that comes from labellings with the given labels from ``start`` on.

    .. math::

        -\sum_{y \supseteq (y_a \ldots y_b)} p(y) \log p(y)
        = p(y_a \ldots y_b) (-\log p(y_a \ldots y_b) + H^\alpha_a(y_a) + H^\beta_b(y_b))

    Summed over all labels of a span it is the entropy; it is 0 where the labels are impossible.

    Examples
    --------
    >>> p = Potentials([[0.0, 1.0]] * 3, [[0.0, 0.5], [0.0, 0.0]])
    >>> parts = [constrained_entropy(p, 1, [j]) for j in range(2)]
    >>> bool(np.isclose(sum(parts), entropy_lattices(p).entropy))
    True
    """
    chance, rest = _fixed(p, start, labels)
    return 0.0 if np.isneginf(chance) else float(np.exp(chance)) * (rest - chance)


def kbest_entropy(p: Potentials, k: int = 10, n_jobs: int | None = None) -> Any:
    """Entropy of the ``k`` best labellings with renormalised probabilities.

    The usual approximation to the entropy, for comparison. It is at most log k.

    Examples
    --------
    >>> p = Potentials([[0.0, 0.0]] * 3, [[0.0, 0.0], [0.0, 0.0]])
    >>> round(kbest_entropy(p, 2) / float(np.log(2)), 6)
    1.0
    """

    def one(x: Vector) -> float:
        q = np.exp(x - x[0])
        q /= q.sum()
        return float(-(q[q > 0] * np.log(q[q > 0])).sum())

    return _one(p, np.array([one(x) for x in _best(p, k, n_jobs)]))
