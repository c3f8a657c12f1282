"""Files of arrays with a header (safetensors), for models and checkpoints; checked before anything is allocated.

A file holds eight bytes of length, a JSON table of names, types, shapes and places, and the arrays' bytes, one after
another without a gap. Besides the arrays, the table has a text: our header, also in JSON, with its own checksum and
that of every array.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Mapping
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crfkit.base.fields import Arrays, ModelError, damaged, integer, list_of, one_of, record, text
from crfkit.base.files import open_whole, whole_file
from crfkit.base.numbers import whole_number
from crfkit.base.parameters import has_lone_surrogate

FORMAT = 2  # since 2, the header and every array have a checksum

_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
_NAMES = {np.dtype(code): name for name, code in _TYPES.items()}
_MOST_HEADER = 1 << 25  # bytes: read as JSON, they may take twenty times as much memory
_MOST_PARTS = 1 << 20  # lists and objects of a header
_MOST_ARRAYS = 65_536  # each takes a while to judge; no model has more
_DEEPEST = 64  # nested lists and objects of a header
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_STEPS = np.array([(chr(c) in "[{") - (chr(c) in "]}") for c in range(256)], np.int8)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ENTRY = record(
    {
        "dtype": one_of(*_TYPES),
        "shape": list_of(integer(0, 2**40), 0, 16),
        "data_offsets": list_of(integer(0), 2, 2),
    },
    closed=True,
)


class _Place(NamedTuple):
    """Type, shape, first byte and end of an array."""

    dtype: np.dtype[Any]
    shape: list[int]
    first: int
    last: int


class Spool:
    """An array [N] that grows in a file of its own, until it is copied to where it belongs.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     spool = Spool(os.path.join(folder, "a"), np.dtype(np.int32))
    ...     spool.write(np.array([1, 2], np.int32))
    ...     spool.shape, spool.nbytes, spool.close()
    ((2,), 8, None)
    """

    def __init__(self, path: str | os.PathLike[str], dtype: np.dtype[Any]) -> None:
        self.path, self.dtype, self.nbytes = os.fspath(path), dtype, 0
        self._file = open(path, "wb")  # noqa: SIM115 - closed by close

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return self.dtype.itemsize

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array so far."""
        return (self.nbytes // self.itemsize,)

    def write(self, x: NDArray[Any]) -> None:
        """Adds numbers at the end."""
        data = np.ascontiguousarray(x, self.dtype).reshape(-1).view(np.uint8).data
        self._file.write(data)
        self.nbytes += len(data)

    def close(self) -> None:
        """Ends writing."""
        self._file.close()

    def copy_to(self, file: IO[bytes]) -> None:
        """Appends all to a file, and removes its own."""
        self.close()
        with open(self.path, "rb") as own:
            shutil.copyfileobj(own, file, 1 << 18)  # which stays in the cache
        os.unlink(self.path)


class TensorFile(NamedTuple):
    """What a file holds: the header, its text, all texts beside the arrays, and the arrays."""

    header: dict[str, Any]
    text: str
    texts: Mapping[str, str]
    arrays: Arrays


def write_tensors(
    path: str | os.PathLike[str], key: str, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Writes header and arrays, whole or not at all; ``key`` is the name of the header among the texts."""
    tensors = {k: np.asarray(v, np.asarray(v).dtype.newbyteorder("<"), order="C") for k, v in arrays.items()}
    sums = {name: checksum(name, x) for name, x in tensors.items()}
    write_arrays(path, key, {**header, "arrays_crc32": sums}, tensors)


def write_arrays(
    path: str | os.PathLike[str], key: str, header: Mapping[str, Any], tensors: Mapping[str, NDArray[Any] | Spool]
) -> None:
    """The same with checksums from the caller, and arrays that may be in files."""
    for name, x in tensors.items():
        if x.dtype not in _NAMES:
            raise ValueError(f"a file cannot hold the array {name!r} of type {x.dtype}")
    head = json.dumps({"format": FORMAT, **header}, default=lambda x: x.item())
    parse_json(head)  # what is written can be read
    head = f'{{"crc32": {zlib.crc32(head.encode())}, {head[1:]}'
    table: dict[str, Any] = {"__metadata__": {key: head}}
    at = 0
    order = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))  # so that each is aligned
    for name in order:
        x = tensors[name]
        table[name] = {"dtype": _NAMES[x.dtype], "shape": x.shape, "data_offsets": [at, at := at + x.nbytes]}
    words = json.dumps(table, separators=(",", ":")).encode()
    words += b" " * (-len(words) % 8)
    if len(words) > _MOST_HEADER or len(tensors) > _MOST_ARRAYS:
        most = f"the maximum is {_MOST_HEADER} and {_MOST_ARRAYS}"
        raise ValueError(f"a header of {len(words)} bytes, of {len(tensors)} arrays, is too large for a file: {most}")
    with whole_file(path) as file:  # without a second copy of all in memory
        file.write(len(words).to_bytes(8, "little") + words)
        for name in order:
            x = tensors[name]
            if isinstance(x, Spool):
                x.copy_to(file)
            else:
                file.write(x.reshape(-1).view(np.uint8).data)


def read_tensors(path: str | os.PathLike[str], key: str, what: str, verify: bool = True) -> TensorFile:
    """Reads a file whose header is under ``key``; messages call it a ``what``.

    Without ``verify`` the arrays are mapped into memory, and their checksums are not looked at.

    Raises
    ------
    ModelError
        If the file is not one of ours, is truncated or damaged, or has a later format.
    """
    name = os.fspath(path)
    with open_whole(path, what) as (file, size):
        if size < 8:
            raise ModelError(f"{name}: not a crfkit {what}: only {size} bytes")
        length = int.from_bytes(file.read(8), "little")
        start = file.read(1)
        if length > size - 8 or start != b"{":
            raise ModelError(f"{name}: not a crfkit {what}, or a truncated one")
        if length > _MOST_HEADER:
            raise ModelError(
                f"{name}: not a crfkit {what}: its header has {length} bytes, the maximum is {_MOST_HEADER}"
            )
        try:
            table = parse_json(_decoded(start + file.read(length - 1)))
            texts = _texts(table.pop("__metadata__", {}))
            head = texts.get(key, "null")
            header = parse_json(head)
        except ValueError as e:
            raise ModelError(f"{name}: not a crfkit {what}: its header is damaged: {e}") from e
        other = next((k for k in texts if k.startswith("crfkit")), None)
        if other not in (None, key):
            raise ModelError(f"{name}: not a crfkit {what}: its header is one of {other!r}")
        version = _version(name, what, header)
        with damaged(name, what):
            places = _judged(table, size - 8 - length)
            data = _data(file, 8 + length, size, verify)
            arrays = Arrays({k: _array(k, data, place) for k, place in places.items()})
    own, sums = header.pop("crc32", None), header.pop("arrays_crc32", None)
    if version > 1 and zlib.crc32(f"{{{head.partition(', ')[2]}".encode()) != own:
        raise ModelError(f"{name}: the {what} is damaged: its header does not match its checksum")
    if version > 1 and verify:
        _check_sums(name, what, arrays, sums)
    return TensorFile(header, head, texts, arrays)


def _texts(value: Any) -> dict[str, str]:
    """The texts beside the arrays."""
    table: dict[str, Any] = record({})(value, "__metadata__")
    return {key: text(x, f"__metadata__.{key}") for key, x in table.items()}


def _decoded(words: bytes) -> str:
    try:
        return words.decode()
    except UnicodeDecodeError as e:
        raise ValueError(f"it is not valid UTF-8 at byte {8 + e.start}") from None


def parse_json(words: str, most: int = _MOST_PARTS) -> Any:
    """What a JSON text says, if it has at most so many lists and objects, not too deep, and only texts of Unicode."""
    marks = np.frombuffer(_STRING.sub("", words).encode("utf-8", "replace"), np.uint8)
    depth = parts = 0
    for k in range(0, len(marks), 1 << 20):
        steps = _STEPS[marks[k : k + (1 << 20)]]
        run = depth + np.cumsum(steps, dtype=np.int64)
        if run.max() > _DEEPEST:
            raise ValueError(f"it is nested more than {_DEEPEST} levels deep")
        depth, parts = int(run[-1]), parts + int(np.count_nonzero(steps > 0))
        if parts > most:
            raise ValueError(f"it has more than {most} lists and objects")
    value = json.loads(words, parse_int=whole_number)
    if _SURROGATE.search(words) and (found := _lone_surrogate(value, "")):
        raise ValueError(f"{found.removeprefix('.')!r} contains a lone surrogate")
    return value


def _lone_surrogate(value: Any, field: str) -> str | None:
    """The first field with half of a surrogate pair in its text."""
    if isinstance(value, str):
        return field if has_lone_surrogate(value) else None
    inner: Iterable[tuple[Any, str]] = ()
    if isinstance(value, list):
        inner = ((x, f"{field}[{k}]") for k, x in enumerate(value))
    elif isinstance(value, dict):
        inner = (pair for k, x in value.items() for pair in ((k, f"{field}.{k}"), (x, f"{field}.{k}")))
    return next((found for x, name in inner if (found := _lone_surrogate(x, name)) is not None), None)


def _version(name: str, what: str, header: Any) -> int:
    """The number of the format, if it is one that we read."""
    if not isinstance(header, dict):
        raise ModelError(f"{name}: a safetensors file, but not a crfkit {what}")
    version = header.get("format")
    if type(version) is not int or version < 1:
        raise ModelError(f"{name}: not a crfkit {what}: no format number")
    if version > FORMAT:
        raise ModelError(f"{name}: written by a newer version of crfkit (format {version}, this one reads {FORMAT})")
    return version


def _judged(table: Any, size: int) -> dict[str, _Place]:
    """Type, shape and place of every array; they must lie one after another and fill ``size`` bytes."""
    if len(table) > _MOST_ARRAYS:
        raise ValueError(f"it has {len(table)} arrays, the maximum is {_MOST_ARRAYS}")
    out: dict[str, _Place] = {}
    for key, entry in table.items():
        entry = _ENTRY(entry, key)
        dtype, shape, (first, last) = np.dtype(_TYPES[entry["dtype"]]), entry["shape"], entry["data_offsets"]
        if last > size:
            raise ValueError(f"it is cut short: the array {key!r} ends at byte {last} of {size}")
        if last - first != math.prod(shape) * dtype.itemsize or math.prod(n for n in shape if n) > 2**60:
            raise ValueError(f"the array {key!r} of shape {shape} does not have {last - first} bytes")
        out[key] = _Place(dtype, shape, first, last)
    at = 0
    for key, place in sorted(out.items(), key=lambda item: (item[1].first, item[1].last)):
        if place.first != at:
            raise ValueError(f"the array {key!r} begins at byte {place.first}, the one before ends at {at}")
        at = place.last
    if at != size:
        raise ValueError(f"its arrays have {at} bytes, the file has {size} for them")
    return out


def _data(file: IO[bytes], begin: int, size: int, verify: bool) -> NDArray[np.uint8]:
    """The bytes of the arrays."""
    if not verify:
        return np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), np.uint8, offset=begin)
    file.seek(begin)
    data = np.fromfile(file, np.uint8, size - begin)  # a map would crash us when the file is overwritten
    if len(data) != size - begin:
        raise ValueError("it shrank while it was read")
    return data


def _array(key: str, data: NDArray[np.uint8], place: _Place) -> NDArray[Any]:
    flat = data[place.first : place.last]
    if place.dtype == bool and flat.max(initial=0) > 1:
        raise ValueError(f"the array {key!r} holds values that are neither true nor false")
    aligned = flat.ctypes.data % place.dtype.alignment == 0
    return (flat if aligned else flat.copy()).view(place.dtype).reshape(place.shape)


def checksum(name: str, array: NDArray[Any]) -> int:
    """CRC-32 of an array's name, type, shape and bytes: detects any change of a single bit."""
    about = repr((name, array.dtype.str, array.shape)).encode()
    return zlib.crc32(array.reshape(-1).view(np.uint8).data, zlib.crc32(about))


def _check_sums(name: str, what: str, arrays: Mapping[str, NDArray[Any]], sums: Any) -> None:
    """Raises if an array does not match its checksum."""
    if not isinstance(sums, dict) or sums.keys() != arrays.keys():
        raise ModelError(f"{name}: the {what} is damaged: its checksums do not match its arrays")
    for key, array in arrays.items():
        if checksum(key, array) != sums[key]:
            raise ModelError(f"{name}: the {what} is damaged: {key!r} does not match its checksum")
