"""How two distributions over the labellings of the same sequences differ; methods of :class:`Potentials` call this."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.threads import resolve_threads
from crfkit.chain.inference import log_partition
from crfkit.chain.ordered import OrderedPotentials
from crfkit.chain.potentials import Floats, Lattice, Potentials

__all__: list[str] = []

Vector = NDArray[np.float64]


def _steps(x: Lattice) -> Floats:
    """Scores of pairs, step by step: [E, L, L]."""
    edges = int(np.maximum(np.diff(x.offsets) - 1, 0).sum())
    return x.pairwise if x.per_step else np.repeat(x.pairwise, edges, axis=0)


def _mean(p: Lattice, unary: Any, pairwise: Any, n_jobs: int | None) -> Vector:
    """E_p[score] [S] of the score that these arrays give."""
    mean = np.empty(len(p.offsets) - 1)
    r, ra = (np.ascontiguousarray(x, p.unary.dtype) for x in (unary, pairwise))
    _core.covariance(p, r, ra, resolve_threads(n_jobs), None, mean, None, None, None)
    return mean


def cross_entropy(p: Potentials, q: Potentials, n_jobs: int | None = None) -> Vector:
    """H(p, q) = log Z_q - E_p[score_q] [S]; infinite if p allows a labelling that q forbids."""
    x, y = p.lattice, q.lattice
    if x.unary.shape != y.unary.shape or not np.array_equal(x.offsets, y.offsets):
        shapes = f"{x.unary.shape} in all, got {y.unary.shape}"
        raise ValueError(f"'other' must have the same labels and sequence lengths: {shapes}")
    slots: list[Any] = [a.slots if isinstance(a, OrderedPotentials) else None for a in (p, q)]
    if not np.array_equal(*slots):
        raise ValueError("'other' must be of the same order and, where that is above 1, have the same beams of labels")
    if x.per_step != y.per_step:
        x = x._replace(pairwise=_steps(x), per_step=True)
        y = y._replace(pairwise=_steps(y), per_step=True)
    scores = [np.where(np.isneginf(s), 0, s) for s in (y.unary, y.pairwise)]
    found = np.atleast_1d(log_partition(q, n_jobs)) - _mean(x, scores[0], scores[1], n_jobs)
    forbidden = [np.isneginf(s) for s in (y.unary, y.pairwise)]
    if any(s.any() for s in forbidden):
        found[_mean(x, forbidden[0], forbidden[1], n_jobs) > 1e-12] = np.inf
    return found


def count(p: Potentials, n_jobs: int | None = None) -> Vector:
    """Number of labellings that are allowed [S]: Z of scores that are zero or minus infinity."""
    unary, pairwise = (np.where(np.isneginf(s), -np.inf, 0.0) for s in p.lattice[:2])
    log_z = np.empty(len(p))
    _core.expectations((unary, pairwise, *p.lattice[2:]), resolve_threads(n_jobs), None, log_z, None, None, None)
    found = np.exp(log_z)
    return np.where(found < 2.0**48, np.round(found), found)
