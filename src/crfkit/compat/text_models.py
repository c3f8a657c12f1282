"""Text models of CRF++ (``crf_learn -t``) and Wapiti, read as crfkit models."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.fields import (
    LARGEST,
    MOST_FOREIGN,
    ModelError,
    Rule,
    all_finite,
    check_pairs,
    damaged,
    integer,
    label_list,
    number,
    record,
    refuse,
)
from crfkit.base.files import read_whole
from crfkit.data.dataset import Layout
from crfkit.features.encoders import PlanEncoder
from crfkit.features.template import Template
from crfkit.model.chain_model import ChainModel

__all__ = ["read_crfpp_model", "read_wapiti_model"]

_MOST_LABELS = 4096
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class _Weights:
    """Entries (name, column, weight) of one kind; names that are never used are left out."""

    def __init__(self, names: list[str], which: Ints, column: Ints, weight: Floats) -> None:
        used = weight != 0
        which, column, weight = which[used], column[used], weight[used]
        kept, which = np.unique(which, return_inverse=True)
        order = np.lexsort((column, which))
        self.names = [names[k] for k in kept.tolist()]
        self.which, self.column, self.weight = which[order], column[order], weight[order]

    def table(self) -> _core.StringTable:
        out = _core.StringTable()
        for k, name in enumerate(self.names):
            if out.add(name) != k:
                raise ValueError(f"the name {name!r} occurs twice")
        return out

    def only(self, marks: NDArray[np.uint8]) -> tuple[NDArray[np.uint32], Ints, Floats]:
        """Pointers, columns and weights of the marked names."""
        kept = marks[self.which] != 0 if len(self.which) else np.zeros(0, bool)
        counts = np.bincount(self.which[kept], minlength=len(marks))[marks != 0] if len(marks) else np.zeros(0, int)
        ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
        return ptr, self.column[kept], self.weight[kept]


def _assemble(
    template: Template,
    labels: Sequence[str],
    state: _Weights,
    edge: _Weights,
    pairs: Floats,
    info: dict[str, Any],
) -> ChainModel:
    """A model from names and weights; names that no line of the template can produce are left out."""
    n = len(labels)
    plan = template.plan()
    native = _core.TemplateEncoder(plan.nodes, plan.templates, int(plan.pad))
    marks = native.learn(state.table(), edge.table())
    encoder = PlanEncoder(plan, native.pruned(*marks))
    state_ptr, state_label, state_weight = state.only(marks[0])
    edge_ptr, edge_pair, edge_weight = edge.only(marks[1])
    places = np.flatnonzero(pairs) if plan.transitions else np.zeros(0, np.int64)
    transition = np.full(n * n, -1, np.int32)
    transition[places] = len(state_weight) + np.arange(len(places))
    first = len(state_weight) + len(places)
    size = first + len(edge_weight)
    if not native.has_edges:
        edge_ptr = np.zeros(0, np.uint32)
    layout = Layout(
        n,
        state_ptr,
        state_label.astype(np.uint16),
        transition,
        -1,
        -1,
        edge_ptr,
        edge_pair.astype(np.uint32),
        first,
        size,
    )
    layout.native  # noqa: B018 - checks the layout
    weights = np.concatenate([state_weight, pairs[places], edge_weight])
    params = {"start_end": False, "all_possible_transitions": False}
    return ChainModel(encoder, tuple(labels), layout, weights, None, np.dtype(np.float64), params, info)


def _read_text(path: str | os.PathLike[str], tool: str) -> str:
    data = read_whole(path, f"{tool} model")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise ModelError(f"{os.fspath(path)}: the {tool} model is not valid UTF-8 at byte {e.start}") from e


def _check_labels(labels: list[str], size: int) -> None:
    if not 1 <= len(labels) <= _MOST_LABELS:
        raise ValueError(f"it has {len(labels)} labels; 1 to {_MOST_LABELS} are possible")
    check_pairs(len(labels), size, MOST_FOREIGN)
    label_list(labels, "labels")
    if "" in labels:
        raise ValueError("a label is empty")


def _read_as(kind: type[int] | type[float], rule: Rule) -> Rule:
    """A number that is written as text."""

    def read(value: str, field: str) -> Any:
        try:
            return rule(kind(value), field)
        except ValueError:
            return refuse(field, "a number that fits the model", value)

    return read


_INT = _read_as(int, integer(0, 2**62))
_CRFPP = record(
    {"cost-factor": _read_as(float, number()), "maxid": _INT, "xsize": _read_as(int, integer(1, 2**31))},
    {"version": _read_as(int, integer(100, 199))},  # of which CRF++ reads each other's
)


def _weights(words: Sequence[str], read: Callable[[str], tuple[int, float]]) -> tuple[Ints, Floats]:
    """The numbers of weights and the weights, from their texts, which must be numbers that a model may have."""
    numbers, values = np.empty(len(words), np.int64), np.empty(len(words))
    for k, word in enumerate(words):
        try:
            numbers[k], values[k] = read(word)
        except (OverflowError, ValueError):
            raise ValueError(f"weight {k} cannot be read: {word[:60]!r}") from None
    if not all_finite(values):
        k = int(np.flatnonzero(~(np.abs(values) <= LARGEST))[0])
        raise ValueError(f"weight {k} is not a number of at most {LARGEST:g}: {words[k][:60]!r}")
    return numbers, values


def _ids(first: Ints, width: int, weights: Floats) -> tuple[Ints, Ints, Floats]:
    """Entries of names whose ``width`` weights begin at ``first``."""
    n = len(first)
    which = np.repeat(np.arange(n), width)
    column = np.tile(np.arange(width), n)
    at = np.repeat(first, width) + column
    return which, column, weights[at]


def read_crfpp_model(path: str | os.PathLike[str]) -> ChainModel:
    """Reads the text model that ``crf_learn -t`` writes.

    Returns
    -------
    ChainModel
        In double precision; the cost factor is multiplied into the weights.

    Raises
    ------
    crfkit.ModelError
        If it is not such a model, or is damaged.
    """
    text = _read_text(path, "CRF++")
    with damaged(os.fspath(path), "CRF++ text model"):
        return _parse_crfpp(text.replace("\r\n", "\n"))


def _parse_crfpp(text: str) -> ChainModel:
    parts = text.split("\n\n", 4)
    if len(parts) != 5:
        raise ValueError(f"it has {len(parts)} of the 5 parts header, labels, templates, features and weights")
    header = {key: x.strip() for key, _, x in (line.partition(":") for line in parts[0].split("\n"))}
    head = _CRFPP(header, "")
    factor, most, columns = head["cost-factor"], head["maxid"], head["xsize"]
    labels = [line for line in parts[1].split("\n") if line]
    _check_labels(labels, len(text))
    n = len(labels)
    template = Template(parts[2], dialect="crfpp", name="the model's template")
    numbers, names = [], []
    for line in parts[3].split("\n"):
        at, _, feature = line.partition(" ")
        if not feature or feature[0] not in "UB":
            raise ValueError(f"a feature must be a number and a name that begins with U or B, got {line[:60]!r}")
        numbers.append(_INT(at, "a feature's number"))
        names.append(feature)
    _, weights = _weights(parts[4].split(), lambda word: (0, float(word) * factor))
    first = np.array(numbers, np.int64)
    wide = np.array([feature[0] == "B" for feature in names])
    if len(weights) != most:
        raise ValueError(f"it has {len(weights)} weights, its header says {most}")
    order = np.argsort(first)
    ends = (first + np.where(wide, n * n, n))[order]
    if len(first) and ends.max() > most:
        raise ValueError("a feature's weights lie outside those in the file")
    shared = np.flatnonzero(ends[:-1] > first[order][1:])
    if len(shared):
        a, b = (names[k][:60] for k in order[shared[0] : shared[0] + 2].tolist())
        raise ValueError(f"the features {a!r} and {b!r} share weights")
    bare = set(template.label_pair_lines())
    pairs = np.zeros(n * n)
    for k in np.flatnonzero(wide):
        if names[k] in bare:
            pairs += weights[first[k] : first[k] + n * n]
    plain = [k for k, feature in enumerate(names) if feature[0] == "U"]
    looking = [k for k, feature in enumerate(names) if feature[0] == "B" and feature not in bare]
    state = _Weights([names[k] for k in plain], *_ids(first[plain], n, weights))
    edge = _Weights([names[k] for k in looking], *_ids(first[looking], n * n, weights))
    reading = {"format": "columns", "label": None, "columns": None, "n_columns": columns}
    return _assemble(template, labels, state, edge, pairs, {"origin": "CRF++", "reading": reading})


class _Wapiti:
    """A place in the text of a Wapiti model; strings are counted in bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def match(self, pattern: bytes, what: str) -> re.Match[bytes]:
        found = re.compile(pattern).match(self.data, self.at)
        if found is None:
            raise ValueError(f"expected {what} at byte {self.at}")
        self.at = found.end()
        return found

    def string(self) -> str:
        length = int(self.match(rb"(\d{1,9}):", "a string's length")[1])
        text = self.data[self.at : self.at + length]
        self.at += length
        if len(text) != length or self.data[self.at : self.at + 1] != b",":
            raise ValueError(f"the string at byte {self.at - length} is cut short")
        self.match(rb",\n?", "the end of a string")
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError(
                f"the string at byte {self.at - length} is not valid UTF-8 (a pattern may have cut a character in two)"
            ) from None

    def strings(self, what: str) -> list[str]:
        count = int(self.match(rb"#qrk#(\d{1,10})\n", f"the number of {what}")[1])
        if count > len(self.data):
            raise ValueError(f"it cannot hold {count} {what}")
        return [self.string() for _ in range(count)]


@dataclass(frozen=True)
class WapitiParts:
    """The contents of a Wapiti model file, unchanged.

    Attributes
    ----------
    mode : int
        0 for maxent, 2 for crf.
    patterns : list of str
    labels : list of str
    names : list of str
        Names of the observations, whose first letter is the kind: u, b or *.
    numbers : int64 array
        Numbers of the nonzero weights. Weights are numbered observation by observation: one for each label, unless it
        is a b; then one for each pair of labels, unless it is a u.
    values : float64 array
        The nonzero weights.
    """

    mode: int
    patterns: list[str]
    labels: list[str]
    names: list[str]
    numbers: Ints
    values: Floats

    @property
    def places(self) -> tuple[Ints, Ints]:
        """First weight of each observation, and one more; and how many of them weigh single labels."""
        n, kinds = len(self.labels), np.array([x[:1] for x in self.names])
        narrow = np.where(kinds != "b", n, 0)
        return np.concatenate([[0], np.cumsum(narrow + np.where(kinds != "u", n * n, 0))]), narrow


def read_wapiti_model(path: str | os.PathLike[str]) -> ChainModel:
    """Reads a Wapiti model: modes crf and maxent, of version 1.2 and later.

    Returns
    -------
    ChainModel
        In double precision.

    Raises
    ------
    crfkit.ModelError
        If it is not a Wapiti model, is damaged, or is of mode memm.
    """
    data = read_whole(path, "Wapiti model")
    with damaged(os.fspath(path), "Wapiti model"):
        return wapiti_chain(_parse_wapiti(data))


def read_wapiti_parts(data: bytes, name: str) -> WapitiParts:
    """Parses a Wapiti model; ``name`` is for messages."""
    with damaged(name, "Wapiti model"):
        return _parse_wapiti(data)


def _parse_wapiti(data: bytes) -> WapitiParts:
    text = _Wapiti(data)
    head = text.match(rb"#mdl#(?:(\d{1,18})#)?(\d{1,18})\n", "#mdl# with mode and number of weights")
    if head[1] == b"1":
        raise ValueError("models of mode memm are not supported")
    if int(head[1] or 2) > 2:
        raise ValueError(f"unknown mode {int(head[1])}")
    count = int(text.match(rb"#rdr#(\d{1,6})/\d+(?:/\d+)?\n", "#rdr#")[1])
    if count == 0:
        raise ValueError("it has no patterns: models whose features were given one by one are not supported")
    lines = [text.string() for _ in range(count)]
    labels = text.strings("labels")
    _check_labels(labels, len(data))
    names = text.strings("observations")
    if not all(x[:1] in ("u", "b", "*") for x in names):
        raise ValueError("an observation must begin with u, b or *")
    entries = data[text.at :].decode("utf-8", "replace").split()
    if len(entries) != int(head[2]):
        raise ValueError(f"it has {len(entries)} weights, its header says {int(head[2])}")
    numbers, values = _weights(entries, _wapiti_weight)
    order = np.argsort(numbers, kind="stable")
    parts = WapitiParts(int(head[1] or 2), lines, labels, names, numbers[order], values[order])
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= parts.places[0][-1]):
        raise ValueError("a weight belongs to no observation")
    return parts


def _wapiti_weight(text: str) -> tuple[int, float]:
    number, _, value = text.partition("=")
    return int(number), float.fromhex(value)


def wapiti_chain(parts: WapitiParts, patterns: Sequence[str] | None = None) -> ChainModel:
    """The model that a Wapiti file describes, with more patterns if they are given."""
    template = Template(patterns or parts.patterns, dialect="wapiti", name="the model's patterns")
    n, names = len(parts.labels), parts.names
    first, narrow = parts.places
    numbers, values = parts.numbers, parts.values
    which = np.searchsorted(first, numbers, side="right") - 1
    column = numbers - first[which]
    in_state = column < narrow[which]
    pairs = np.zeros(n * n)
    plain = set(template.label_pair_lines())
    bare = np.array([name in plain for name in names], bool)
    in_pairs = ~in_state & bare[which]
    np.add.at(pairs, (column - narrow[which])[in_pairs], values[in_pairs])
    looking = ~in_state & ~bare[which]
    state = _Weights(names, which[in_state], column[in_state], values[in_state])
    edge = _Weights(names, which[looking], (column - narrow[which])[looking], values[looking])
    reading = {"format": "columns", "label": None, "columns": None, "n_columns": None}
    return _assemble(template, parts.labels, state, edge, pairs, {"origin": "Wapiti", "reading": reading})


def shared_names(template: Template, labels: Sequence[str], state: list[str], edge: list[str]) -> ChainModel:
    """A model without weights whose attributes are these names, whichever patterns write them."""

    def ones(names: list[str]) -> _Weights:
        different = list(dict.fromkeys(names))
        n = len(different)
        return _Weights(different, np.arange(n), np.zeros(n, np.int64), np.ones(n))

    model = _assemble(template, labels, ones(state), ones(edge), np.zeros(len(labels) ** 2), {})
    return replace(model, weights=np.zeros(model.layout.size))
