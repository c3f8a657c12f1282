"""Every answer by enumeration: sums over all labellings of a small chain."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit.chain import Potentials

Floats = NDArray[np.float64]


def all_paths(p: Potentials) -> list[tuple[int, ...]]:
    """Every labelling of a single sequence."""
    return list(itertools.product(range(p.n_labels), repeat=len(p.unary)))


def path_score(p: Potentials, path: tuple[int, ...]) -> float:
    """The score by its definition, one term at a time."""
    if not path:
        return 0.0
    total = 0.0
    for t, j in enumerate(path):
        total += float(p.unary[t, j])
        if p.allowed is not None and not p.allowed[t, j]:
            total = -np.inf
    for t in range(len(path) - 1):
        a = p.pairwise if p.pairwise.ndim == 2 else p.pairwise[t]
        total += float(a[path[t], path[t + 1]])
    if p.start is not None:
        total += float(p.start[path[0]])
    if p.end is not None:
        total += float(p.end[path[-1]])
    return total


def scores(p: Potentials) -> Floats:
    """Scores of all labellings, in the order of :func:`all_paths`."""
    return np.array([path_score(p, path) for path in all_paths(p)])


def log_sum_exp(x: Floats) -> float:
    top = x.max()
    return float(top + np.log(np.exp(x - top).sum())) if np.isfinite(top) else float(top)


def log_partition(p: Potentials) -> float:
    return log_sum_exp(scores(p))


def probabilities(p: Potentials) -> Floats:
    s = scores(p)
    return np.exp(s - log_sum_exp(s))


def nodes(p: Potentials) -> Floats:
    out = np.zeros((len(p.unary), p.n_labels))
    for path, prob in zip(all_paths(p), probabilities(p), strict=True):
        for t, j in enumerate(path):
            out[t, j] += prob
    return out


def edges(p: Potentials) -> Floats:
    steps = max(0, len(p.unary) - 1)
    out = np.zeros((steps, p.n_labels, p.n_labels))
    for path, prob in zip(all_paths(p), probabilities(p), strict=True):
        for t in range(steps):
            out[t, path[t], path[t + 1]] += prob
    return out


def finite_difference(f: Callable[[Any], float], x: Any, step: float = 1e-6) -> Any:
    """Central differences of f at x, one coordinate at a time."""
    out = np.zeros_like(x)
    for k in np.ndindex(*x.shape):
        moved = x.copy()
        moved[k] = x[k] + step
        up = f(moved)
        moved[k] = x[k] - step
        out[k] = (up - f(moved)) / (2 * step)
    return out
