"""A trained model, and the file it is kept in."""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.files import whole_file
from crfkit.base.numbers import inner_tokens, log_sum_exp, pieces
from crfkit.base.shown import Record
from crfkit.base.threads import resolve_threads
from crfkit.chain.constraints import Constraints
from crfkit.chain.potentials import Potentials
from crfkit.data.dataset import Dataset, Layout
from crfkit.features.encoders import Encoder, FeatureSource, ItemEncoder, PlanEncoder

FORMAT = 2  # since 2, the header and every array have a checksum
_DTYPES = dict(F64="f8", F32="f4", I64="i8", I32="i4", U64="u8", U32="u4", U16="u2", U8="u1", BOOL="?")  # noqa: C408
_PIECE = 1 << 23  # scores held at a time while predicting


class ModelError(ValueError):
    """A file that is not a model, or is incomplete or damaged."""


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


@dataclass(frozen=True, eq=False, repr=False)
class ChainModel(Record):
    """A linear-chain CRF: an encoder, labels, and weights.

    This is where a model is looked into: :meth:`card`, :meth:`state_weights`, :meth:`edge_weights` and
    :meth:`transition_table`.

    Attributes
    ----------
    encoder : Encoder
        Knows the attributes.
    labels : tuple
        Label of each number.
    layout : Layout
    weights : float64 array [layout.size]
    constraints : Constraints or None
    dtype : numpy dtype
        Precision of scores.
    params : dict
        Of the estimator that made it.
    info : dict
        Facts about training.
    temperature : float
        All scores are divided by it: the probabilities are :math:`p(y)^{1/T}`, normalised again. The best labels stay.
        See :func:`crfkit.calibration.fit_temperature`.

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
        state.pop("_scorers", None)
        state["layout"] = {**self.layout.arrays(), **self.layout.numbers()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state["layout"] = Layout(**state["layout"])
        self.__dict__.update(state)

    def score(self, data: Dataset, n_jobs: int | None, dtype: Any = None) -> Potentials:
        """Potentials of a data set, a batch."""
        scorer = self.scorer(n_jobs, dtype)
        n = self.layout.n_labels
        kind = np.dtype(dtype or self.dtype)
        unary = np.empty((data.n_tokens, n), kind)
        edges = int(np.maximum(np.diff(data.offsets) - 1, 0).sum()) if scorer.per_step else 1
        pairwise = np.empty((edges, n, n), kind)
        scorer.score(data.native, resolve_threads(n_jobs), unary, pairwise)
        return Potentials(unary, pairwise if scorer.per_step else pairwise[0], offsets=data.offsets)

    def potentials(self, X: Any, n_jobs: int | None, dtype: Any = None) -> Iterator[Potentials]:
        """Potentials of sequences, piece by piece so that long inputs do not fill the memory."""
        whole = self.encoder.read(X)
        for a, b in pieces(whole.offsets, max(1, _PIECE // self._scores_per_token)):
            piece = whole if b - a == len(whole) else whole[a:b]
            yield self.score(self.encoder.encode(piece, False, n_jobs), n_jobs, dtype)

    @property
    def _scores_per_token(self) -> int:
        return self.layout.n_labels * (self.layout.n_labels if len(self.layout.edge_ptr) else 1)

    def state_weights(self, top: int | None = None, label: Any = None) -> list[StateWeight]:
        """(attribute, label) weights, largest first.

        Parameters
        ----------
        top : int, optional
            How many.
        label : optional
            Only those of one label.

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
            if label not in self.labels:
                raise ValueError(f"the model has no label {label!r}: it has {', '.join(map(str, self.labels))}")
            chosen = np.flatnonzero(layout.state_label == self.labels.index(label))
        order = chosen[np.argsort(-np.abs(weights[chosen]), kind="stable")]
        order = order[weights[order] != 0][:top]
        names = self.encoder.names()
        attribute = np.searchsorted(layout.state_ptr, order, side="right") - 1
        return [
            StateWeight(names[a], self.labels[layout.state_label[k]], float(weights[k]))
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
            EdgeWeight(names[a], self.labels[i], self.labels[j], float(weights[k]))
            for k, a, (i, j) in zip(order.tolist(), attribute.tolist(), pairs, strict=True)
        ]

    def transition_weights(self) -> dict[tuple[Any, Any], float]:
        """Weights of a label followed by another, without those that are zero, and whatever the constraints say."""
        n, where = self.layout.n_labels, self.layout.transition
        known = np.flatnonzero(where >= 0)
        pairs = zip(known.tolist(), self.weights[where[known]].tolist(), strict=True)
        return {(self.labels[k // n], self.labels[k % n]): w for k, w in pairs if w}

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
        kind = self.encoder.config()
        features = f"{len(kind['plan']['templates'])} templates" if kind["kind"] == "plan" else "attributes as given"
        if kind.get("function"):
            features = f"function {kind['function']}"
        return {
            "labels": [str(label) for label in self.labels],
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
    """A chain whose scores are normalised at each step: those of a MEMM.

    Its potentials are logarithms of probabilities, over the temperature: of the first label, and of each label given
    the one before.
    """

    def tempered(self) -> ChainModel:
        """The same model: its temperature divides what is normalised already."""
        return self

    def score(self, data: Dataset, n_jobs: int | None, dtype: Any = None) -> Potentials:
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
        return Potentials(unary, steps, offsets=data.offsets)

    @property
    def _scores_per_token(self) -> int:
        return self.layout.n_labels**2


def restore_encoder(config: dict[str, Any], arrays: dict[str, NDArray[Any]], function: Any) -> Encoder:
    """The encoder that a model file holds."""
    if config["kind"] == "plan":
        return PlanEncoder.restore(config, arrays)
    if config["kind"] == "items":
        return ItemEncoder.restore(config, arrays, function)
    raise ModelError(f"unknown kind of features {config['kind']!r}")


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


def write_file(path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Writes a model file (safetensors): beside the target first, then renamed, so that no half file remains."""
    from safetensors.numpy import save

    tensors = {k: np.ascontiguousarray(v) for k, v in arrays.items()}
    sums = {k: _checksum(k, v) for k, v in tensors.items()}
    head = json.dumps({"format": FORMAT, **header, "arrays_crc32": sums})
    head = f'{{"crc32": {zlib.crc32(head.encode())}, {head[1:]}'
    data = save(tensors, {"crfkit": head})  # in one entry: several would be written in random order
    with whole_file(path) as file:
        file.write(data)


def _checksum(name: str, array: NDArray[Any]) -> int:
    """CRC-32 of an array's name, type, shape and bytes: no single bit can change unseen."""
    about = repr((name, array.dtype.str, array.shape)).encode()
    return zlib.crc32(array.reshape(-1).view(np.uint8).data, zlib.crc32(about))


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON can hold; anything else by its text."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        try:
            json.dumps(value)
            out[key] = value
        except TypeError:
            out[key] = repr(value)
    return out


def read_file(path: str | os.PathLike[str], verify: bool = True) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays of a model file of any estimator; offsets are checked, and checksums unless told not to.

    Raises
    ------
    ModelError
        If the file is not a crfkit model, is cut short, damaged, or of a later format.
    """
    name = os.fspath(path)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < 8:
            raise ModelError(f"{name}: not a crfkit model: only {size} bytes")
        # a map would crash us when the file is overwritten
        mapped = file.read() if verify else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    (length,) = struct.unpack("<Q", mapped[:8])
    if length > size - 8 or mapped[8:9] != b"{":
        raise ModelError(f"{name}: not a crfkit model, or one that is cut short")
    try:
        table = json.loads(mapped[8 : 8 + length])
        head = table.pop("__metadata__", {}).get("crfkit", "null")
        header = json.loads(head)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError, AttributeError, TypeError) as e:
        raise ModelError(f"{name}: not a crfkit model: its header is damaged") from e
    if not isinstance(header, dict):
        raise ModelError(f"{name}: a safetensors file, but not a crfkit model")
    version = header.get("format")
    if not isinstance(version, int) or version < 1:
        raise ModelError(f"{name}: not a crfkit model: no format number")
    if version > FORMAT:
        raise ModelError(f"{name}: written by a later crfkit (format {version}, this one reads {FORMAT})")
    data = np.frombuffer(mapped, np.uint8, offset=8 + length)
    arrays = {key: _tensor(name, key, entry, data) for key, entry in table.items()}
    own, sums = header.pop("crc32", None), header.pop("arrays_crc32", None)
    if verify and version > 1:
        if zlib.crc32(f"{{{head.partition(', ')[2]}".encode(errors="surrogatepass")) != own:
            raise ModelError(f"{name}: the model is damaged: its header does not match its checksum")
        _check_sums(name, arrays, sums)
    return header, arrays


def _tensor(name: str, key: str, entry: Any, data: NDArray[np.uint8]) -> NDArray[Any]:
    """An array in the data part of a safetensors file, as its entry in the table has it."""
    try:
        dtype = np.dtype(_DTYPES[entry["dtype"]])
        first, last = (int(n) for n in entry["data_offsets"])
        shape = tuple(int(n) for n in entry["shape"])
        count = int(np.prod(shape, dtype=object)) if shape else 1
        fits = 0 <= first <= last <= len(data) and last - first == count * dtype.itemsize
    except (KeyError, TypeError, ValueError, OverflowError) as e:
        raise ModelError(f"{name}: the model is damaged at {key!r}") from e
    if not fits or min(shape, default=0) < 0:
        raise ModelError(f"{name}: the model is cut short or damaged at {key!r}")
    flat = data[first:last]
    aligned = flat.ctypes.data % dtype.alignment == 0
    return (flat if aligned else flat.copy()).view(dtype).reshape(shape)


def _check_sums(name: str, arrays: dict[str, NDArray[Any]], sums: Any) -> None:
    """Raises if an array does not match its checksum."""
    if not isinstance(sums, dict) or sums.keys() != arrays.keys():
        raise ModelError(f"{name}: the model is damaged: its checksums are not those of its arrays")
    for key, array in arrays.items():
        if _checksum(key, array) != sums[key]:
            raise ModelError(f"{name}: the model is damaged: {key!r} does not match its checksum")


def group(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """The arrays whose names begin with a prefix and a dot, without it."""
    return {k.split(".", 1)[1]: v for k, v in arrays.items() if k.startswith(f"{prefix}.")}


def read_model(path: str | os.PathLike[str], features: FeatureSource = None) -> tuple[ChainModel, dict[str, Any]]:
    """Reads the file of a chain model; gives the model and the file's header.

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


@contextmanager
def damaged(name: str) -> Iterator[None]:
    """Errors while a model is put together from its file say that the file is damaged."""
    try:
        yield
    except ModelError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError) as e:
        raise ModelError(f"{name}: the model is damaged: {e}") from e


def chain_model(
    name: str, header: dict[str, Any], arrays: dict[str, NDArray[Any]], features: FeatureSource = None
) -> ChainModel:
    """A chain model of what its file holds; all is checked."""
    if header.get("estimator", "crf") not in ("crf", "hmm", "memm"):
        raise ModelError(f"{name}: a model of the kind {header['estimator']!r}, which is no linear chain")
    with damaged(name):
        numbers = {k: int(v) for k, v in header["layout"].items()}
        parts: dict[str, Any] = dict(group(arrays, "layout"))
        layout = Layout(**{**parts, **numbers})
        layout.native  # noqa: B018 - checks the layout
        function = features if callable(features) else None
        encoder = restore_encoder(header["encoder"], group(arrays, "encoder"), function)
        rules = group(arrays, "constraints")
        constraints = Constraints(**rules) if rules else None
        labels = tuple(header["labels"])
        if header["dtype"] not in ("float32", "float64"):
            raise ValueError(f"precision {header['dtype']!r} is not known")
        if len(set(labels)) != len(labels):
            raise ValueError("a label occurs twice")
        if not isinstance(header["params"], dict) or not isinstance(header["info"], dict):
            raise ValueError("its parameters are not there")
        model = (LocalChainModel if header.get("estimator") == "memm" else ChainModel)(
            encoder,
            labels,
            layout,
            arrays["weights"],
            constraints,
            np.dtype(header["dtype"]),
            header["params"],
            header["info"],
            float(header.get("temperature", 1.0)),
        )
        if not 0 < model.temperature < np.inf:
            raise ValueError(f"its temperature is {model.temperature}")
        rows = (len(layout.state_ptr) - 1, max(0, len(layout.edge_ptr) - 1))
        n = len(model.labels)
        shapes_fit = (
            n == layout.n_labels
            and model.weights.shape == (layout.size,)
            and encoder.n_attributes == rows
            and (constraints is None or constraints.as_scores().shape == (n * (n + 2),))
        )
        if not shapes_fit or not np.isfinite(model.weights).all():
            raise ValueError("its parts do not fit together")
    return model
