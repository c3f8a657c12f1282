"""A trained model of segments, and the file it is kept in."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.fields import Arrays, anything, flag, integer, label_list, list_of, one_of, optional, record, text
from crfkit.base.numbers import pieces
from crfkit.base.shown import Record
from crfkit.base.threads import resolve_threads
from crfkit.data.dataset import Layout
from crfkit.features.encoders import Encoder, FeatureSource
from crfkit.features.restoring import restore_encoder
from crfkit.model.chain_model import EdgeWeight, StateWeight, TupleWeight, plain_values, write_file
from crfkit.segment.features import FeatureFinder
from crfkit.segment.objective import Items, Shape, joined
from crfkit.segment.potentials import MOST_ORDER, Potentials

_PIECE = 1 << 22  # scores held at a time while predicting


@dataclass(frozen=True, eq=False, repr=False)
class SegmentModel(Record):
    """A semi-Markov CRF: an encoder of tokens, a finder of segments, labels, and weights.

    Attributes
    ----------
    encoder : Encoder
    finder : FeatureFinder or None
    labels : tuple
        Types of segments.
    outside : label or None
        The type of text that belongs to no segment.
    chunks : bool
        Whether labels of tokens are B-X and I-X, or bare types.
    shape : Shape
    columns : Layout
        Weights of attributes for labels, for beginnings and for ends.
    weights : float64 array
    dtype : numpy dtype
    params, info : dict
    """

    encoder: Encoder
    finder: FeatureFinder | None
    labels: tuple[Any, ...]
    outside: Any
    chunks: bool
    shape: Shape
    columns: Layout
    weights: NDArray[np.float64]
    dtype: Any = np.float32
    params: Mapping[str, Any] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("scorers", "tables")}

    @cached_property
    def tables(self) -> dict[str, NDArray[np.float64]]:
        """Scores of pairs, lengths, the tail, first and last labels."""
        names = ("pairs", "lengths", "tail", "start", "end")
        numbers, size = self.shape.numbers(self.columns.size)
        if len(self.weights) != size:
            raise ValueError(f"the model has {len(self.weights)} weights, not {size}")
        return {k: self.shape.scores(x, self.weights) for k, x in zip(names, numbers, strict=True)}

    @cached_property
    def scorers(self) -> dict[Any, _core.ScorerF32]:
        """The core's scorers, by precision."""
        return {}

    def potentials(self, X: Any, n_jobs: int | None, dtype: Any = None) -> Iterator[tuple[Potentials, Any]]:
        """Potentials of sequences, and their tokens, piece by piece."""
        whole = self.encoder.read(X)
        n = self.shape.columns
        for a, b in pieces(whole.offsets, max(1, _PIECE // n)):
            piece = whole if b - a == len(whole) else whole[a:b]
            yield self.score(piece, n_jobs, dtype), piece

    def listed(self, piece: Any, n_jobs: int | None) -> Items | None:
        """The segments of a text that have attributes."""
        if self.finder is None:
            return None
        longest = self.shape.max_length - (self.shape.order > 0)
        first = self.encoder.n_attributes[0]
        return self.finder.find(piece, piece.offsets, longest, first, None, n_jobs)

    def score(self, piece: Any, n_jobs: int | None, dtype: Any = None) -> Potentials:
        """Potentials of a batch."""
        kind = np.dtype(dtype or self.dtype)
        data, items = self.encoder.encode(piece, False, n_jobs), self.listed(piece, n_jobs)
        both = joined(data, items)
        if kind not in self.scorers:
            native = _core.ScorerF32 if kind == np.float32 else _core.ScorerF64
            w = np.ascontiguousarray(self.weights[: self.columns.size])
            self.scorers[kind] = native(self.columns.native, w, None, resolve_threads(n_jobs))
        width, n, tokens = self.shape.columns, self.shape.n_labels, data.n_tokens
        rows = np.empty((both.n_tokens, width), kind)
        self.scorers[kind].score(both.native, resolve_threads(n_jobs), rows, np.empty((1, width, width), kind))
        t = {k: v.astype(kind) for k, v in self.tables.items()}
        more: dict[str, Any] = {}
        if self.shape.first:
            more["first"] = rows[:tokens, n : 2 * n]
        if self.shape.last:
            more["last"] = rows[:tokens, width - n :]
        if items is not None and len(items.length):
            end = items.end
            more |= {"segments": np.stack([end - items.length, end], axis=1), "segment_scores": rows[tokens:, :n]}
        if self.shape.order:
            more |= {"tail": t["tail"], "tail_order": self.shape.order}
        tables = t["lengths"].reshape(-1, n), t["pairs"].reshape(n, n), t["start"], t["end"]
        return Potentials(rows[:tokens, :n], *tables, offsets=data.offsets, **more)

    def attribute_names(self) -> list[str]:
        """Names of the attributes of tokens, then of segments."""
        return [*self.encoder.names(), *([] if self.finder is None else self.finder.names())]

    def _cells(self) -> tuple[list[tuple[Any, ...]], NDArray[np.int64]]:
        """What each weight is for, and its number."""
        c, labels, names = self.columns, self.labels, self.attribute_names()
        attribute = np.searchsorted(c.state_ptr, np.arange(c.size), side="right") - 1
        cells: list[tuple[Any, ...]] = [
            ("attribute", names[a], self.column_name(k))
            for a, k in zip(attribute.tolist(), c.state_label.tolist(), strict=True)
        ]
        (pairs, lengths, *ends), _ = self.shape.numbers(c.size)
        cells += [("pair", x, y) for x in labels for y in labels]
        cells += [("length", k, x) for k in range(1, self.shape.max_length + 1) for x in labels]
        cells += [
            (name, x) for name, part in zip(("tail", "start", "end"), ends, strict=True) for x in labels if len(part)
        ]
        return cells, np.concatenate([np.arange(c.size), pairs, lengths, *ends])

    def moved(self, other: SegmentModel) -> NDArray[np.float64]:
        """Weights of another model: those of this one where both have them, zero elsewhere."""
        cells, numbers = self._cells()
        known = {cell: self.weights[i] for cell, i in zip(cells, numbers.tolist(), strict=True) if i >= 0}
        out = np.zeros(len(other.weights))
        for cell, i in zip(*other._cells(), strict=True):
            if i >= 0:
                out[i] = known.get(cell, 0.0)
        return out

    def column_name(self, column: int) -> str:
        """What a column of weights is for."""
        part, j = divmod(column, self.shape.n_labels)
        if part == 0:
            return str(self.labels[j])
        return f"{'first' if self.shape.first and part == 1 else 'last'} of {self.labels[j]}"

    def state_weights(self, top: int | None = None, label: Any = None) -> list[StateWeight]:
        """Weights of attributes for labels, and for the first and last tokens of segments, largest first."""
        c = self.columns
        w = self.weights[: c.size]
        chosen = np.arange(len(w))
        if label is not None:
            if label not in self.labels:
                raise ValueError(f"the model has no label {label!r}: it has {', '.join(map(str, self.labels))}")
            chosen = np.flatnonzero(c.state_label % self.shape.n_labels == self.labels.index(label))
        order = chosen[np.argsort(-np.abs(w[chosen]), kind="stable")]
        order = order[w[order] != 0][:top]
        names = self.attribute_names()
        attribute = np.searchsorted(c.state_ptr, order, side="right") - 1
        return [
            StateWeight(names[a], self.column_name(int(c.state_label[k])), float(w[k]))
            for k, a in zip(order.tolist(), attribute.tolist(), strict=True)
        ]

    def edge_weights(self, top: int | None = None) -> list[EdgeWeight]:
        """None: transitions do not look at the input."""
        return []

    def longest_weights(self, top: int | None = None) -> list[TupleWeight]:
        """None: transitions look at two segments."""
        return []

    def transition_weights(self) -> dict[tuple[Any, Any], float]:
        """Weights of a segment followed by another, without those that are zero."""
        table = self.tables["pairs"].reshape(self.shape.n_labels, -1)
        return {(self.labels[i], self.labels[j]): float(table[i, j]) for i, j in np.argwhere(table != 0)}

    def transition_table(self) -> NDArray[np.float64]:
        """Scores [L, L] of a segment with label i followed by one with label j."""
        return self.tables["pairs"].reshape(self.shape.n_labels, -1)

    def card(self) -> dict[str, Any]:
        """A summary of the model."""
        kind = self.encoder.config()
        tokens = f"{len(kind['plan']['templates'])} templates" if kind["kind"] == "plan" else "attributes as given"
        return {
            "labels": [str(label) for label in self.labels],
            "outside": None if self.outside is None else str(self.outside),
            "max_length": self.shape.max_length,
            "tail_order": self.shape.order,
            "features": f"function {kind['function']}" if kind.get("function") else tokens,
            "attributes": self.encoder.n_attributes[0],
            "segment_attributes": 0 if self.finder is None else len(self.finder.names()),
            "weights": len(self.weights),
            "active_weights": int(np.count_nonzero(self.weights)),
            "constraints": False,
            "precision": np.dtype(self.dtype).name,
            "parameters": dict(self.params),
            "training": dict(self.info),
        }

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the model's file."""
        s = self.shape
        header = {
            "estimator": "segment_crf",
            "labels": list(self.labels),
            "outside": self.outside,
            "chunks": self.chunks,
            "shape": [s.max_length, s.single, s.lengths, s.order, s.first, s.last],
            "encoder": self.encoder.config(),
            "segments": None if self.finder is None else self.finder.config(),
            "dtype": np.dtype(self.dtype).name,
            "params": plain_values(self.params),
            "info": plain_values(self.info),
        }
        arrays = {f"encoder.{k}": v for k, v in self.encoder.arrays().items()}
        if self.finder is not None:
            arrays |= {f"segments.{k}": v for k, v in self.finder.arrays().items()}
        arrays |= {"columns.state_ptr": self.columns.state_ptr, "columns.state_label": self.columns.state_label}
        write_file(path, header, arrays | {"weights": np.asarray(self.weights)})


_HEADER = record(
    {
        "labels": label_list,
        "outside": anything,
        "chunks": flag,
        "shape": list_of(anything, 6, 6),
        "encoder": anything,
        "segments": optional(anything),
        "dtype": one_of("float32", "float64"),
        "params": record({}),
        "info": anything,
    },
    {"estimator": text},
)
_MOST_SCORES = 1 << 26  # a table of lengths that is larger than its file


def column_layout(n: int, ptr: NDArray[Any], label: NDArray[Any]) -> Layout:
    """A layout of attributes' weights alone."""
    none = np.zeros(0, np.uint32)
    rows = ptr.astype(np.uint32), label.astype(np.uint16)
    return Layout(n, *rows, np.full(n * n, -1, np.int32), -1, -1, none, none, len(label), len(label))


def restore_model(header: Any, arrays: Arrays, features: FeatureSource, function: Any) -> SegmentModel:
    """The model that a file holds; everything is checked."""
    from crfkit.model.chain_model import _INFO

    head = _HEADER(header, "")
    labels = tuple(head["labels"])
    longest, single, lengths, order, first, last = head["shape"]
    longest = integer(1, 1 << 20)(longest, "shape.max_length")
    single = integer(-1, len(labels) - 1)(single, "shape.single")
    order = integer(0, MOST_ORDER)(order, "shape.order")
    lengths = one_of("table", "buckets")(lengths, "shape.lengths")
    shape = Shape(len(labels), longest, single, lengths, order, flag(first, "shape.first"), flag(last, "shape.last"))
    if head["outside"] is not None and head["outside"] not in labels:
        raise ValueError(f"'outside' must be one of its labels, got {head['outside']!r}")
    weights = arrays.finite("weights", (None,))
    if longest * len(labels) > max(_MOST_SCORES, 64 * len(weights)):
        raise ValueError(f"'shape' asks for more scores of lengths than the file can hold: {longest}")
    rows = arrays.group("columns")
    ptr, label = rows.of_kind("state_ptr", "iu", (None,)), rows.of_kind("state_label", "iu", (None,))
    if shape.columns**2 > max(_MOST_SCORES, 64 * (len(label) + len(labels) ** 2)):
        raise ValueError(f"'labels' has too many labels for the file: {len(labels)}")
    columns = column_layout(shape.columns, ptr, label)
    columns.native  # noqa: B018 - checks the layout
    if len(weights) != shape.numbers(columns.size)[1]:
        raise ValueError(f"'weights' must have {shape.numbers(columns.size)[1]} numbers, got {len(weights)}")
    finder = None
    if head["segments"] is not None:
        finder = FeatureFinder.restore(head["segments"], arrays.group("segments"), labels, function, single)
    own = 0 if finder is None else len(finder.names())
    attributes = len(columns.state_ptr) - 1 - own
    if attributes < 0:
        raise ValueError("'segments' has more attributes than the file has weights for")
    encoder = restore_encoder(head["encoder"], arrays.group("encoder"), features, (attributes, 0))
    dtype, info = np.dtype(head["dtype"]), _INFO(head["info"], "info")
    kept = head["outside"], head["chunks"], shape, columns, np.array(weights)
    return SegmentModel(encoder, finder, labels, *kept, dtype, head["params"], info)
