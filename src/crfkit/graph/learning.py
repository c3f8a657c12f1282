"""Training and prediction shared by the estimators on graphs, once the graphs are made."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit.base.fields import Arrays, anything, damaged, integer, label_list, list_of, record
from crfkit.base.messages import are_counted, counted, is_watched, show, warn
from crfkit.base.parameters import Estimator, check_number
from crfkit.chain.beams import as_rule
from crfkit.data.labels import collect_labels, label_array, label_numbers, require_hard, scores_by
from crfkit.features.encoders import FeatureSource
from crfkit.graph.checks import float_array
from crfkit.graph.engine import Inference, Scores, as_inference
from crfkit.graph.factor_graph import FactorGraph
from crfkit.graph.objective import LOSSES, GraphData, GraphObjective
from crfkit.model.chain_model import plain_values, write_file
from crfkit.training.lbfgs import LBFGS
from crfkit.training.optimiser import Callback, Progress

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


_HEADER = record(
    {
        "labels": list_of(label_list, 1),
        "params": record({"inference": anything, "decoding": anything}),
        "info": record({"iterations": integer(0)}),
    }
)


class Graphs(NamedTuple):
    """A data set as graphs, and for every kind of label the variables that have it, graph by graph."""

    data: GraphData
    variables: list[Ints]
    offsets: list[Ints]


def share_right(
    y: Any,
    found: Sequence[Any],
    sample_weight: ArrayLike | None = None,
    *,
    names: tuple[str, str] = ("graph", "node"),
    columns: int = 0,
) -> float:
    """Fraction of predicted labels that are correct; graphs may be weighted.

    Unknown labels (None) do not count; a prediction is correct for a set if it is in the set. With ``columns``, labels
    are tuples of that length, and correct if all known ones are.
    """
    unit, part = names
    if y is None or len(y) != len(found):
        raise ValueError(f"there {are_counted(len(found), unit)}, but labels for {0 if y is None else len(y)}")
    weights = np.ones(len(found)) if sample_weight is None else float_array(sample_weight, "'sample_weight'")
    if weights.shape != (len(found),) or not (weights >= 0).all():
        raise ValueError(f"'sample_weight' must be {len(found)} numbers >= 0")
    right = total = 0.0
    for g, (labels, answers, weight) in enumerate(zip(y, found, weights.tolist(), strict=True)):
        if labels is None:
            continue
        if len(labels) != len(answers):
            raise ValueError(f"{unit} {g} has {counted(len(answers), part)}, but {counted(len(labels), 'label')}")
        for label, answer in zip(labels, answers, strict=True):
            if not columns:
                good = [_agrees(label, answer)]
            elif label is not None and (not isinstance(label, (tuple, list)) or len(label) != columns):
                raise ValueError(f"{unit} {g}: the labels of a token must be a tuple of {columns}, got {label!r}")
            else:
                good = [_agrees(a, b) for a, b in zip(label or (), answer, strict=label is not None)]
            known = [x for x in good if x is not None]
            right += weight * (bool(known) and all(known))
            total += weight * bool(known)
    if total == 0:
        raise ValueError("there are no labels to score")
    return right / total


def _agrees(label: Any, found: Any) -> bool | None:
    """Whether a label found is the one given, or in the set given; None if that is unknown."""
    if label is None:
        return None
    return found in label if isinstance(label, (set, frozenset)) else bool(label == found)


class GraphEstimator(Estimator):
    """Base of the graph estimators: the parameters of training, and everything after the graphs are made."""

    _kind = ""  # the estimator's name in model files
    _names = ("graph", "node")  # what errors call a graph and a variable
    _not_saved = ("n_jobs", "callback", "features", "skips")

    loss: str
    inference: str | Inference
    decoding: str | Inference | None
    c1: float
    c2: float
    entropy_weight: float
    max_iter: int | None
    tol: float
    n_jobs: int | None
    verbose: bool
    callback: Callback | None

    def _is_fitted(self) -> bool:
        return hasattr(self, "weights_")

    def _check_parameters(self) -> None:
        name = type(self).__name__
        for parameter in ("c1", "c2", "entropy_weight", "tol"):
            check_number(self, parameter, getattr(self, parameter), 0)
        check_number(self, "max_iter", self.max_iter, 0, integer=True, optional=True)
        for parameter in ("directed", "bias", "all_possible_states"):
            value = getattr(self, parameter, False)
            if not isinstance(value, (bool, np.bool_)):
                raise ValueError(f"{parameter!r} of {name} must be True or False, got {value!r}")
        if self.callback is not None and not callable(self.callback):
            raise ValueError(f"'callback' of {name} must be a function or None, got {self.callback!r}")
        if self.loss not in LOSSES:
            raise ValueError(f"'loss' of {name} must be one of {LOSSES}, got {self.loss!r}")
        as_inference(self.inference, f"'inference' of {name}")
        if self.decoding is not None:
            as_inference(self.decoding, f"'decoding' of {name}")

    @abstractmethod
    def _graphs(self, X: Any, grow: bool) -> Graphs:
        """The graphs of the data, side by side."""

    def _columns(self, y: Any) -> list[list[Any]]:
        """Labels of every graph, kind by kind: a list per graph, or None."""
        return [list(y)]

    @property
    def _labels(self) -> list[tuple[Any, ...]]:
        """Labels of every kind."""
        return [tuple(self.classes_.tolist())]

    def _numbers(self, graphs: Graphs, columns: list[list[Any]]) -> tuple[Ints, NDArray[np.bool_] | None]:
        """Numbers of the labels of all variables, -1 where not known, and which ones are possible."""
        gold = np.full(graphs.data.engine.n_variables, -1, np.int64)
        kinds = list(zip(columns, self._labels, graphs.offsets, graphs.variables, strict=True))
        hints = []
        for column, labels, offsets, variables in kinds:
            gold[variables], known = label_numbers(column, labels, offsets, self._names)
            require_hard(known)
            hints.append(known)
        if (gold >= 0).all():
            return gold, None
        node_ptr = graphs.data.engine.node_ptr
        allowed = np.empty(int(node_ptr[-1]), bool)
        for known, variables in zip(hints, graphs.variables, strict=True):
            place = node_ptr[variables][:, None] + np.arange(known.shape[1])
            allowed[place] = scores_by(gold[variables], known) == 0
        return np.maximum(gold, -1), allowed

    def _make_objective(self, graphs: Graphs, columns: list[list[Any]], sample_weight: Any) -> GraphObjective:
        gold, allowed = self._numbers(graphs, columns)
        weights = None
        if sample_weight is not None:
            weights = float_array(sample_weight, "'sample_weight'")
            if weights.shape != (graphs.data.n_graphs,) or not (weights >= 0).all():
                raise ValueError(f"'sample_weight' must be {graphs.data.n_graphs} numbers >= 0")
        return GraphObjective(
            graphs.data,
            gold,
            allowed,
            kept=self._kept(graphs.data, gold, allowed),
            loss=self.loss,
            inference=self.inference,
            c2=self.c2,
            entropy_weight=self.entropy_weight,
            weights=weights,
        )

    def _kept(self, data: GraphData, gold: Ints, allowed: NDArray[np.bool_] | None) -> Ints | None:
        """Numbers of the weights that are learnt, or None for all of them."""
        return None

    def _set_labels(self, columns: list[list[Any]]) -> None:
        """Takes the labels out of what is to be learned."""
        kinds = (str, int, float, bytes, tuple)
        self._take_labels([collect_labels(column, (), self._names[0], kinds) for column in columns])

    def _take_labels(self, kinds: list[tuple[Any, ...]]) -> None:
        """Takes the labels of every kind."""
        if len(kinds) != 1:
            raise ValueError("the labels must be of a single kind")
        self.classes_: Any = label_array(kinds[0])

    def fit(self, X: Any, y: Any, *, sample_weight: ArrayLike | None = None) -> Self:
        """Learns the weights.

        Parameters
        ----------
        X : list of graphs, or of sequences
            Training data.
        y : list of labels for each
            A label may be None (unknown) or a set (any of these); a whole graph may be None.
        sample_weight : array [graphs], optional
            Weights of the graphs in the loss.

        Returns
        -------
        self
        """
        self._check_parameters()
        X = [] if X is None else self._listed(X)
        if y is None or len(X) == 0:
            raise ValueError(f"there is no labelled {self._names[0]} to learn from")
        if len(y) != len(X):
            raise ValueError(f"there {are_counted(len(X), self._names[0])}, but labels for {len(y)}")
        columns = self._columns(y)
        self._set_labels(columns)
        graphs = self._graphs(X, grow=True)
        objective = self._make_objective(graphs, columns, sample_weight)
        w0 = np.zeros(objective.size)
        if not objective.complete:
            # labels that are never seen apart stay apart only if they begin so
            w0 = 1e-3 * np.random.default_rng(0).standard_normal(objective.size)
        result = LBFGS().minimize(
            objective, w0, c1=self.c1, tol=self.tol, max_iter=self.max_iter, callback=self._watch(), n_jobs=self.n_jobs
        )
        self.weights_ = objective.expand(result.w)
        self.result_ = result
        self.n_iter_ = result.iterations
        self.convergence_ = objective.convergence
        if objective.failures:
            warn(
                f"{objective.inference.method} inference did not converge in {objective.failures} of "
                f"{result.evaluations} evaluations (last residual {objective.convergence.residual:.2g}); "
                f"see 'inference' of {type(self).__name__}"
            )
        if text := LBFGS().shortfall(result, self.max_iter, self.tol):
            self._say_not_converged(text)
        return self

    def objective(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> GraphObjective:
        """What :meth:`fit` minimises, without the ``c1`` term: ``size`` and ``value_and_grad(w)``."""
        self._check_parameters()
        columns = self._columns(y)
        fitted = self._is_fitted()
        if not fitted:
            self._set_labels(columns)
        return self._make_objective(self._graphs(self._listed(X), grow=not fitted), columns, sample_weight)

    def _watch(self) -> Callback | None:
        if not is_watched(self.verbose):
            return self.callback

        def watch(progress: Progress, w: Floats) -> bool | None:
            show(progress, self.verbose)
            return None if self.callback is None else self.callback(progress, w)

        return watch

    def _listed(self, X: Any) -> list[Any]:
        if not isinstance(X, Iterable):
            raise ValueError(f"'X' must be a list of {self._names[0]}s, got {X!r}")
        return list(X)

    def _decoding(self) -> str | Inference:
        if self.decoding is not None:
            return self.decoding
        return self.inference if self.loss == "likelihood" else "loopy"

    def _scored(self, X: Any) -> tuple[Graphs, Scores]:
        """Graphs, and their scores by the weights learnt."""
        self._require_fitted()
        graphs = self._graphs(self._listed(X), grow=False)
        return graphs, graphs.data.scores(self.weights_)

    def _decode(self, X: Any) -> list[list[NDArray[Any]]]:
        """Best labels: kind by kind, an array per graph."""
        graphs, scores = self._scored(X)
        y, _, self.convergence_ = graphs.data.engine.decode(scores, self._decoding())
        kinds = zip(self._labels, graphs.variables, graphs.offsets, strict=True)
        return [_by_graph(label_array(labels)[y[variables]], offsets) for labels, variables, offsets in kinds]

    def _beliefs(self, X: Any) -> list[list[Floats]]:
        graphs, scores = self._scored(X)
        engine = graphs.data.engine
        rule = self.inference if self.loss == "likelihood" else self._decoding()
        nodes = engine.infer(scores, rule, factors=False).nodes
        out = []
        for labels, variables, offsets in zip(self._labels, graphs.variables, graphs.offsets, strict=True):
            place = engine.node_ptr[variables][:, None] + np.arange(len(labels))
            out.append(_by_graph(nodes[place], offsets))
        return out

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to a file that :func:`crfkit.load` reads.

        The file is written next to the target and renamed when complete. Functions are not saved.
        """
        self._require_fitted()
        for labels in self._labels:
            for label in labels:
                if not isinstance(label, (str, int, float)):
                    raise ValueError(f"a model file can hold only strings and numbers as labels, not {label!r}")
        params = {k: v for k, v in self.get_params(deep=False).items() if k not in self._not_saved}
        settings = {k: _to_plain(params[k]) for k in ("inference", "decoding")}
        header = {
            "estimator": self._kind,
            "labels": [list(labels) for labels in self._labels],
            "params": plain_values(params | settings),
            "info": {"iterations": int(self.n_iter_)},
        }
        more, arrays = self._state()
        write_file(path, header | more, {"weights": self.weights_} | arrays)

    @abstractmethod
    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What else a model file must hold."""

    @abstractmethod
    def _set_state(self, header: dict[str, Any], arrays: Arrays, features: FeatureSource) -> None:
        """Takes it back; labels and parameters are there."""

    @abstractmethod
    def _shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the weights, group by group."""

    @classmethod
    def _restore(
        cls,
        name: str,
        header: dict[str, Any],
        arrays: Arrays,
        features: FeatureSource,
        n_jobs: int | None,
    ) -> Self:
        with damaged(name):
            head = _HEADER(header, "")
            known = cls._parameters()
            params = {k: v for k, v in head["params"].items() if k in known and k not in cls._not_saved}
            params |= {k: _from_plain(params[k], k) for k in ("inference", "decoding")} | {"n_jobs": n_jobs}
            out = cls(**params)
            out._check_parameters()
            out._take_labels([tuple(kind) for kind in head["labels"]])
            out._set_state(head, arrays, features)
            out.weights_ = np.array(arrays.finite("weights", (sum(map(math.prod, out._shapes())),)), np.float64)
            out.n_iter_ = head["info"]["iterations"]
        return out

    def factor_graph(self, x: Any) -> FactorGraph:
        """The scored :class:`FactorGraph` of one graph."""
        graphs, scores = self._scored([x])
        return FactorGraph.from_arrays(graphs.data.engine, scores)


def _to_plain(inference: str | Inference | None) -> Any:
    """Settings as a model file holds them."""
    if not isinstance(inference, Inference):
        return inference
    beam = as_rule(inference.beam)
    return asdict(inference) | {"beam": None if beam is None else beam.text()}


def _from_plain(values: Any, name: str) -> Any:
    if not isinstance(values, dict):
        return values
    known = dict.fromkeys((f.name for f in fields(Inference)), anything)
    return Inference(**record({}, known, closed=True)(values, f"params.{name}"))


def _by_graph(flat: NDArray[Any], offsets: Ints) -> list[NDArray[Any]]:
    return np.split(flat, offsets[1:-1]) if len(offsets) > 1 else []
