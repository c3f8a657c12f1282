"""A trained model, and the file it is kept in."""

from __future__ import annotations

import json
import os
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.fields import (
    LARGEST,
    Arrays,
    ModelError,
    anything,
    damaged,
    flag,
    integer,
    list_of,
    number,
    one_of,
    optional,
    record,
    refuse,
    state_list,
    text,
)
from crfkit.base.messages import counted
from crfkit.base.numbers import inner_tokens, log_sum_exp, n_tuples, pieces, split_attribute, tuple_columns
from crfkit.base.shown import Record
from crfkit.base.tensors import read_tensors, write_tensors
from crfkit.base.threads import resolve_threads
from crfkit.chain.constraints import Constraints
from crfkit.chain.ordered import MOST_LABELS, TupleScores, holds_all, ordered
from crfkit.chain.potentials import Potentials
from crfkit.data.blocks import Blocks
from crfkit.data.dataset import Dataset, Layout
from crfkit.features.encoders import Encoder, FeatureSource, ItemEncoder
from crfkit.features.restoring import numbers_in, renumbered, restore_encoder

_PIECE = 1 << 23  # scores held at a time while predicting


class StateWeight(NamedTuple):
    """Weight of an attribute for a label."""

    attribute: str
    label: Any
    weight: float


class EdgeWeight(NamedTuple):
    """Weight of an attribute for a label followed by another."""

    attribute: str
    label: Any
    following: Any
    weight: float


class TupleWeight(NamedTuple):
    """Weight of three or more labels in a row, with an attribute of the transition into the last, or None."""

    attribute: str | None
    labels: tuple[Any, ...]
    weight: float


@dataclass(frozen=True, eq=False, repr=False)
class ChainModel(Record):
    """A linear-chain CRF: an encoder, labels, and weights.

    To inspect a model, use :meth:`card`, :meth:`state_weights`, :meth:`edge_weights`, :meth:`transition_table`, and
    beyond the first order :meth:`longest_weights`.

    Attributes
    ----------
    encoder : Encoder
        Knows the attributes.
    labels : tuple
        Label of each state of the lattice. A label with several hidden states occurs once for each.
    layout : Layout
    weights : float64 array [layout.size]
    constraints : Constraints or None
    dtype : numpy dtype
        Precision of scores.
    params : dict
        Parameters of the estimator that made it.
    info : dict
        Facts about training.
    temperature : float
        All scores are divided by it: the probabilities are :math:`p(y)^{1/T}`, renormalised. The best labels do not
        change. See :func:`crfkit.calibration.fit_temperature`.

    Examples
    --------
    >>> from crfkit import CRF
    >>> model = CRF().fit([["a", "b"]], [["A", "B"]]).model_
    >>> model.labels, model.weights.shape == (model.layout.size,)
    (('A', 'B'), True)
    """

    encoder: Encoder
    labels: tuple[Any, ...]
    layout: Layout
    weights: NDArray[np.float64]
    constraints: Constraints | None = None
    dtype: Any = np.float32
    params: Mapping[str, Any] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    temperature: float = 1.0

    @cached_property
    def distinct_labels(self) -> tuple[Any, ...]:
        """The labels, each once."""
        return tuple(dict.fromkeys(self.labels))

    @property
    def has_hidden_states(self) -> bool:
        """Whether some label has several states."""
        return len(self.distinct_labels) < len(self.labels)

    @cached_property
    def state_names(self) -> tuple[Any, ...]:
        """What states are called: as their labels, with #1, #2, ... where a label has several."""
        if not self.has_hidden_states:
            return self.labels
        return tuple(f"{label}#{self.labels[: i + 1].count(label)}" for i, label in enumerate(self.labels))

    def scorer(self, n_jobs: int | None = 1, dtype: Any = None) -> _core.ScorerF32:
        """The core's scorer in the given precision."""
        dtype = np.dtype(dtype or self.dtype)
        if dtype not in self._scorers:
            native = _core.ScorerF32 if dtype == np.float32 else _core.ScorerF64
            forbidden = None if self.constraints is None else self.constraints.as_scores()
            weights = np.ascontiguousarray(self.tempered().weights, np.float64)
            self._scorers[dtype] = native(self.layout.native, weights, forbidden, resolve_threads(n_jobs))
        return self._scorers[dtype]

    def tempered(self) -> ChainModel:
        """The same model with the temperature in its weights."""
        if self.temperature == 1.0:
            return self
        return replace(self, weights=self.weights / self.temperature, temperature=1.0)

    @cached_property
    def _scorers(self) -> dict[Any, _core.ScorerF32]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for made in ("_scorers", "_tuple_scores"):
            state.pop(made, None)
        state["layout"] = {**self.layout.arrays(), **self.layout.numbers()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state["layout"] = Layout(**state["layout"])
        self.__dict__.update(state)

    def score(self, data: Dataset, n_jobs: int | None, dtype: Any = None, known: Any = None) -> Potentials:
        """Potentials of a data set, a batch; ``known``: what to add to the scores of labels, [N, L]."""
        scorer = self.scorer(n_jobs, dtype)
        n = self.layout.n_labels
        kind = np.dtype(dtype or self.dtype)
        unary = np.empty((data.n_tokens, n), kind)
        edges = int(np.maximum(np.diff(data.offsets) - 1, 0).sum()) if scorer.per_step else 1
        pairwise = np.empty((edges, n, n), kind)
        if data.stored is None or scorer.per_step:
            scorer.score(data.native, resolve_threads(n_jobs), unary, pairwise)
        else:
            scorer.score_stored(data.stored, resolve_threads(n_jobs), unary, pairwise)
        if known is not None:
            unary += known.astype(unary.dtype)
        found = Potentials(unary, pairwise if scorer.per_step else pairwise[0], offsets=data.offsets)
        if self.layout.order == 1:
            return found
        own = None
        if self.layout.tuples_with_attributes and data.edge_ptr is not None and data.edge_attr is not None:
            own = data.edge_ptr, data.edge_attr
        return ordered(found, self._tuple_scores, n_jobs, own)

    @cached_property
    def _tuple_scores(self) -> TupleScores:
        layout = self.layout
        weights = self.tempered().weights[layout.tuple_first :]
        return TupleScores(layout.order, layout.class_of, layout.tuples, weights)

    def tuple_weights(self, attribute: str | None = None) -> dict[tuple[Any, ...], float]:
        """Weights of three or more labels in a row, by the labels; zero weights are omitted.

        If labels share a class, the first label of the class stands for it.

        Parameters
        ----------
        attribute : str, optional
            The weights with this attribute of the transition into the last token, instead of those without one.

        Raises
        ------
        ValueError
            If the model has no such attribute.

        Examples
        --------
        >>> from crfkit import CRF
        >>> crf = CRF(order=2).fit([["a", "b", "a"]], [["A", "B", "A"]])
        >>> ("A", "B", "A") in crf.model_.tuple_weights()
        True
        """
        wanted = -1
        if attribute is not None:
            names = list(self.encoder.names(edge=True))
            if attribute not in names:
                some = ", ".join(names[:5]) + f", ... ({len(names)})" * (len(names) > 5)
                raise ValueError(f"the model has no attribute {attribute!r} of transitions: it has {some or 'none'}")
            wanted = names.index(attribute)
        return {labels: w for which, labels, w in self._tuples() if which == wanted}

    def longest_weights(self, top: int | None = None) -> list[TupleWeight]:
        """Weights of three or more labels in a row, with attributes and without, largest first.

        If labels share a class, the first label of the class stands for it.

        Returns
        -------
        list of TupleWeight
            Attribute (None: without one), labels from the oldest on, and weight; the ``top`` largest in magnitude.
        """
        names = self.encoder.names(edge=True)
        order = sorted(self._tuples(), key=lambda found: -abs(found[2]))[:top]
        return [TupleWeight(None if k < 0 else names[k], labels, w) for k, labels, w in order]

    def _tuples(self) -> Iterator[tuple[int, tuple[Any, ...], float]]:
        """Attribute (-1: none), labels and weight of each run of labels whose weight is not zero."""
        layout = self.layout
        if layout.order == 1:
            return
        n = layout.n_classes
        names = [self.labels[int(np.argmax(layout.class_of == c))] for c in range(n)]
        attributes, tuples = split_attribute(layout.tuples, n_tuples(n, layout.order))
        weights = self.weights[layout.tuple_first :]
        for attribute, rest, w in zip(attributes.tolist(), tuples.tolist(), weights.tolist(), strict=True):
            if w:
                labels = tuple_columns(rest, n, 3 if rest < n**3 else 4)
                yield attribute, tuple(names[k] for k in labels), w

    def potentials(
        self, X: Any, n_jobs: int | None, dtype: Any = None, known: Callable[[Dataset], Any] | None = None
    ) -> Iterator[Potentials]:
        """Potentials of sequences, piece by piece so that long inputs do not fill the memory.

        ``known`` gives what to add to the scores of the labels of a piece.
        """
        for data in self.datasets(X, n_jobs):
            yield self.score(data, n_jobs, dtype, None if known is None else known(data))

    def datasets(self, X: Any, n_jobs: int | None) -> Iterator[Dataset]:
        """Encoded sequences, in the pieces of :meth:`potentials`."""
        if isinstance(X, Blocks):
            yield from self._pieces(X)
            return
        whole = self.encoder.read(X)
        for a, b in pieces(whole.offsets, self._tokens_at_once):
            piece = whole if b - a == len(whole) else whole[a:b]
            yield self.encoder.encode(piece, False, n_jobs)

    def _pieces(self, blocks: Blocks) -> Iterator[Dataset]:
        """The sequences of a block file with the model's attributes, some blocks at a time."""
        state, edge = numbers_in(blocks, self.encoder)
        n, most = blocks.dataset.n_blocks, self._tokens_at_once
        step = max(1, most // max(1, blocks.n_tokens // max(n, 1)))
        for first in range(0, n, step):
            data = renumbered(blocks.part(first, min(first + step, n)), state, edge)
            for a, b in pieces(data.offsets, most):
                yield data if b - a == data.n_sequences else data.take(np.arange(a, b))

    @property
    def _tokens_at_once(self) -> int:
        return max(1, _PIECE // self._scores_per_token)

    @property
    def _scores_per_token(self) -> int:
        order, n, own_steps = self.layout.order, self.layout.n_labels, len(self.layout.edge_ptr) > 0
        first = n * n if own_steps else n
        if order == 1:
            return first
        if holds_all(order, n):
            return int(n ** (2 * order) if own_steps else 2 * n**order)
        return max(first, int(MOST_LABELS[order] ** (2 * order)))

    def state_weights(self, top: int | None = None, label: Any = None) -> list[StateWeight]:
        """(attribute, label) weights, largest first.

        Parameters
        ----------
        top : int, optional
            How many.
        label : optional
            Only those of one label, or of one of its hidden states (``"A#1"``).

        Examples
        --------
        >>> from crfkit import CRF
        >>> crf = CRF(features=None).fit([[["a"], ["b"]]], [["A", "B"]])
        >>> sorted((w.attribute, w.label) for w in crf.model_.state_weights(top=2))
        [('a', 'A'), ('b', 'B')]
        """
        layout = self.layout
        weights = self.weights[: len(layout.state_label)]
        chosen = np.arange(len(weights))
        if label is not None:
            mine = [i for i, pair in enumerate(zip(self.labels, self.state_names, strict=True)) if label in pair]
            if not mine:
                raise ValueError(
                    f"the model has no label {label!r}: it has {', '.join(map(str, self.distinct_labels))}"
                )
            chosen = np.flatnonzero(np.isin(layout.state_label, mine))
        order = chosen[np.argsort(-np.abs(weights[chosen]), kind="stable")]
        order = order[weights[order] != 0][:top]
        names = self.encoder.names()
        attribute = np.searchsorted(layout.state_ptr, order, side="right") - 1
        return [
            StateWeight(names[a], self.state_names[layout.state_label[k]], float(weights[k]))
            for k, a in zip(order.tolist(), attribute.tolist(), strict=True)
        ]

    def edge_weights(self, top: int | None = None) -> list[EdgeWeight]:
        """Weights of input-dependent transitions, largest first."""
        layout = self.layout
        n = layout.n_labels
        weights = self.weights[layout.edge_first : layout.edge_first + len(layout.edge_pair)]
        order = np.argsort(-np.abs(weights), kind="stable")
        order = order[weights[order] != 0][:top]
        names = self.encoder.names(edge=True)
        attribute = np.searchsorted(layout.edge_ptr, order, side="right") - 1
        pairs = [divmod(int(layout.edge_pair[k]), n) for k in order]
        return [
            EdgeWeight(names[a], self.state_names[i], self.state_names[j], float(weights[k]))
            for k, a, (i, j) in zip(order.tolist(), attribute.tolist(), pairs, strict=True)
        ]

    def transition_weights(self) -> dict[tuple[Any, Any], float]:
        """Nonzero weights of a label followed by another, regardless of the constraints."""
        n, where = self.layout.n_labels, self.layout.transition
        known = np.flatnonzero(where >= 0)
        pairs = zip(known.tolist(), self.weights[where[known]].tolist(), strict=True)
        names = self.state_names
        return {(names[k // n], names[k % n]): w for k, w in pairs if w}

    def transition_table(self) -> NDArray[np.float64]:
        """Scores [L, L] of label i followed by label j; minus infinity where forbidden.

        Examples
        --------
        >>> from crfkit import CRF
        >>> crf = CRF(constraints=[("B", "A")]).fit([["a", "b"]], [["A", "B"]])
        >>> bool(crf.model_.transition_table()[1, 0] == -float("inf"))
        True
        """
        layout = self.layout
        n = layout.n_labels
        table = np.zeros((n, n))
        known = layout.transition.reshape(n, n) >= 0
        table[known] = self.weights[layout.transition[known.ravel()]]
        if self.constraints is not None:
            table[~self.constraints.transitions] = -np.inf
        return table

    def card(self) -> dict[str, Any]:
        """A summary of the model."""
        layout = self.layout
        n_state, n_edge = self.encoder.n_attributes
        config = self.encoder.config()
        kind = config.get("inner", config)
        features = f"{len(kind['plan']['templates'])} templates" if kind["kind"] == "plan" else "attributes as given"
        if kind.get("function"):
            features = f"function {kind['function']}"
        if kind is not config:
            features += f", hashed to {config['bits']} bits"
        return {
            "labels": [str(label) for label in self.distinct_labels],
            **({"states": len(self.labels)} if self.has_hidden_states else {}),
            **({} if layout.order == 1 else {"order": layout.order, "label_tuples": len(layout.tuples)}),
            "features": features,
            "attributes": n_state,
            "transition_attributes": n_edge,
            "weights": layout.size,
            "active_weights": int(np.count_nonzero(self.weights)),
            "constraints": self.constraints is not None,
            "precision": np.dtype(self.dtype).name,
            **({} if self.temperature == 1.0 else {"temperature": self.temperature}),
            "parameters": dict(self.params),
            "training": dict(self.info),
        }


class LocalChainModel(ChainModel):
    """A chain whose scores are normalised at each step, as in a MEMM.

    Its potentials are log-probabilities divided by the temperature: of the first label, and of each label given the
    one before.
    """

    def tempered(self) -> ChainModel:
        """The same model: its temperature divides what is normalised already."""
        return self

    def score(self, data: Dataset, n_jobs: int | None, dtype: Any = None, known: Any = None) -> Potentials:
        """Potentials of a data set, a batch; transitions have a matrix for every step."""
        p = super().score(data, n_jobs, dtype)
        inner = inner_tokens(data.offsets)
        first = ~inner
        steps = p.pairwise + p.unary[inner][:, None, :]
        steps -= log_sum_exp(steps)
        unary = np.zeros_like(p.unary)
        unary[first] = p.unary[first] - log_sum_exp(p.unary[first])
        if self.temperature != 1.0:
            unary, steps = unary / self.temperature, steps / self.temperature
        if known is not None:
            unary = unary + known.astype(unary.dtype)
        return Potentials(unary, steps, offsets=data.offsets)

    @property
    def _scores_per_token(self) -> int:
        return self.layout.n_labels**2


def _measured(value: Any, field: str) -> float:
    """Any number; what was measured need not be finite."""
    if isinstance(value, int) and not isinstance(value, bool):
        return float(number()(value, field))
    return value if isinstance(value, float) else refuse(field, "a number", value)


def takes_items(model: ChainModel) -> bool:
    """Whether tokens are bags of attributes, which a function may make, and not columns."""
    return isinstance(model.encoder, ItemEncoder)


def with_function(model: ChainModel, function: Callable[..., Any]) -> ChainModel:
    """The same model with a feature function, which turns tokens into items."""
    assert isinstance(model.encoder, ItemEncoder)
    return replace(model, encoder=ItemEncoder(function, model.encoder._names))


def write_model(model: ChainModel, path: str | os.PathLike[str], estimator: str) -> None:
    """Writes the file of a chain model."""
    header = {
        "estimator": estimator,
        "labels": list(model.labels),
        "layout": model.layout.numbers(),
        "encoder": model.encoder.config(),
        "dtype": np.dtype(model.dtype).name,
        "params": plain_values(model.params),
        "info": plain_values(model.info),
    }
    if model.temperature != 1.0:
        header["temperature"] = float(model.temperature)
    arrays = {f"encoder.{k}": v for k, v in model.encoder.arrays().items()}
    arrays |= {f"layout.{k}": v for k, v in model.layout.arrays().items()}
    arrays["weights"] = np.asarray(model.weights)
    if model.constraints is not None:
        arrays |= {f"constraints.{k}": v for k, v in vars(model.constraints).items()}
    write_file(path, header, arrays)


def write_file(path: str | os.PathLike[str], header: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes a model file (safetensors); after an error no partial file remains."""
    write_tensors(path, "crfkit", header, arrays)


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON can hold; anything else by its text."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        value = value.item() if isinstance(value, np.generic) else value
        try:
            json.dumps(value)
            out[key] = value
        except TypeError:
            out[key] = repr(value)
    return out


def read_file(path: str | os.PathLike[str], verify: bool = True) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a model file of any estimator; checksums are checked if ``verify``.

    Raises
    ------
    ModelError
        If the file is not a crfkit model, is cut short, damaged, or of a later format.
    """
    file = read_tensors(path, "crfkit", "model", verify)
    return file.header, file.arrays


def read_model(path: str | os.PathLike[str], features: FeatureSource = None) -> tuple[ChainModel, dict[str, Any]]:
    """Reads the file of a chain model; returns the model and the file's header.

    Parameters
    ----------
    path : path
    features : callable, optional
        The feature function, if the model was trained with one.

    Raises
    ------
    ModelError
        If the file is not a crfkit model, is cut short, damaged, or of a later format.
    """
    header, arrays = read_file(path)
    return chain_model(os.fspath(path), header, arrays, features), header


#: What training leaves in a file, and what the command line needs to know about its data.
_READING = record(
    {},
    {
        "format": optional(one_of("columns", "conllu", "crfsuite")),
        "label": optional(text),
        "columns": optional(text),
        "comment": optional(text),
        "n_columns": optional(integer(0, 2**31)),
    },
    closed=True,
)
_INFO = record(
    {},
    {
        "iterations": integer(0),
        "sequences": integer(0),
        "tokens": integer(0),
        "objective": _measured,
        "reason": text,
        "stopped": text,
        "origin": text,
        "reading": _READING,
        "integers": flag,
        "unseen": list_of(list_of(number())),
    },
)
_CHAIN = record(
    {
        "labels": state_list,
        "layout": record(
            {
                "n_labels": integer(1, 65535),
                "start": integer(-1, 2**31),
                "end": integer(-1, 2**31),
                "edge_first": integer(0, 2**31),
                "size": integer(0, 2**31),
            },
            {"order": integer(2, 3)},
            closed=True,
        ),
        "encoder": anything,
        "dtype": one_of("float32", "float64"),
        "params": record({}, {"algorithm": optional(text)}),
        "info": _INFO,
    },
    {"estimator": text, "temperature": number(0, strict=True)},
)


def _checked_tuples(
    rows: Arrays, n_labels: int, numbers: Mapping[str, Any], parts: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """The tuples of labels of a file and the classes that they are of, checked."""
    classes: NDArray[np.uint16] = rows.of_kind("classes", "u", (n_labels,)).astype(np.uint16)
    n = int(classes.max()) + 1
    if n > n_labels:
        raise ValueError("'layout.classes' must number the classes of labels")
    tuples: NDArray[np.uint64] = rows.of_kind("tuples", "u", (None,)).astype(np.uint64)
    order = numbers["order"]
    many = n_tuples(n, order)
    end = many * max(1, len(parts["edge_ptr"]))  # with each attribute, and without one
    if len(tuples) > numbers["size"] or (tuples[1:] <= tuples[:-1]).any():
        raise ValueError("'layout.tuples' must ascend, and have a weight each")
    if end >= 2**63 or (len(tuples) and int(tuples[-1]) >= end):
        raise ValueError("'layout.tuples' names labels or attributes that do not exist")
    return {"tuples": tuples, "classes": classes}


def chain_model(name: str, header: dict[str, Any], arrays: Arrays, features: FeatureSource = None) -> ChainModel:
    """A chain model from the contents of its file, all of which are checked."""
    kind = header.get("estimator", "crf")
    if kind not in ("crf", "hmm", "memm"):
        raise ModelError(f"{name}: 'estimator' is {reprlib.repr(kind)}, which is not a linear-chain model")
    with damaged(name):
        head = _CHAIN(header, "")
        numbers, n, rows = head["layout"], len(head["labels"]), arrays.group("layout")
        if numbers["n_labels"] != n:
            raise ValueError(f"'layout.n_labels' must be {n}, the number of 'labels', got {numbers['n_labels']}")
        parts: dict[str, Any] = {
            k: rows.of_kind(k, "iu", (None,)) for k in ("state_ptr", "state_label", "edge_ptr", "edge_pair")
        }
        if "order" in numbers:
            parts |= _checked_tuples(rows, n, numbers, parts)
        layout = Layout(**parts, transition=rows.of_kind("transition", "iu", (n * n,)), **numbers)
        layout.native  # noqa: B018 - checks the layout
        weights = arrays.finite("weights", (layout.size,))
        attributes = len(layout.state_ptr) - 1, max(0, len(layout.edge_ptr) - 1)
        encoder = restore_encoder(head["encoder"], arrays.group("encoder"), features, attributes)
        rules = arrays.group("constraints")
        constraints = Constraints._restored(rules) if rules else None
        if constraints is not None and len(constraints.start) != n:
            raise ValueError(f"its constraints are for {len(constraints.start)} labels, it has {n}")
        states = integer(1, n)(head["params"].get("hidden_states", 1), "params.hidden_states")
        if n != len(set(head["labels"])) * states:
            raise ValueError(f"each label in 'labels' must occur {counted(states, 'time')}")
        temperature = head.get("temperature", 1.0)
        if np.abs(weights).max(initial=0) > LARGEST * temperature:
            raise ValueError(f"'temperature' is too small for the weights: {temperature}")
        own = LocalChainModel if kind == "memm" else ChainModel
        more = np.dtype(head["dtype"]), head["params"], head["info"], temperature
        return own(encoder, tuple(head["labels"]), layout, weights, constraints, *more)
