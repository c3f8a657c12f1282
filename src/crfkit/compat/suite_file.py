"""CRFsuite's binary model files (``lCRF``), read and written.

A file is a header of twelve little-endian numbers and five parts: features (type, source, target, weight), string
tables of labels and of attributes, and for each label and each attribute the numbers of its features.
"""

from __future__ import annotations

import os
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.fields import (
    LARGEST,
    MOST_FOREIGN,
    ModelError,
    all_finite,
    check_pairs,
    damaged,
    label_list,
)
from crfkit.base.files import read_whole, whole_file
from crfkit.data.dataset import Layout
from crfkit.features.encoders import ItemEncoder
from crfkit.model.chain_model import ChainModel, LocalChainModel

__all__ = ["SuiteFeatures", "chain_model", "read_suite_model", "suite_bytes", "suite_features", "write_suite_model"]

_HEADER = struct.Struct("<4sI4sI8I")
_RECORD = np.dtype([("type", "<u4"), ("source", "<u4"), ("target", "<u4"), ("weight", "<f8")])
_STATE, _TRANSITION = 0, 1
_VERSION = 100


class SuiteFeatures:
    """The contents of a CRFsuite model: names, (attribute, label) weights and (label, label) weights.

    Attributes
    ----------
    labels : tuple of str
    names : native string table
        Of the attributes.
    state : structured array (source, target, weight)
        By attribute, then label.
    transitions : structured array (source, target, weight)
        By label, then next label.
    """

    def __init__(
        self, labels: tuple[str, ...], names: _core.StringTable, state: NDArray[Any], transitions: NDArray[Any]
    ) -> None:
        self.labels = labels
        self.names = names
        self.state = state
        self.transitions = transitions


def _records(kind: int, source: NDArray[Any], target: NDArray[Any], weight: NDArray[np.float64]) -> NDArray[Any]:
    """Records sorted by source and target; those that occur twice are added up."""
    keys = source.astype(np.int64) << 32 | target.astype(np.int64)
    found, inverse = np.unique(keys, return_inverse=True)
    out = np.empty(len(found), _RECORD)
    out["type"] = kind
    out["source"] = found >> 32
    out["target"] = found & 0xFFFFFFFF
    out["weight"] = np.bincount(inverse, weight, minlength=len(found))
    return out


def empty_features(labels: tuple[str, ...]) -> SuiteFeatures:
    """Of a model that has labels, or not even these, and no weights."""
    none = np.empty(0, _RECORD)
    return SuiteFeatures(labels, _core.StringTable(), none, none)


def chain_model(features: SuiteFeatures, info: dict[str, Any] | None = None) -> ChainModel:
    """The features as a crfkit model, in double precision."""
    n = len(features.labels)
    state, transitions = features.state, features.transitions
    counts = np.bincount(state["source"], minlength=len(features.names))
    ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
    transition = np.full(n * n, -1, np.int32)
    places = transitions["source"].astype(np.int64) * n + transitions["target"]
    size = len(state) + len(transitions)
    transition[places] = len(state) + np.arange(len(transitions))
    none = np.zeros(0, np.uint32)
    layout = Layout(n, ptr, state["target"].astype(np.uint16), transition, -1, -1, none, none, size, size)
    weights = np.concatenate([state["weight"], transitions["weight"]])
    params = {"start_end": False, "all_possible_transitions": False}
    encoder = ItemEncoder(None, features.names)
    return ChainModel(encoder, features.labels, layout, weights, None, np.dtype(np.float64), params, info or {})


def suite_features(model: ChainModel, labels: tuple[Any, ...] | None = None) -> SuiteFeatures:
    """A crfkit model's weights in CRFsuite's form; zero weights are left out, as in CRFsuite.

    Parameters
    ----------
    model : ChainModel
    labels : tuple, optional
        The labels in the order to write them.

    Raises
    ------
    ValueError
        If the model has something that CRFsuite does not support: templates, an order above 1, hidden states, start and
        end weights, constraints, labels that are not strings.
    """
    if not isinstance(model.encoder, ItemEncoder):
        raise ValueError(
            "CRFsuite models store attributes by name, but this model makes them from a template or token features: "
            "train on items (dicts or lists of attributes) instead"
        )
    if model.layout.order > 1:
        raise ValueError(
            f"CRFsuite's models cannot hold the weights of {model.layout.order + 1} labels in a row "
            f"of a model of order {model.layout.order}: train with order=1"
        )
    if model.has_hidden_states:
        raise ValueError("CRFsuite's models cannot hold hidden states: train with hidden_states=1")
    layout, w = model.layout, model.tempered().weights
    for name, first in (("start", layout.start), ("end", layout.end)):
        if first >= 0 and np.any(w[first : first + layout.n_labels]):
            raise ValueError(f"CRFsuite's models have no {name} weights: train with start_end=False")
    if model.constraints is not None and not model.constraints.transitions.all():
        raise ValueError("CRFsuite's models cannot hold constraints")
    if not all(isinstance(x, str) for x in model.labels):
        raise ValueError("CRFsuite's labels are strings, but this model has labels of other types")
    order = tuple(model.labels) if labels is None else labels
    number = np.array([order.index(x) for x in model.labels], np.int64)
    n_state = len(layout.state_label)
    ptr = layout.state_ptr.astype(np.int64)
    counts = ptr[1:] - ptr[:-1]
    attribute = np.repeat(np.arange(len(counts)), counts)
    used = w[:n_state] != 0
    kept = np.zeros(len(counts), bool)
    kept[attribute[used]] = True
    renumbered = np.cumsum(kept) - 1
    names = model.encoder.pruned(kept, np.zeros(0, bool))._names
    state = _records(_STATE, renumbered[attribute[used]], number[layout.state_label[used]], w[:n_state][used])
    places = np.flatnonzero(layout.transition >= 0)
    values = w[layout.transition[places]]
    places, values = places[values != 0], values[values != 0]
    n = layout.n_labels
    transitions = _records(_TRANSITION, number[places // n], number[places % n], values)
    return SuiteFeatures(order, names, state, transitions)


def _references(source: NDArray[Any], count: int, first: int, begin: int, tag: bytes, empty: int) -> bytes:
    """A chunk with the feature numbers of every source; ``empty`` more have no list at all."""
    counts = np.bincount(source, minlength=count)
    head = 12 + 4 * (count + empty)
    # each list is its length and the numbers; features are sorted by source, so their numbers run on
    starts = np.concatenate([[0], np.cumsum(counts + 1)])
    out = np.empty(starts[-1], "<u4")
    out[starts[:-1]] = counts
    rest = np.ones(len(out), bool)
    rest[starts[:-1]] = False
    out[rest] = first + np.arange(len(source))
    places = np.zeros(count + empty, "<u4")
    places[:count] = begin + head + 4 * starts[:-1]
    size = head + 4 * len(out)
    return tag + struct.pack("<II", size, count + empty) + places.tobytes() + out.tobytes()


def suite_bytes(features: SuiteFeatures) -> bytes:
    """The bytes of a CRFsuite model file."""
    records = np.concatenate([features.state, features.transitions])
    table = _core.StringTable()
    for label in features.labels:
        table.add(label)
    parts = [b"FEAT" + struct.pack("<II", 12 + records.nbytes, len(records)) + records.tobytes()]
    places = [_HEADER.size]

    def add(part: bytes) -> None:
        parts.append(part)

    def here(aligned: bool = False) -> int:
        if aligned:
            add(bytes(-sum(map(len, parts)) % 4))
        place = _HEADER.size + sum(map(len, parts))
        if place >= 2**32:
            raise ValueError("CRFsuite's files are limited to 4 GB")
        places.append(place)
        return place

    here()
    add(_core.write_cqdb(table))
    here()
    add(_core.write_cqdb(features.names))
    begin = here(aligned=True)
    add(_references(features.transitions["source"], len(features.labels), len(features.state), begin, b"LFRF", 2))
    begin = here(aligned=True)
    add(_references(features.state["source"], len(features.names), 0, begin, b"AFRF", 0))
    size = here()
    numbers = (0, len(features.labels), len(features.names), *places[:5])
    return b"".join([_HEADER.pack(b"lCRF", size, b"FOMC", _VERSION, *numbers), *parts])


def write_suite_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Writes a model as a CRFsuite file, which CRFsuite and python-crfsuite can open.

    Parameters
    ----------
    model : CRF or ChainModel
        A fitted estimator, or its ``model_``.
    path : path
        The file to write.

    Raises
    ------
    TypeError
        If it is neither.
    ValueError
        If the model has something that CRFsuite does not support; see :func:`suite_features`.

    Examples
    --------
    >>> import tempfile, os
    >>> from crfkit import CRF
    >>> crf = CRF(start_end=False).fit([[["a"], ["b"]]], [["A", "B"]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.crfsuite")
    ...     write_suite_model(crf, path)
    ...     read_suite_model(path).labels
    ('A', 'B')
    """
    chain = getattr(model, "model_", model)
    if not isinstance(chain, ChainModel) or isinstance(chain, LocalChainModel):
        raise TypeError(f"'model' must be a fitted CRF, or its model_, got {model!r}")
    data = suite_bytes(suite_features(chain))
    with whole_file(path) as file:
        file.write(data)


def parse_suite(data: bytes, name: str = "<bytes>") -> tuple[SuiteFeatures, dict[str, str]]:
    """The features in a CRFsuite file's bytes, and its header as ``crfsuite dump`` shows it."""
    if not data.startswith(b"lCRF"):
        raise ModelError(f"{name}: not a CRFsuite model: it does not begin with lCRF")
    if len(data) < _HEADER.size:
        raise ModelError(f"{name}: the CRFsuite model is cut short: it has no complete header")
    _, size, kind, version, *numbers = _HEADER.unpack_from(data)
    n_features, n_labels, n_attributes, at_features, at_labels, at_attributes, at_label_refs, at_refs = numbers
    if kind != b"FOMC" or version != _VERSION:
        raise ModelError(f"{name}: a CRFsuite model of type {kind!r}, version {version}; FOMC, {_VERSION} is known")
    if size > len(data):
        raise ModelError(f"{name}: the CRFsuite model is cut short: {len(data)} of {size} bytes")
    if not 1 <= n_labels <= 65535:
        raise ModelError(f"{name}: the CRFsuite model has {n_labels} labels; 1 to 65535 are possible")
    with damaged(name, "CRFsuite model"):
        check_pairs(n_labels, len(data), MOST_FOREIGN)
        labels = tuple(label_list(_core.read_cqdb(data, at_labels, n_labels).tolist(), "labels"))
        names = _core.read_cqdb(data, at_attributes, n_attributes)
    if data[at_features : at_features + 4] != b"FEAT" or at_features + 12 > len(data):
        raise ModelError(f"{name}: the CRFsuite model is damaged: there are no features at {at_features}")
    (count,) = struct.unpack_from("<I", data, at_features + 8)
    begin = at_features + 12
    if begin + count * _RECORD.itemsize > len(data):
        raise ModelError(f"{name}: the CRFsuite model is cut short among its features")
    records = np.frombuffer(data, _RECORD, count, begin)
    state = records[records["type"] == _STATE]
    transitions = records[records["type"] == _TRANSITION]
    good = (
        len(state) + len(transitions) == count
        and (state["source"] < n_attributes).all()
        and (state["target"] < n_labels).all()
        and (transitions["source"] < n_labels).all()
        and (transitions["target"] < n_labels).all()
    )
    if not good:
        raise ModelError(f"{name}: the CRFsuite model is damaged: a feature refers to something that does not exist")
    if not all_finite(records["weight"]):
        raise ModelError(f"{name}: the CRFsuite model is damaged: a weight is not a number of at most {LARGEST:g}")
    header = {
        "magic": "lCRF",
        "size": str(size),
        "type": "FOMC",
        "version": str(version),
        "num_features": str(n_features),
        "num_labels": str(n_labels),
        "num_attrs": str(n_attributes),
        "off_features": f"0x{at_features:X}",
        "off_labels": f"0x{at_labels:X}",
        "off_attrs": f"0x{at_attributes:X}",
        "off_labelrefs": f"0x{at_label_refs:X}",
        "off_attrrefs": f"0x{at_refs:X}",
    }
    state = _records(_STATE, state["source"], state["target"], state["weight"])
    transitions = _records(_TRANSITION, transitions["source"], transitions["target"], transitions["weight"])
    return SuiteFeatures(labels, names, state, transitions), header


def read_suite_model(source: str | os.PathLike[str] | bytes) -> ChainModel:
    """Reads a CRFsuite model file, or its bytes, as a crfkit model.

    Returns
    -------
    ChainModel
        In double precision: its scores are CRFsuite's.

    Raises
    ------
    crfkit.ModelError
        If it is not a CRFsuite model, or is truncated or damaged.

    Examples
    --------
    >>> from crfkit import CRF
    >>> crf = CRF(start_end=False).fit([[["a"], ["b"]]], [["A", "B"]])
    >>> read_suite_model(suite_bytes(suite_features(crf.model_))).labels
    ('A', 'B')
    """
    if isinstance(source, bytes):
        return chain_model(parse_suite(source)[0], {"origin": "CRFsuite"})
    features, _ = parse_suite(read_whole(source, "CRFsuite model"), os.fspath(source))
    return chain_model(features, {"origin": "CRFsuite", "reading": {"format": "crfsuite"}})
