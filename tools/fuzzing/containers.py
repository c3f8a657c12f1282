"""Model files and checkpoints of crfkit (safetensors) taken apart, changed and put together with right checksums."""

from __future__ import annotations

import json
import random
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crfkit.base.checkpoints import digest
from fuzzing.mutations import mutate_bytes, mutate_tree, odd_value, times
from fuzzing.texts import random_regex

DTYPES = dict(F64="f8", F32="f4", I64="i8", I32="i4", U64="u8", U32="u4", U16="u2", U8="u1", BOOL="?")  # noqa: C408
_MODEL, _CHECKPOINT, _BLOCKS, _CLASSES = "crfkit", "crfkit checkpoint", "crfkit blocks", "crfkit word classes"


@dataclass
class Tensor:
    """An array as the table of the file has it; offsets only where they are not to be the right ones."""

    dtype: Any
    shape: Any
    data: bytes
    offsets: Any = None


@dataclass
class Container:
    """Header and arrays of a file, of a model or of a checkpoint."""

    head: Any
    tensors: dict[str, Tensor]
    key: str = _MODEL
    sums: bool = True
    more: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: bytes) -> Container:
        """Takes a whole file apart; anything wrong is an error of Python's."""
        size = int.from_bytes(data[:8], "little")
        table, rest = json.loads(data[8 : 8 + size]), data[8 + size :]
        known = table.pop("__metadata__")
        key = next((x for x in (_CHECKPOINT, _BLOCKS, _CLASSES) if x in known), _MODEL)
        head = json.loads(known[key])
        for name in ("crc32", "arrays_crc32"):
            head.pop(name, None)
        tensors = {}
        for name, x in table.items():
            first, last = x["data_offsets"]
            tensors[name] = Tensor(x["dtype"], x["shape"], rest[first:last])
        return cls(head, tensors, key)

    def pack(self) -> bytes:
        """The bytes of a file; checksums fit what is there wherever that can be told."""
        table: dict[str, Any] = {}
        blob = b"".join(x.data for x in self.tensors.values())
        at = 0
        for name, x in self.tensors.items():
            own = [at, at + len(x.data)] if x.offsets is None else x.offsets
            table[name] = {"dtype": x.dtype, "shape": x.shape, "data_offsets": own}
            at += len(x.data)
        old = self.key == _CHECKPOINT and isinstance(self.head, dict) and self.head.get("format") == 1
        metadata = self._checkpoint_head(table, blob) if old else {self.key: self._model_head(table, blob)}
        text = json.dumps({"__metadata__": metadata, **table, **self.more}).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text + blob

    def _arrays(self, table: dict[str, Any], blob: bytes) -> dict[str, Any]:
        """The arrays as a reader sees them."""
        found = {}
        for name, x in table.items():
            try:
                first, last = x["data_offsets"]
                array = np.frombuffer(blob[first:last], DTYPES[x["dtype"]])
                found[name] = array.reshape(tuple(int(n) for n in x["shape"]))
            except (KeyError, TypeError, ValueError, OverflowError):
                continue
        return found

    def _model_head(self, table: dict[str, Any], blob: bytes) -> str:
        if not self.sums or not isinstance(self.head, dict):
            return json.dumps(self.head)
        sums = {}
        for name, x in self._arrays(table, blob).items():
            about = repr((name, x.dtype.str, x.shape)).encode(errors="surrogatepass")
            sums[name] = zlib.crc32(x.tobytes(), zlib.crc32(about))
        own = "checksums" if self.key == _BLOCKS else "arrays_crc32"
        known = self.head.get(own)
        if self.key == _BLOCKS and isinstance(known, dict):  # what lies in blocks has sums by block
            sums = {name: x for name, x in sums.items() if name in known}
        head = json.dumps({**self.head, own: sums})
        return f'{{"crc32": {zlib.crc32(head.encode())}, {head[1:]}'

    def _checkpoint_head(self, table: dict[str, Any], blob: bytes) -> dict[str, Any]:
        words = json.dumps(self.head)
        arrays = self._arrays(table, blob)
        order: list[Any] = []
        waiting = [self.head.get("tree") if isinstance(self.head, dict) else None]
        while waiting:  # in the order in which the reader meets them
            x = waiting.pop(0)
            if isinstance(x, dict) and "array" in x:
                name = x["array"]
                order += [arrays[name]] if isinstance(name, str) and name in arrays else []
            elif isinstance(x, dict) and isinstance(x.get("dict"), dict):
                waiting[:0] = x["dict"].values()
            elif isinstance(x, list):
                waiting[:0] = x
        return {self.key: words, "sum": digest([words, *order]) if self.sums else "0"}


def mutate_container(data: bytes, rng: random.Random) -> bytes:
    """A file with a few changes of its header, its arrays, its joins and patterns, or its bytes."""
    try:
        file = Container.parse(data)
        for _ in range(times(rng)):
            _mutate_parts(file, rng)
        packed = file.pack()
    except Exception:  # changed beyond what it can be taken apart or put together by, earlier or just now
        return mutate_bytes(data, rng)
    return mutate_bytes(packed, rng) if rng.random() < 0.05 else packed


def _mutate_parts(file: Container, rng: random.Random) -> None:
    kind = rng.randrange(19)
    if kind < 9 and isinstance(file.head, dict):
        mutate_tree(file.head, rng)
    elif kind < 15 and file.tensors:
        _mutate_tensor(file, rng)
    elif kind < 18 and (encoder := _encoder(file.head)) is not None:
        _mutate_plan(file, encoder, rng)
    else:
        _mutate_frame(file, rng)


def _mutate_frame(file: Container, rng: random.Random) -> None:
    """Changes what holds the header and the arrays."""
    kind = rng.randrange(5)
    if kind == 0:
        file.sums = False
    elif kind == 1 and isinstance(file.head, dict):
        file.head["format"] = 1  # nothing is checked then
        file.sums = False
    elif kind == 2:
        file.more[rng.choice(["", "weights", "x", "\ud800"])] = odd_value(rng)
    elif kind == 3:
        file.head = odd_value(rng)
    else:
        file.key = rng.choice(["crfkit", "crfkit checkpoint", "pt", ""])


def _number(kind: np.dtype[Any], n: int, rng: random.Random) -> Any:
    if kind.kind == "f":
        return rng.choice([0.0, -1.0, 1e300, -1e300, np.nan, np.inf, -np.inf, 5e-324, 1e-30])
    if kind.kind == "b":
        return rng.random() < 0.5
    info = np.iinfo(kind)
    number = rng.choice([0, 1, 2, n, n - 1, n + 1, info.max, info.min, info.max - 1, -1, 65536])
    return min(max(number, int(info.min)), int(info.max))


def _mutate_tensor(file: Container, rng: random.Random) -> None:
    """Changes elements, length, type, shape, place or name of an array."""
    names = list(file.tensors)
    name, other = rng.choice(names), rng.choice(names)
    x, y = file.tensors[name], file.tensors[other]
    kind = rng.randrange(14)
    if kind < 6 and x.dtype in DTYPES and x.data:
        with np.errstate(all="ignore"):
            array = np.frombuffer(x.data, DTYPES[x.dtype]).copy()
            for _ in range(rng.choice((1, 1, 3, len(array)))):
                array[rng.randrange(len(array))] = _number(array.dtype, len(array), rng)
        if kind == 5:
            array = rng.choice([np.sort(array), array[::-1], np.roll(array, 1), np.full_like(array, array[0])])
        x.data = array.tobytes()
    elif kind < 8 and x.dtype in DTYPES:
        array = np.frombuffer(x.data, DTYPES[x.dtype])
        array = rng.choice([array[:-1], array[1:], array[:0], np.tile(array, 2), np.append(array, array[-1:])])
        x.data, x.shape = array.tobytes(), [len(array)] if rng.random() < 0.9 else x.shape
    elif kind == 8:
        x.dtype = rng.choice([*DTYPES, "F16", "BF16", "", None, [], 8])
        if x.dtype in list(DTYPES) and len(x.data) % np.dtype(DTYPES[x.dtype]).itemsize == 0:
            x.shape = [len(x.data) // np.dtype(DTYPES[x.dtype]).itemsize]
    elif kind == 9:
        count = rng.choice([2**31, 2**32, 2**62, 2**63, -1, 0, 3, None, "1", 1.5])
        x.shape = rng.choice([[], [count], [count, 0], [0, count], [count, count], [1] * 70, None, {}, [*x.shape, 1]])
    elif kind == 10:  # arrays that share their bytes, or lie where there are none
        total = sum(len(t.data) for t in file.tensors.values())
        first = rng.choice([0, -8, total, 1, 2**63, rng.randrange(total + 1)])
        x.offsets = rng.choice([[first, first + len(x.data)], [0, total], [total, 0], [first], None, "0", [0.0, 8.5]])
    elif kind == 11:
        x.data, y.data, x.shape, y.shape, x.dtype, y.dtype = y.data, x.data, y.shape, x.shape, y.dtype, x.dtype
    elif kind == 12:
        del file.tensors[name]
    else:
        new = rng.choice([f"{name}0", f"constraints.{name}", "", "layout.n", "encoder.pairs.9", "\ud800", other])
        file.tensors[new] = file.tensors.pop(name) if rng.random() < 0.5 else Tensor(x.dtype, x.shape, x.data)


def _encoder(head: Any) -> dict[str, Any] | None:
    """The part of a header that describes a plan."""
    if not isinstance(head, dict):
        return None
    places = [head.get("encoder")]
    reader = head.get("reader")
    if isinstance(reader, dict) and isinstance(reader.get("config"), dict):
        places.append(reader["config"].get("encoder"))
    for x in places:
        if isinstance(x, dict) and isinstance(x.get("plan"), dict) and isinstance(x["plan"].get("nodes"), list):
            return x
    return None


def _mutate_plan(file: Container, encoder: dict[str, Any], rng: random.Random) -> None:
    """Changes the graph of joins, the patterns and the templates; tables are added for new nodes."""
    nodes, templates = encoder["plan"]["nodes"], encoder["plan"]["templates"]
    if not isinstance(templates, list) or not nodes:
        return
    n = len(nodes)
    kind = rng.randrange(7)
    added: list[list[Any]] = []
    if kind == 0:  # a chain, deeper than any stack now and then
        depth = rng.choice((2, 10, 300, 100_000 if rng.random() < 0.002 else 3000 if rng.random() < 0.1 else 50))
        step = rng.choice((0, 0, 1, -1, 2000))
        added = [["join", n + k - 1 if k else n - 1, rng.randrange(n), step, "|"] for k in range(depth)]
    elif kind == 1:  # each join twice the one before: as many values as atoms
        depth = rng.choice((2, 5, 20, 40, 64))
        added = [
            ["join", n + k - 1 if k else 0, n + k - 1 if k else 0, rng.choice((0, 0, 1)), "/"] for k in range(depth)
        ]
    elif kind == 2:
        regex = random_regex(rng)
        added = [
            [
                "pattern",
                rng.choice((0, 0, 1, 9)),
                rng.choice((1, 2, 3)),
                0,
                rng.choice((0, 1)),
                rng.choice((0, 1, -1)),
                regex,
            ]
        ]
    elif kind == 3:
        added = [["leaf", rng.choice((0, 1, 5, 2**31 - 1)), rng.randrange(-1, 9), rng.choice((0, 3, 255, 2**31 - 1))]]
    elif kind == 4:
        node = rng.choice(nodes)
        if isinstance(node, list) and node and node[0] == "join" and len(node) == 5:
            node[rng.choice((1, 2, 3))] = rng.choice((0, n - 1, n, -1, 1, 2000, 2**31 - 1, rng.randrange(n)))
        else:
            mutate_tree({"node": node}, rng)
    elif kind == 5:
        mutate_tree({"templates": templates}, rng)
    else:  # counts without anything to count
        encoder[rng.choice(["n_attributes", "tables"])] = [rng.choice((2**31, 2**32 - 1, 0, 1)) for _ in range(2)]
    nodes += added
    if added and rng.random() < 0.8:
        edge = rng.random() < 0.3
        templates.append([len(nodes) - 1, rng.choice((0, 0, -1, 1, 1000)), "Z:", "", edge])
        _add_tables(file, encoder, added)


def _add_tables(file: Container, encoder: dict[str, Any], added: list[list[Any]]) -> None:
    """Tables for new nodes and their template: one pair of the first values of both parts, so that values go up."""
    try:
        tables = encoder["tables"]
        prefix = "reader." if "encoder.attributes.0" not in file.tensors else "encoder."
        one = np.zeros(2, "u4").tobytes()
        for node in added:
            if node[0] == "join":
                file.tensors[f"{prefix}pairs.{tables[1]}"] = Tensor("U32", [2], one)
                tables[1] += 1
            else:
                file.tensors[f"{prefix}strings.{tables[0]}.bytes"] = Tensor("U8", [1], b"a")
                ends = next(x for k, x in file.tensors.items() if k.endswith(".ends"))
                width = len(np.zeros(1, DTYPES[ends.dtype]).tobytes())
                file.tensors[f"{prefix}strings.{tables[0]}.ends"] = Tensor(
                    ends.dtype, [1], (1).to_bytes(width, "little")
                )
                tables[0] += 1
        file.tensors[f"{prefix}attributes.{tables[2]}"] = Tensor("U32", [1], np.zeros(1, "u4").tobytes())
        tables[2] += 1
    except (KeyError, TypeError, IndexError, StopIteration):
        return  # a header that was changed before
