"""The gradient of the entropy as Jiao et al. compute it: covariances edge by edge, O(n^2 s^3). The baseline to beat."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit import chain


def quadratic_gradient(p: chain.Potentials) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gradient of the entropy by unary [n, s] and by the pairwise scores of each step [n - 1, s, s].

    For every edge a, the matrix P(label at b | label at a + 1) is carried on to every later edge b, a product of two
    s by s matrices each time.
    """
    m = chain.marginals(p)
    x = p.lattice
    steps, n = len(p.unary) - 1, p.n_labels
    pair = [x.pairwise[t if x.per_step else 0] for t in range(steps)]
    score: list[Any] = [pair[t] + x.unary[t + 1] + (x.unary[0][:, None] if t == 0 else 0) for t in range(steps)]
    score = [np.where(m.edges[t] > 0, score[t], 0.0) for t in range(steps)]
    forward = [m.edges[t] / np.maximum(m.nodes[t][:, None], 1e-300) for t in range(steps)]
    mean = [float((m.edges[t] * score[t]).sum()) for t in range(steps)]
    edges = np.zeros((steps, n, n))
    for a in range(steps):
        edges[a] -= m.edges[a] * (score[a] - mean[a])
        inner = (m.edges[a] * (score[a] - mean[a])).sum(0)  # by the label at a + 1
        reach = np.eye(n)
        for b in range(a + 1, steps):
            edges[a] -= m.edges[a] * (reach @ ((forward[b] * score[b]).sum(1) - mean[b]))
            edges[b] -= (inner @ reach)[:, None] * forward[b]
            reach = reach @ forward[b]
    nodes = np.zeros((steps + 1, n))
    nodes[:-1] = edges.sum(2)
    nodes[-1] = edges[-1].sum(0)
    return nodes, edges
