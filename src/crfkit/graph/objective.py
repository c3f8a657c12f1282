"""Training graphs: features of nodes and edges, tied weights, and what is minimised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit.graph.engine import Convergence, Engine, Inference, Passing, Scores, pointers

__all__ = ["EdgeGroup", "GraphData", "GraphObjective", "NodeGroup"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
OBJECTIVES = ("likelihood", "pseudo_likelihood", "piecewise")


@dataclass(frozen=True, eq=False)
class NodeGroup:
    """Nodes of one kind: they have the same labels and share the weights [F, L].

    Attributes
    ----------
    features : array or scipy CSR matrix [n, F]
    variables : int64 array [n]
        Numbers of the nodes among all variables of the data set.
    n_labels : int
    """

    features: Any
    variables: Ints
    n_labels: int


@dataclass(frozen=True, eq=False)
class EdgeGroup:
    """Edges of one kind: they share the weights [F, L_a, L_b], or [L_a, L_b] without features.

    Attributes
    ----------
    features : array or scipy CSR matrix [m, F], or None
    ends : int64 array [m, 2]
    shape : (L_a, L_b)
    symmetric : bool
        Whether the weights of (i, j) and (j, i) are the same.
    """

    features: Any
    ends: Ints
    shape: tuple[int, int]
    symmetric: bool = False


class GraphData:
    """Graphs of a data set side by side, as one graph of many components.

    Parameters
    ----------
    graph_of : int array [V]
        Number of the graph that each variable belongs to.
    n_graphs : int
    nodes : sequence of NodeGroup
    edges : sequence of EdgeGroup
    n_jobs : int, optional
    """

    def __init__(
        self,
        graph_of: Ints,
        n_graphs: int,
        nodes: Sequence[NodeGroup],
        edges: Sequence[EdgeGroup],
        n_jobs: int | None = None,
    ) -> None:
        self.graph_of, self.n_graphs = graph_of, n_graphs
        self.nodes, self.edges = list(nodes), list(edges)
        card = np.zeros(len(graph_of), np.int32)
        for group in self.nodes:
            card[group.variables] = group.n_labels
        ends = [g.ends for g in self.edges]
        scope = np.concatenate(ends).astype(np.int32) if ends else np.zeros((0, 2), np.int32)
        self.engine = Engine(card, np.arange(len(scope) + 1, dtype=np.int64) * 2, scope.ravel(), n_jobs)
        self.first = pointers(np.array([len(g.ends) for g in self.edges], np.int64))  # first factor of each group
        sizes, of, count = [], [], 0
        for g in self.edges:
            entries = g.shape[0] * g.shape[1]
            if g.features is None:
                sizes.append(np.full(1, entries))
                of.append(np.full(len(g.ends), count))
                count += 1
            else:
                sizes.append(np.full(len(g.ends), entries))
                of.append(count + np.arange(len(g.ends)))
                count += len(g.ends)
        self.table_ptr = pointers(np.concatenate(sizes) if sizes else np.zeros(0, np.int64))
        self.table_of = (np.concatenate(of) if of else np.zeros(0)).astype(np.int32)

    @cached_property
    def places(self) -> list[Ints]:
        """Flat places of the scores of the nodes of each group, [n, L]."""
        return [self.engine.node_ptr[g.variables][:, None] + np.arange(g.n_labels) for g in self.nodes]

    @cached_property
    def component_graph(self) -> Ints:
        """Graph of each component, [C]."""
        out = np.zeros(self.engine.n_components, np.int64)
        out[self.engine.component] = self.graph_of
        return out

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the weights, group by group, nodes first."""
        out: list[tuple[int, ...]] = [(g.features.shape[1], g.n_labels) for g in self.nodes]
        return out + [g.shape if g.features is None else (g.features.shape[1], *g.shape) for g in self.edges]

    @cached_property
    def size(self) -> int:
        """Number of weights."""
        return sum(int(np.prod(s)) for s in self.shapes)

    def split(self, w: Floats) -> list[Floats]:
        """Weights, or their gradient, group by group; views."""
        ends = np.cumsum([int(np.prod(s)) for s in self.shapes])[:-1]
        return [part.reshape(s) for part, s in zip(np.split(w, ends), self.shapes, strict=True)]

    def scores(self, w: Floats) -> Scores:
        """Scores of all nodes and edges at w."""
        parts = self.split(w)
        unary = np.empty(int(self.engine.node_ptr[-1]))
        for group, place, weights in zip(self.nodes, self.places, parts, strict=False):
            unary[place] = group.features @ weights
        tables = []
        for kind, weights in zip(self.edges, parts[len(self.nodes) :], strict=True):
            if kind.symmetric:
                weights = (weights + weights.swapaxes(-1, -2)) / 2
            flat = weights.reshape(-1, kind.shape[0] * kind.shape[1])
            tables.append((flat if kind.features is None else kind.features @ flat).ravel())
        return Scores(unary, np.concatenate(tables) if tables else np.zeros(0), self.table_ptr, self.table_of)

    def pull_back(self, nodes: Floats, factors: Floats) -> Floats:
        """The adjoint of :meth:`scores`: weights of nodes' values and of edges' entries, per edge, to the weights'."""
        out = np.empty(self.size)
        parts = self.split(out)
        for group, place, part in zip(self.nodes, self.places, parts, strict=False):
            part[...] = group.features.T @ nodes[place]
        for k, (kind, part) in enumerate(zip(self.edges, parts[len(self.nodes) :], strict=True)):
            d = self.edge_entries(factors, k)
            if kind.features is None:
                part[...] = d.sum(axis=0).reshape(kind.shape)
            else:
                part[...] = (kind.features.T @ d).reshape(part.shape)
            if kind.symmetric:
                part[...] = (part + part.swapaxes(-1, -2)) / 2
        return out

    def edge_entries(self, factors: Floats, k: int) -> Floats:
        """The part of a flat array over edges' entries that belongs to a group, [m, L_a * L_b]."""
        ptr = self.engine.factor_ptr
        group = self.edges[k]
        part = factors[int(ptr[self.first[k]]) : int(ptr[self.first[k + 1]])]
        return part.reshape(len(group.ends), group.shape[0] * group.shape[1])

    def edge_tables(self, scores: Scores, k: int) -> Floats:
        """Scores of a group's edges, [m or 1, L_a, L_b]."""
        group = self.edges[k]
        first = int(self.first[k])
        if not len(group.ends):
            return np.zeros((0, *group.shape))
        begin = int(self.table_ptr[self.table_of[first]])
        n = 1 if group.features is None else len(group.ends)
        return scores.tables[begin : begin + n * group.shape[0] * group.shape[1]].reshape(n, *group.shape)


class GraphObjective:
    r"""Penalised negative log-likelihood of labelled graphs, or one of its cheaper relatives.

    .. math::

        f(w) = \sum_g \omega_g \big( \log Z_g - \log Z_g^{A} \big) + \gamma \sum_{g \in U} \omega_g H_g
             + c_2 \lVert w \rVert^2

    where :math:`Z_g^A` sums over the assignments that the labels allow: one, if all are known. Its gradient is the
    difference of the expected features. With approximate inference both are replaced by the method's approximation,
    whose gradient at a fixed point is the difference of its beliefs. U are the graphs without any label, whose entropy

    .. math::

        H = \log Z - \theta \cdot \mu(\theta), \qquad \nabla H = -\frac{d}{ds} \mu(s \theta) \Big|_{s=1}

    is differentiated by a central difference in the one number s.

    ``"pseudo_likelihood"`` sums :math:`-\log p(y_v \mid y_{N(v)})` over nodes, ``"piecewise"`` the negative
    log-likelihoods of all nodes and edges taken alone; both need no inference, and all labels.

    Parameters
    ----------
    data : GraphData
    gold : int array [V]
        Numbers of the labels, -1 where not known.
    allowed : bool array [sum of cardinalities], optional
        Labels that are possible; for partly known ones.
    kind : {"likelihood", "pseudo_likelihood", "piecewise"}
    method : {"exact", "loopy", "trw", "mean_field"}
    c2, entropy : float
        Coefficients of the squared norm and of the entropy of unlabelled graphs.
    weights : float64 array [graphs], optional
    passing, max_bytes
        As for :meth:`FactorGraph.marginals`.
    """

    noise = 1e-12

    def __init__(
        self,
        data: GraphData,
        gold: Ints,
        allowed: NDArray[np.bool_] | None = None,
        *,
        kind: str = "likelihood",
        method: str = "exact",
        c2: float = 0.0,
        entropy: float = 0.0,
        weights: Floats | None = None,
        passing: Passing | None = None,
        max_bytes: float = 2.0**31,
    ) -> None:
        if kind not in OBJECTIVES:
            raise ValueError(f"'objective' must be one of {OBJECTIVES}, got {kind!r}")
        if entropy and (method != "exact" or kind != "likelihood"):
            raise ValueError("entropy regularisation needs the likelihood and exact inference")
        engine = data.engine
        self.data, self.gold, self.kind, self.method = data, gold, kind, method
        self.c2, self.entropy, self.passing, self.max_bytes = float(c2), float(entropy), passing, max_bytes
        self.weights = np.ones(data.n_graphs) if weights is None else weights
        known = gold >= 0
        self.complete = bool(known.all())
        self.allowed = allowed
        if not self.complete:
            if kind != "likelihood":
                graph = int(data.graph_of[np.flatnonzero(~known)[0]])
                raise ValueError(f"{kind} training needs all labels; graph {graph} has unknown ones")
            if allowed is None:
                raise ValueError("'allowed' must be given where labels are unknown")
        else:
            self.gold_node = engine.node_ptr[:-1] + gold
            ends = engine.scope.reshape(-1, 2)
            second = engine.cardinalities[ends[:, 1]]
            entry = gold[ends[:, 0]] * second + gold[ends[:, 1]]
            self.gold_factor = engine.factor_ptr[:-1] + entry
            self.gold_table = data.table_ptr[data.table_of] + entry
        of_graph = data.graph_of
        self.node_weight = np.repeat(self.weights[of_graph], engine.cardinalities)
        first = engine.scope.reshape(-1, 2)[:, 0]
        self.factor_weight = np.repeat(self.weights[of_graph[first]], np.diff(engine.factor_ptr))
        free = np.ones(data.n_graphs, bool)
        if allowed is not None:
            open_node = np.logical_and.reduceat(allowed, engine.node_ptr[:-1])
            np.logical_and.at(free, of_graph, open_node)
        else:
            free[:] = False
        self.unlabelled = free
        #: how the last inference ended
        self.convergence = Convergence()
        self.failures = 0

    @property
    def size(self) -> int:
        """Number of weights."""
        return self.data.size

    def _infer(self, scores: Scores) -> Inference:
        result = self.data.engine.infer(
            scores, self.method, passing=self.passing, max_bytes=self.max_bytes, silent=True
        )
        self.convergence = result.convergence
        self.failures += not result.convergence.converged
        return result

    def _likelihood(self, scores: Scores) -> tuple[float, Floats, Floats]:
        engine = self.data.engine
        weight = self.weights[self.data.component_graph]
        free = self._infer(scores)
        assert free.factors is not None
        nodes, factors = free.nodes, free.factors
        value = float(weight @ free.log_z)
        if self.complete:
            value -= float(scores.unary[self.gold_node] @ self.weights[self.data.graph_of])
            first = engine.scope.reshape(-1, 2)[:, 0]
            value -= float(scores.tables[self.gold_table] @ self.weights[self.data.graph_of[first]])
            nodes[self.gold_node] -= 1
            factors[self.gold_factor] -= 1
        else:
            assert self.allowed is not None
            held = Scores(
                np.where(self.allowed, scores.unary, -np.inf), scores.tables, scores.table_ptr, scores.table_of
            )
            clamped = self._infer(held)
            assert clamped.factors is not None
            value -= float(weight @ clamped.log_z)
            nodes -= clamped.nodes
            factors -= clamped.factors
        return value, nodes * self.node_weight, factors * self.factor_weight

    def _entropy(self, scores: Scores) -> tuple[float, Floats, Floats]:
        """Weighted entropies of the unlabelled graphs and their derivatives by the scores."""
        data, engine = self.data, self.data.engine
        mask = self.unlabelled * self.weights
        result = self._infer(scores)
        of_component = mask[data.component_graph]
        value = float(of_component @ (result.log_z - engine.energy(scores, result)))
        step = 1e-4
        moved = [
            self._infer(Scores(s * scores.unary, s * scores.tables, scores.table_ptr, scores.table_of))
            for s in (1 + step, 1 - step)
        ]
        hot, cold = moved
        assert hot.factors is not None
        assert cold.factors is not None
        nodes = (cold.nodes - hot.nodes) / (2 * step) * np.repeat(mask[data.graph_of], engine.cardinalities)
        first = engine.scope.reshape(-1, 2)[:, 0]
        factors = (cold.factors - hot.factors) / (2 * step)
        return value, nodes, factors * np.repeat(mask[data.graph_of[first]], np.diff(engine.factor_ptr))

    def _log_softmax(self, flat: Floats) -> Floats:
        begin, card = self.data.engine.node_ptr[:-1], self.data.engine.cardinalities
        shifted = flat - np.repeat(np.maximum.reduceat(flat, begin), card)
        return np.asarray(shifted - np.repeat(np.log(np.add.reduceat(np.exp(shifted), begin)), card))

    def _pseudo(self, scores: Scores) -> tuple[float, Floats, Floats]:
        data, engine = self.data, self.data.engine
        local = scores.unary.copy()
        sides = []
        for k, group in enumerate(data.edges):
            table = data.edge_tables(scores, k)
            m = np.arange(len(group.ends)) if len(table) > 1 else np.zeros(len(group.ends), np.int64)
            a, b = group.ends.T
            for here, rows in ((a, table[m, :, self.gold[b]]), (b, table[m, self.gold[a], :])):
                place = engine.node_ptr[here][:, None] + np.arange(rows.shape[1])
                sides.append(place)
                local += np.bincount(place.ravel(), rows.ravel(), len(local))
        log_p = self._log_softmax(local)
        node_weight = self.weights[data.graph_of]
        value = -float(log_p[self.gold_node] @ node_weight)
        d = np.exp(log_p)
        d[self.gold_node] -= 1
        d *= self.node_weight
        factors = np.zeros(int(engine.factor_ptr[-1]))
        for k, group in enumerate(data.edges):
            m = np.arange(len(group.ends))
            entries = data.edge_entries(factors, k).reshape(-1, *group.shape)
            a, b = group.ends.T
            entries[m, :, self.gold[b]] += d[sides[2 * k]]
            entries[m, self.gold[a], :] += d[sides[2 * k + 1]]
        return value, d, factors

    def _piecewise(self, scores: Scores) -> tuple[float, Floats, Floats]:
        data, engine = self.data, self.data.engine
        log_p = self._log_softmax(scores.unary)
        value = -float(log_p[self.gold_node] @ self.weights[data.graph_of])
        nodes = np.exp(log_p)
        nodes[self.gold_node] -= 1
        factors = np.zeros(int(engine.factor_ptr[-1]))
        for k, group in enumerate(data.edges):
            table = data.edge_tables(scores, k)
            table = table.reshape(len(table), group.shape[0] * group.shape[1])
            shifted = table - table.max(axis=1, keepdims=True)
            log_q = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
            data.edge_entries(factors, k)[...] = np.exp(log_q)
            m = np.arange(len(group.ends)) if len(table) > 1 else np.zeros(len(group.ends), np.int64)
            at = self.gold[group.ends[:, 0]] * group.shape[1] + self.gold[group.ends[:, 1]]
            value -= float(log_q[m, at] @ self.weights[data.graph_of[group.ends[:, 0]]])
        factors[self.gold_factor] -= 1
        return value, nodes * self.node_weight, factors * self.factor_weight

    def value_and_grad(self, w: Floats, out: Floats | None = None) -> tuple[float, Floats]:
        """Value and gradient at w."""
        scores = self.data.scores(w)
        compute = {"likelihood": self._likelihood, "pseudo_likelihood": self._pseudo, "piecewise": self._piecewise}
        value, nodes, factors = compute[self.kind](scores)
        if self.entropy and self.unlabelled.any():
            h, h_nodes, h_factors = self._entropy(scores)
            value += self.entropy * h
            nodes += self.entropy * h_nodes
            factors += self.entropy * h_factors
        gradient = np.empty(self.size) if out is None else out
        gradient[...] = self.data.pull_back(nodes, factors)
        gradient += 2 * self.c2 * w
        return value + self.c2 * float(w @ w), gradient
