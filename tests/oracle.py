"""Every answer by enumeration: sums over all labellings of a small chain, all segmentations of a short sequence."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit.chain import Potentials
from crfkit.segment import Potentials as SegmentPotentials

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


Segmentation = tuple[tuple[int, int, int], ...]


def all_segmentations(p: SegmentPotentials) -> list[Segmentation]:
    """Every segmentation of a single sequence into (start, end, label); with a tail, into segments of any length."""
    steps, labels = p.unary.shape
    longest = steps if p.tail is not None else p.max_length
    out: list[Segmentation] = []

    def go_on(before: Segmentation, start: int) -> None:
        if start == steps:
            out.append(before)
        for end in range(start + 1, min(steps, start + longest) + 1):
            for label in range(labels):
                go_on((*before, (start, end, label)), end)

    go_on((), 0)
    return out


def segmentation_score(p: SegmentPotentials, segments: Segmentation) -> float:
    """The score by its definition, one term at a time."""
    total = 0.0
    listed = {} if p.segments is None else {(int(a), int(b)): i for i, (a, b) in enumerate(p.segments)}
    for n, (a, b, j) in enumerate(segments):
        for t in range(a, b):
            total += float(p.unary[t, j])
            if p.allowed is not None and not p.allowed[t, j]:
                total = -np.inf
            if p.borders is not None and t > a and p.borders[t] > 0:
                total = -np.inf
        if p.borders is not None and a > 0 and p.borders[a] < 0:
            total = -np.inf
        over = b - a - p.max_length
        if over <= 0:
            total += float(p.lengths[b - a - 1, j])
        else:
            assert p.tail is not None
            total += float(p.lengths[-1, j]) + over * float(p.tail[j])
            total += float(np.log(comb(over + p.tail_order - 1, p.tail_order - 1)))
        total += 0.0 if p.first is None else float(p.first[a, j])
        total += 0.0 if p.last is None else float(p.last[b - 1, j])
        if p.segment_scores is not None and (a, b) in listed:
            total += float(p.segment_scores[listed[a, b], j])
        if n:
            total += float(p.pairwise[segments[n - 1][2], j])
    if segments and p.start is not None:
        total += float(p.start[segments[0][2]])
    if segments and p.end is not None:
        total += float(p.end[segments[-1][2]])
    return total


def segmentations(p: SegmentPotentials) -> tuple[list[Segmentation], Floats, float]:
    """All segmentations, their probabilities, and log Z."""
    every = all_segmentations(p)
    s = np.array([segmentation_score(p, x) for x in every])
    log_z = log_sum_exp(s)
    return every, np.exp(s - log_z) if np.isfinite(log_z) else np.zeros(len(s)), log_z


def segment_sums(p: SegmentPotentials) -> dict[str, Floats]:
    """Expectations of all that has a score."""
    tokens, n = p.unary.shape
    every, chances, _ = segmentations(p)
    out: dict[str, Floats] = {name: np.zeros((tokens, n)) for name in ("nodes", "begins", "ends")}
    out |= {"pairs": np.zeros((n, n)), "lengths": np.zeros((p.max_length, n)), "tail": np.zeros(n)}
    out["segments"] = np.zeros((tokens, tokens + 1, n))
    for segments, chance in zip(every, chances, strict=True):
        for i, (a, b, j) in enumerate(segments):
            out["nodes"][a:b, j] += chance
            out["begins"][a, j] += chance
            out["ends"][b - 1, j] += chance
            out["lengths"][min(b - a, p.max_length) - 1, j] += chance
            out["tail"][j] += chance * max(0, b - a - p.max_length)
            out["segments"][a, b - a, j] += chance
            if i:
                out["pairs"][segments[i - 1][2], j] += chance
    return out
