"""Training on graphs: features of nodes and edges, tied weights, and the objective."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit.base.numbers import log_sum_exp
from crfkit.graph.engine import Beliefs, Convergence, Engine, Inference, Scores, as_inference, pointers
from crfkit.training.objective import Objective

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LOSSES = ("likelihood", "pseudo_likelihood", "piecewise")


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
        self.engine = Engine(card, np.arange(len(scope) + 1, dtype=np.int64) * 2, scope.ravel(), n_jobs, graph_of)
        self.first = pointers(np.array([len(g.ends) for g in self.edges], np.int64))  # first factor of each group
        # edges without features share one table
        counts = [1 if g.features is None else len(g.ends) for g in self.edges]
        self.first_table = pointers(np.array(counts, np.int64))
        sizes = np.array([g.shape[0] * g.shape[1] for g in self.edges], np.int64)
        self.table_ptr = pointers(np.repeat(sizes, counts))
        self.table_of = np.zeros(len(scope), np.int32)
        for k, g in enumerate(self.edges):
            own = 0 if g.features is None else np.arange(len(g.ends))
            self.table_of[self.first[k] : self.first[k + 1]] = self.first_table[k] + own

    @cached_property
    def places(self) -> list[Any]:
        """Flat places of the scores of the nodes of each group, node after node: a slice where they lie so."""
        out: list[Any] = []
        for g in self.nodes:
            v, ptr = g.variables, self.engine.node_ptr
            if len(v) and (v == np.arange(v[0], v[0] + len(v))).all():
                out.append(slice(int(ptr[v[0]]), int(ptr[v[-1] + 1])))
            else:
                out.append((ptr[v][:, None] + np.arange(g.n_labels)).ravel())
        return out

    @cached_property
    def edge_graph(self) -> Ints:
        """Graph of each edge, [E]."""
        return self.graph_of[self.engine.scope[::2]]

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
            unary[place] = (group.features @ weights).ravel()
        tables = []
        for kind, weights in zip(self.edges, parts[len(self.nodes) :], strict=True):
            if kind.symmetric:
                weights = (weights + weights.swapaxes(-1, -2)) / 2
            flat = weights.reshape(-1, kind.shape[0] * kind.shape[1])
            tables.append((flat if kind.features is None else kind.features @ flat).ravel())
        return Scores(unary, np.concatenate(tables) if tables else np.zeros(0), self.table_ptr, self.table_of)

    def pull_back(self, nodes: Floats, tables: Floats) -> Floats:
        """The adjoint of :meth:`scores`: derivatives by the unary scores and by the tables to those by the weights."""
        out = np.empty(self.size)
        parts = self.split(out)
        for group, place, part in zip(self.nodes, self.places, parts, strict=False):
            part[...] = group.features.T @ nodes[place].reshape(-1, group.n_labels)
        for k, (kind, part) in enumerate(zip(self.edges, parts[len(self.nodes) :], strict=True)):
            d = self.edge_tables(tables, k)
            part[...] = (d if kind.features is None else kind.features.T @ d).reshape(part.shape)
            if kind.symmetric:
                part[...] = (part + part.swapaxes(-1, -2)) / 2
        return out

    def edge_tables(self, tables: Floats, k: int) -> Floats:
        """The tables of a group's edges, a view, [m or 1, L_a * L_b]."""
        begin, end = self.table_ptr[self.first_table[k : k + 2]]
        return tables[begin:end].reshape(-1, self.edges[k].shape[0] * self.edges[k].shape[1])


class GraphObjective(Objective):
    r"""Penalised negative log-likelihood of labelled graphs, or a cheaper alternative.

    .. math::

        f(w) = \sum_g \omega_g \bigl( \log Z_g - \log Z_g^{A} \bigr) + \gamma \sum_{g \in U} \omega_g H_g
             + c_2 \lVert w \rVert^2

    where :math:`Z_g^A` sums over the assignments that the labels allow: one, if all are known. Its gradient is the
    difference of the expected features. With approximate inference both are replaced by the method's approximation,
    whose gradient at a fixed point is the difference of its beliefs. U are the graphs without any label, whose entropy

    .. math::

        H = \log Z - \theta \cdot \mu(\theta), \qquad \nabla H = -\frac{d}{ds} \mu(s \theta) \Bigr|_{s=1}

    is differentiated by a central difference in the one number s.

    ``"pseudo_likelihood"`` sums :math:`-\log p(y_v \mid y_{N(v)})` over nodes, ``"piecewise"`` the negative
    log-likelihoods of all nodes and edges taken alone; both need no inference, but require all labels.

    Parameters
    ----------
    data : GraphData
    gold : int array [V]
        Numbers of the labels, -1 where not known.
    allowed : bool array [sum of cardinalities], optional
        Labels that are possible; for partly known ones.
    loss : {"likelihood", "pseudo_likelihood", "piecewise"}
    inference : {"exact", "loopy", "trw", "mean_field"} or Inference
    c2, entropy_weight : float
        Coefficients of L2 regularisation (the squared norm) and of the entropy of unlabelled graphs.
    weights : float64 array [graphs], optional
    kept : int array, optional
        Numbers of the weights that are learnt; the others stay zero.
    """

    noise = 1e-12

    def __init__(
        self,
        data: GraphData,
        gold: Ints,
        allowed: NDArray[np.bool_] | None = None,
        *,
        loss: str = "likelihood",
        inference: str | Inference = "exact",
        c2: float = 0.0,
        entropy_weight: float = 0.0,
        weights: Floats | None = None,
        kept: Ints | None = None,
    ) -> None:
        if loss not in LOSSES:
            raise ValueError(f"'loss' must be one of {LOSSES}, got {loss!r}")
        self.inference = as_inference(inference)
        if entropy_weight and (self.inference.method != "exact" or loss != "likelihood"):
            raise ValueError("entropy regularisation needs the likelihood and exact inference")
        engine = data.engine
        self.data, self.gold, self.loss = data, gold, loss
        self.c2, self.entropy_weight = float(c2), float(entropy_weight)
        self.weights = np.ones(data.n_graphs) if weights is None else weights
        self.kept = kept
        self.size = data.size if kept is None else len(kept)
        known = gold >= 0
        self.complete = bool(known.all())
        self.allowed = allowed
        if not self.complete:
            if loss != "likelihood":
                graph = int(data.graph_of[np.flatnonzero(~known)[0]])
                raise ValueError(f"{loss} training needs all labels; graph {graph} has unknown ones")
            if allowed is None:
                raise ValueError("'allowed' must be given where labels are unknown")
        else:
            self.gold_node = engine.node_ptr[:-1] + gold
            a, b = engine.scope.reshape(-1, 2).T
            entry = data.table_ptr[data.table_of] + gold[a] * engine.cardinalities[b] + gold[b]
            # weighted counts of the tables' entries
            counts = np.bincount(entry, self.weights[data.edge_graph], int(data.table_ptr[-1]))
            self.gold_tables: Floats = counts.astype(np.float64)
        free = np.ones(data.n_graphs, bool)
        if allowed is not None:
            open_node = np.logical_and.reduceat(allowed, engine.node_ptr[:-1])
            np.logical_and.at(free, data.graph_of, open_node)
        else:
            free[:] = False
        self.unlabelled = free
        #: how the last inference ended
        self.convergence = Convergence()
        self.failures = 0

    def expand(self, w: Floats) -> Floats:
        """All weights."""
        if self.kept is None:
            return w
        out = np.zeros(self.data.size)
        out[self.kept] = w
        return out

    def _infer(self, scores: Scores, weights: Floats) -> Beliefs:
        """Log Z, marginals of the nodes, and sums of the edges' marginals by table, weighted by graph."""
        by_component = weights[self.data.component_graph]
        result = self.data.engine.infer(scores, self.inference, silent=True, weights=by_component)
        self.convergence = result.convergence
        self.failures += not result.convergence.converged
        return result

    def _weigh(self, nodes: Floats, weights: Floats) -> Floats:
        """Multiplies what belongs to nodes with the weights of their graphs, in place."""
        if (weights != 1).any():
            nodes *= np.repeat(weights[self.data.graph_of], self.data.engine.cardinalities)
        return nodes

    def _likelihood(self, scores: Scores) -> tuple[float, Floats, Floats]:
        weight = self.weights[self.data.component_graph]
        free = self._infer(scores, self.weights)
        assert free.factors is not None
        nodes, tables = free.nodes, free.factors
        value = float(weight @ free.log_z)
        if self.complete:
            value -= float(scores.unary[self.gold_node] @ self.weights[self.data.graph_of])
            value -= float(scores.tables @ self.gold_tables)
            nodes[self.gold_node] -= 1
            tables -= self.gold_tables
        else:
            assert self.allowed is not None
            held = Scores(
                np.where(self.allowed, scores.unary, -np.inf), scores.tables, scores.table_ptr, scores.table_of
            )
            clamped = self._infer(held, self.weights)
            assert clamped.factors is not None
            value -= float(weight @ clamped.log_z)
            nodes -= clamped.nodes
            tables -= clamped.factors
        return value, self._weigh(nodes, self.weights), tables

    def _entropy(self, scores: Scores) -> tuple[float, Floats, Floats]:
        """Weighted entropies of the unlabelled graphs and their derivatives by the scores."""
        mask = self.unlabelled * self.weights
        result = self._infer(scores, mask)
        assert result.factors is not None
        value = float(mask[self.data.component_graph] @ result.log_z)
        value -= float(self._weigh(result.nodes, mask) @ scores.unary + result.factors @ scores.tables)
        step = 1e-4
        moved = [
            self._infer(Scores(s * scores.unary, s * scores.tables, scores.table_ptr, scores.table_of), mask)
            for s in (1 + step, 1 - step)
        ]
        hot, cold = moved
        assert hot.factors is not None
        assert cold.factors is not None
        nodes = (cold.nodes - hot.nodes) / (2 * step)
        return value, self._weigh(nodes, mask), (cold.factors - hot.factors) / (2 * step)

    def _sides(self) -> Iterator[tuple[Ints, Ints]]:
        """For both ends of the edges of every group: places of their scores among the nodes', [m, L], and among the
        tables', given the label of the other end."""
        data, ptr = self.data, self.data.engine.node_ptr
        for k, group in enumerate(data.edges):
            n, m = group.shape
            begin = data.table_ptr[data.table_of[data.first[k] : data.first[k + 1]]]
            a, b = group.ends.T
            yield ptr[a][:, None] + np.arange(n), (begin + self.gold[b])[:, None] + np.arange(n) * m
            yield ptr[b][:, None] + np.arange(m), (begin + self.gold[a] * m)[:, None] + np.arange(m)

    def _pseudo(self, scores: Scores) -> tuple[float, Floats, Floats]:
        local = scores.unary.copy()
        for place, entry in self._sides():
            local += np.bincount(place.ravel(), scores.tables[entry].ravel(), len(local))
        value, d = self._alone(local)
        tables = np.zeros(len(scores.tables))
        for place, entry in self._sides():
            tables += np.bincount(entry.ravel(), d[place].ravel(), len(tables))
        return value, d, tables

    def _alone(self, unary: Floats) -> tuple[float, Floats]:
        """The negative log-likelihood of all nodes by these scores alone, and its derivatives."""
        log_p = np.empty_like(unary)
        for group, place in zip(self.data.nodes, self.data.places, strict=True):
            rows = unary[place].reshape(-1, group.n_labels)
            log_p[place] = (rows - log_sum_exp(rows)).ravel()
        value = -float(log_p[self.gold_node] @ self.weights[self.data.graph_of])
        d = np.exp(log_p)
        d[self.gold_node] -= 1
        return value, self._weigh(d, self.weights)

    def _piecewise(self, scores: Scores) -> tuple[float, Floats, Floats]:
        data = self.data
        value, nodes = self._alone(scores.unary)
        tables = -self.gold_tables
        edges = np.bincount(data.table_of, self.weights[data.edge_graph], len(data.table_ptr) - 1)
        for k in range(len(data.edges)):
            table = data.edge_tables(scores.tables, k)
            log_q = table - log_sum_exp(table)
            value -= float(log_q.ravel() @ data.edge_tables(self.gold_tables, k).ravel())
            of_table = edges[data.first_table[k] : data.first_table[k + 1]]
            data.edge_tables(tables, k)[...] += np.exp(log_q) * of_table[:, None]
        return value, nodes, tables

    def value_and_grad(self, w: Floats, out: Floats | None = None) -> tuple[float, Floats]:
        """Value and gradient at w."""
        scores = self.data.scores(self.expand(w))
        compute = {"likelihood": self._likelihood, "pseudo_likelihood": self._pseudo, "piecewise": self._piecewise}
        value, nodes, tables = compute[self.loss](scores)
        if self.entropy_weight and self.unlabelled.any():
            h, h_nodes, h_tables = self._entropy(scores)
            value += self.entropy_weight * h
            nodes += self.entropy_weight * h_nodes
            tables += self.entropy_weight * h_tables
        gradient = np.empty(self.size) if out is None else out
        full = self.data.pull_back(nodes, tables)
        gradient[...] = full if self.kept is None else full[self.kept]
        gradient += 2 * self.c2 * w
        return value + self.c2 * float(w @ w), gradient
