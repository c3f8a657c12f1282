"""For study, not for use: the gradient from backward passes alone.

For use, see :class:`~crfkit.training.LikelihoodObjective`. This shows what forward-backward saves, and is a
reference for its tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.numbers import log_sum_exp
from crfkit.data.labels import scores_by
from crfkit.training.objective import Objective, Problem

Vector = NDArray[np.float64]


class BackwardObjective(Objective):
    r"""The penalised negative log-likelihood, with a gradient that needs no forward pass (Sutton, 2006).

    With :math:`\beta_t(i)` the sum over all that may follow label i at t, and
    :math:`p(j \mid i) = e^{a(i, j) + u_{t+1}(j)} \beta_{t+1}(j) / \beta_t(i)`,

    .. math::

        \frac{\partial \log \beta_t(i)}{\partial w} = \sum_j p(j \mid i)
        \Bigl[ f_{t+1}(i, j) + \frac{\partial \log \beta_{t+1}(j)}{\partial w} \Bigr], \qquad
        \frac{\partial \log Z}{\partial w} = \sum_j p(y_0 = j)
        \Bigl[ f_0(j) + \frac{\partial \log \beta_0(j)}{\partial w} \Bigr]

    This is forward differentiation of the backward recursion: a tangent for every weight. Forward-backward is reverse
    differentiation of the same recursion. Here a step is a product of the [L, L] matrix p with an [L, K] matrix of
    tangents, O(T L^2 K) in all, where K counts the weights that the sequence has; the memory, O(L K), does not grow
    with T. Forward-backward takes O(T L^2 + T K). So this is a reference, and not for large data.

    The gradient of the likelihood is the difference of two such: of all labellings, and of those that fit the known
    labels. Takes a :class:`~crfkit.training.Problem`, without its entropy; everything is in double precision.

    Examples
    --------
    >>> from crfkit import CRF
    >>> X, y = [["a", "b"], ["b"]], [["A", "B"], ["B"]]
    >>> f, g = (CRF(gradient=way, dtype="float64").objective(X, y) for way in ("backward", "forward-backward"))
    >>> w = np.linspace(-1, 1, f.size)
    >>> bool(np.allclose(f.value_and_grad(w)[1], g.value_and_grad(w)[1], atol=1e-12))
    True
    """

    def __init__(self, problem: Problem) -> None:
        self.layout = layout = problem.layout
        self.size = layout.size
        data, constraints = problem.data, problem.constraints
        self.n_tokens = data.n_tokens
        self.c2 = float(problem.c2)
        n = layout.n_labels
        hints = np.zeros((0, n)) if problem.hints is None else problem.hints
        self._known = scores_by(problem.labels, hints)
        self._offsets = data.offsets
        self._weights = np.ones(data.n_sequences) if problem.weights is None else problem.weights
        scores = np.zeros(n * (n + 2)) if constraints is None else constraints.as_scores()
        self._forbidden = scores[: n * n].reshape(n, n), scores[n * n : n * n + n], scores[n * n + n :]
        self._tokens = [_entries(layout.state_ptr, data.ptr, data.attr, data.value, t) for t in range(data.n_tokens)]
        self._edges = None
        if data.edge_ptr is not None and data.edge_attr is not None and len(layout.edge_ptr):
            self._edges = [
                _entries(layout.edge_ptr, data.edge_ptr, data.edge_attr, None, t) for t in range(data.n_tokens)
            ]

    def value_and_grad(self, w: Vector, out: Vector | None = None) -> tuple[float, Vector]:
        """Value and gradient at w."""
        w = np.ascontiguousarray(w, dtype=np.float64)
        if w.shape != (self.size,):
            raise ValueError(f"'w' must have shape ({self.size},), got {w.shape}")
        gradient = np.empty(self.size) if out is None else out
        np.multiply(w, 2 * self.c2, out=gradient)
        value = self.c2 * float(w @ w)
        for s in range(len(self._offsets) - 1):
            value += self._sequence(s, w, gradient)
        return value, gradient

    def _local(self, s: int) -> tuple[NDArray[np.int64], list[Any], list[Any]]:
        """The weights of a sequence, and each step's features among them: label, place, value; pair, place, value."""
        layout, n = self.layout, self.layout.n_labels
        first, last = int(self._offsets[s]), int(self._offsets[s + 1])
        nodes: list[list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]] = []
        pairs: list[list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]] = []
        have = np.flatnonzero(layout.transition >= 0)
        every = np.arange(n)
        for t in range(first, last):
            k, value = self._tokens[t]
            node = [(layout.state_label[k].astype(np.int64), k, value)]
            if t == first and layout.start >= 0:
                node.append((every, layout.start + every, np.ones(n)))
            if t == last - 1 and layout.end >= 0:
                node.append((every, layout.end + every, np.ones(n)))
            nodes.append(node)
            if t > first:
                pair = [(have, layout.transition[have].astype(np.int64), np.ones(len(have)))]
                if self._edges is not None:
                    k, value = self._edges[t]
                    pair.append((layout.edge_pair[k].astype(np.int64), layout.edge_first + k, value))
                pairs.append(pair)
        mine = np.unique(np.concatenate([x[1] for step in nodes + pairs for x in step]))
        found = [
            [
                tuple(
                    np.concatenate(parts)
                    for parts in zip(*((a, np.searchsorted(mine, k), v) for a, k, v in step), strict=True)
                )
                for step in steps
            ]
            for steps in (nodes, pairs)
        ]
        return mine, found[0], found[1]

    def _sequence(self, s: int, w: Vector, gradient: Vector) -> float:
        first, last = int(self._offsets[s]), int(self._offsets[s + 1])
        if first == last:
            return 0.0
        n = self.layout.n_labels
        mine, nodes, pairs = self._local(s)
        local = w[mine]
        forbidden, start, end = self._forbidden
        u = np.zeros((last - first, n))
        for row, (label, k, value) in zip(u, nodes, strict=True):
            np.add.at(row, label, value * local[k])
        u[0] += start
        u[-1] += end
        transitions = np.broadcast_to(forbidden, (len(pairs), n, n)).copy()
        for table, (pair, k, value) in zip(transitions, pairs, strict=True):
            np.add.at(table.reshape(-1), pair, value * local[k])
        log_z, expected = _log_z(u, transitions, nodes, pairs, len(mine))
        known, observed = _log_z(u + self._known[first:last], transitions, nodes, pairs, len(mine))
        gradient[mine] += float(self._weights[s]) * (expected - observed)
        return float(self._weights[s]) * (log_z - known)


def _log_z(u: Vector, transitions: Vector, nodes: list[Any], pairs: list[Any], size: int) -> tuple[float, Vector]:
    """The log of the sum over labellings, and its gradient."""
    n = u.shape[1]
    log_beta = _core.backward_messages(u, transitions)
    tangent: NDArray[np.float64] = np.zeros((n, size))  # of log_beta
    for t in range(len(u) - 1, -1, -1):
        label, k, value = nodes[t]
        np.add.at(tangent, (label, k), value)  # now of u + log_beta
        if t == 0:
            break
        top = np.where(np.isneginf(log_beta[t - 1]), 0.0, log_beta[t - 1])
        p = np.exp(transitions[t - 1] + u[t] + log_beta[t] - top[:, None])  # P(label at t | label at t - 1)
        pair, k, value = pairs[t - 1]
        tangent = p @ tangent
        np.add.at(tangent, (pair // n, k), value * p.ravel()[pair])
    log_z = float(log_sum_exp(u[0] + log_beta[0])[0])
    return log_z, np.exp(u[0] + log_beta[0] - log_z) @ tangent


def _entries(
    rows: NDArray[Any], ptr: NDArray[np.int64], attr: NDArray[np.uint32], value: Vector | None, token: int
) -> tuple[NDArray[np.int64], Vector]:
    """The weights of a token's attributes, and their values."""
    mine = [k for k in range(int(ptr[token]), int(ptr[token + 1])) if attr[k] < len(rows) - 1]
    runs = [np.arange(int(rows[attr[k]]), int(rows[attr[k] + 1])) for k in mine]
    values = [np.full(len(run), 1.0 if value is None else value[k]) for k, run in zip(mine, runs, strict=True)]
    return np.concatenate([np.zeros(0, np.int64), *runs]), np.concatenate([np.zeros(0), *values])
