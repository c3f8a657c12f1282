"""Wapiti's model files: written, printed, changed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import IO

import numpy as np
from numpy.typing import NDArray

from crfkit.base.fields import all_finite
from crfkit.compat.text_models import Floats, Ints, WapitiParts
from crfkit.compat.wapiti.options import Failure, Options
from crfkit.compat.wapiti.streams import say, writing
from crfkit.compat.wapiti.text import split_line
from crfkit.features.template import Template
from crfkit.model.chain_model import ChainModel


def pattern_lines(template: Template) -> list[str]:
    """The patterns as model files have them: without comments, the first letter in lower case."""
    return [line for _, line in template._used_lines()]


def parts_of(model: ChainModel, template: Template, mode: int) -> WapitiParts:
    """What a Wapiti file says of a model that was trained with these patterns."""
    layout, n = model.layout, len(model.labels)
    edges = model.encoder.names(True) if len(layout.edge_ptr) else []
    states = model.encoder.names(False)
    bare = template.label_pair_lines()[:1]
    names = list(dict.fromkeys([*states, *bare, *edges]))
    number = {name: k for k, name in enumerate(names)}
    parts = WapitiParts(mode, pattern_lines(template), [str(x) for x in model.labels], names, *_nothing())
    first, narrow = parts.places
    places, weights = [], []

    def add(rows: Ints, columns: Ints, values: Floats) -> None:
        places.append(first[rows] + columns)
        weights.append(values)

    def rows_of(which: Sequence[str], ptr: NDArray[np.uint32]) -> Ints:
        lengths: Ints = np.diff(ptr).astype(np.int64)
        return np.repeat(np.array([number[x] for x in which], np.int64), lengths)

    w = np.asarray(model.tempered().weights)
    add(rows_of(states, layout.state_ptr), layout.state_label.astype(np.int64), w[: len(layout.state_label)])
    if bare:
        row = np.full(n * n, number[bare[0]])
        pairs = np.where(layout.transition >= 0, w[layout.transition], 0.0)
        add(row, narrow[row] + np.arange(n * n), pairs)
    if edges:
        row = rows_of(edges, layout.edge_ptr)
        add(row, narrow[row] + layout.edge_pair, w[layout.edge_first : layout.edge_first + len(layout.edge_pair)])
    at, value = np.concatenate(places), np.concatenate(weights)
    order = np.argsort(at, kind="stable")
    order = order[value[order] != 0]
    return replace(parts, numbers=at[order], values=value[order])


def _nothing() -> tuple[Ints, Floats]:
    return np.zeros(0, np.int64), np.zeros(0)


def write_parts(parts: WapitiParts, file: IO[bytes]) -> None:
    """Writes a model file."""

    def string(text: str) -> bytes:
        data = text.encode("utf-8")
        return b"%d:%s,\n" % (len(data), data)

    file.write(b"#mdl#%d#%d\n" % (parts.mode, len(parts.numbers)))
    file.write(
        b"#rdr#%d/%d/0\n"
        % (len(parts.patterns), max(0, Template(parts.patterns, dialect="wapiti")._plan().n_columns - 1))
    )
    file.writelines(map(string, parts.patterns))
    for strings in (parts.labels, parts.names):
        file.write(b"#qrk#%d\n" % len(strings))
        file.writelines(map(string, strings))
    each = zip(parts.numbers.tolist(), parts.values.tolist(), strict=True)
    file.writelines(f"{number}={value.hex()}\n".encode("ascii") for number, value in each)


def save(parts: WapitiParts, options: Options) -> None:
    """Writes a model where the options say, without what has no weights if they ask for it."""
    if options.compact:
        parts = compacted(parts)
    say("* Save the model")
    with writing(options.output, whole=True) as out:
        write_parts(parts, out)


def compacted(parts: WapitiParts) -> WapitiParts:
    """The same without observations all of whose weights are zero; says how many there were."""
    say("* Compacting the model")
    say("    - Scan the model")
    first, _ = parts.places
    which = np.searchsorted(first, parts.numbers, side="right") - 1
    kept = np.unique(which)
    fewer = replace(parts, names=[parts.names[k] for k in kept.tolist()])
    say("    - Compact it")
    moved = fewer.places[0][np.searchsorted(kept, which)] + parts.numbers - first[which]
    say(f"    {len(parts.names) - len(kept):8d} observations removed")
    say(f"    {first[-1] - fewer.places[0][-1]:8d} features removed")
    return replace(fewer, numbers=moved)


def dump_lines(parts: WapitiParts, precision: int, everything: bool) -> Iterator[str]:
    """The weights as text: observation, label before or #, label, weight; a blank line after an observation."""
    first, narrow = parts.places
    labels, n = parts.labels, len(parts.labels)
    ends = np.searchsorted(parts.numbers, first)
    for k, name in enumerate(parts.names):
        known = slice(ends[k], ends[k + 1])
        columns, values = (parts.numbers[known] - first[k]), parts.values[known]
        if everything:
            dense = np.zeros(first[k + 1] - first[k])
            dense[columns] = values
            columns, values = np.arange(len(dense)), dense
        for column, value in zip(columns.tolist(), values.tolist(), strict=True):
            pair = column - int(narrow[k])
            before, label = ("#", labels[column]) if pair < 0 else (labels[pair // n], labels[pair % n])
            yield f"{name}\t{before}\t{label}\t{value:.{precision}f}\n"
        if len(columns):
            yield "\n"


def updated(parts: WapitiParts, lines: Iterable[bytes]) -> WapitiParts:
    """The same with the weights of a patch: lines as :func:`dump_lines` writes them."""
    first, narrow = parts.places
    n = len(parts.labels)
    names = {name: k for k, name in enumerate(parts.names)}
    labels = {label: k for k, label in enumerate(parts.labels)}
    weights = dict(zip(parts.numbers.tolist(), parts.values.tolist(), strict=True))
    for line, text in enumerate(lines, 1):
        try:
            cells = split_line(text)
        except UnicodeDecodeError:
            raise Failure(f"line {line} is not valid UTF-8") from None
        if not cells:
            continue
        if len(cells) < 4:
            raise Failure(f"invalid line at {line}")
        name, before, label, value = cells[:4]
        k = names.get(name)
        if k is None:
            raise Failure(f"bad on observation on line {line}")
        for x in (before, label):
            if x not in labels and not (x == "#" and x is before):
                raise Failure(f"bad label <{x}> line {line}")
        if (narrow[k] == 0) if before == "#" else (first[k + 1] - first[k] == narrow[k]):
            raise Failure(f"the observation on line {line} has no such weights")
        at = labels[label] if before == "#" else int(narrow[k]) + labels[before] * n + labels[label]
        weights[int(first[k]) + at] = _weight(value, line)
    found = sorted((number, value) for number, value in weights.items() if value != 0)
    numbers, values = np.array([x for x, _ in found], np.int64), np.array([x for _, x in found])
    return replace(parts, numbers=numbers, values=values)


def _weight(text: str, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not all_finite(np.array(value)):
        raise Failure(f"bad weight on line {line}")
    return value
