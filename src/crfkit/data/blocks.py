"""Block files: encoded sequences on the disk, in the blocks that training reads.

A block file is a safetensors file that is mapped into memory. Its header holds the labels and the encoder's settings;
its arrays are those of a data set, one after another, cut into blocks of some thousand tokens. A block numbers its own
attributes from zero: training makes its tables of weights from that without sorting anything.

================================  =======================================================================
``offsets`` [S + 1]               first token of each sequence
``labels`` [N]                    number of each token's label, -1 where it is not known
``weights`` [S]                   of the sequences, unless all are one
``sets.tokens``, ``sets.labels``  tokens of which several labels are possible, and these labels
``blocks.sequences`` [B + 1]      first sequence of each block
``blocks.crc32`` [B]              checksum of all that belongs to a block
``state.attributes``              the attributes of each block, ascending
``state.entries``                 places among them, 16 bits each; 32, low half first, if a block has more than 65,536
``state.counts`` [N]              entries of each token
``state.values``                  values of the entries, unless all are one
``state.first_...`` [B + 1]       where the attributes, the 16-bit words and the entries of a block begin
``edge...``                       the same for attributes of transitions, if there are any
``encoder...``                    the vocabulary
================================  =======================================================================
"""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.fields import (
    Arrays,
    ModelError,
    anything,
    check_pairs,
    damaged,
    integer,
    label_list,
    list_of,
    number,
    optional,
    record,
    text,
)
from crfkit.base.messages import counted
from crfkit.base.numbers import pieces
from crfkit.base.parameters import check_number
from crfkit.base.tensors import checksum, read_tensors
from crfkit.base.threads import ordered, resolve_threads
from crfkit.data.dataset import NONE, Dataset
from crfkit.data.labels import Hints

KEY = "crfkit blocks"
WHAT = "block file"
VERSION = 1
KINDS = ("state", "edge")
_HEAD = 64  # bytes that tell a block file from text

_HEADER = record(
    {
        "labels": lambda value, field: [] if value == [] else label_list(value, field),
        "encoder": record({}),
        "n_attributes": list_of(integer(0, NONE), 2, 2),
        "min_freq": number(0),
        "sequences": integer(0, 2**48),
        "tokens": integer(0, 2**48),
        "unknown": integer(0, 2**48),
        "reading": anything,
        "features": optional(text),
        "checksums": record({}),
    }
)


class Group(NamedTuple):
    """One kind of attributes of all blocks, as in the file."""

    attributes: NDArray[np.uint32]
    entries: NDArray[np.uint16]
    counts: NDArray[np.uint16]
    values: NDArray[np.float64] | None
    first_attribute: NDArray[np.int64]
    first_entry: NDArray[np.int64]
    first_value: NDArray[np.int64]

    @classmethod
    def of_file(cls, arrays: Arrays, n_blocks: int, n_tokens: int) -> Group:
        """The arrays of a file, if they fit each other."""
        first = [arrays.of_kind(f"first_{name}", "i", (n_blocks + 1,)) for name in ("attribute", "entry", "value")]
        n_attributes, n_words, n_entries = (int(x[-1]) for x in first)
        return cls(
            arrays.of_kind("attributes", "u", (n_attributes,)),
            arrays.of_kind("entries", "u", (n_words,)),
            arrays.of_kind("counts", "u", (n_tokens,)),
            arrays.of_kind("values", "f", (n_entries,)) if "values" in arrays else None,
            *first,
        )

    def flat(self, b: int) -> NDArray[np.uint32]:
        """The attributes of a block's tokens, one after another."""
        table = self.attributes[self.first_attribute[b] : self.first_attribute[b + 1]]
        words = self.entries[self.first_entry[b] : self.first_entry[b + 1]]
        places = words if len(table) <= 1 << 16 else words[::2].astype(np.int64) + (words[1::2].astype(np.int64) << 16)
        if places.max(initial=0) >= max(len(table), 1):
            raise ValueError(f"block {b} names an attribute that it does not have")
        return table[places]

    def some(self, first: int, last: int, first_token: int, last_token: int) -> Group:
        """Those of the blocks from ``first`` to ``last - 1``, which have these tokens."""
        starts = [x[first : last + 1] for x in (self.first_attribute, self.first_entry, self.first_value)]
        attributes, entries, values = (slice(int(x[0]), int(x[-1])) for x in starts)
        return Group(
            self.attributes[attributes],
            self.entries[entries],
            self.counts[first_token:last_token],
            None if self.values is None else self.values[values],
            *(x - x[0] for x in starts),
        )

    def parts(self, b: int, first: int, last: int) -> Iterator[NDArray[Any]]:
        """All that belongs to a block whose tokens are those from ``first`` to ``last - 1``."""
        yield self.attributes[self.first_attribute[b] : self.first_attribute[b + 1]]
        yield self.entries[self.first_entry[b] : self.first_entry[b + 1]]
        yield self.counts[first:last]
        if self.values is not None:
            yield self.values[self.first_value[b] : self.first_value[b + 1]]


class StoredDataset(Dataset):
    """A data set in a block file. Code that reads block by block uses ``stored``; everything else gets flat arrays."""

    sequences: NDArray[np.int64]  # first of each block [B + 1]
    groups: Mapping[str, Group]  # of attributes of tokens, and of transitions if there are any
    folder: str  # of the file
    window: int | None  # blocks that stochastic optimisers hold at a time; None: all

    def __init__(
        self,
        offsets: NDArray[np.int64],
        sequences: NDArray[np.int64],
        groups: Mapping[str, Group],
        folder: str = ".",
        window: int | None = None,
    ) -> None:
        self.__dict__.update(offsets=offsets, sequences=sequences, groups=groups, folder=folder, window=window)

    @property
    def n_tokens(self) -> int:
        """Number of tokens, N."""
        return int(self.offsets[-1])

    @property
    def n_blocks(self) -> int:
        """Number of blocks, B."""
        return len(self.sequences) - 1

    @cached_property
    def stored(self) -> _core.StoredTokens:
        """The blocks, as the core takes them."""
        state, edge = (self.groups.get(kind) for kind in KINDS)
        assert state is not None
        return _core.StoredTokens(self.offsets, self.sequences, tuple(state), None if edge is None else tuple(edge))

    @property
    def digested(self) -> list[Any]:
        """What distinguishes this data from other data."""
        return [self.offsets, self.sequences, *(list(group) for group in self.groups.values())]

    def some(self, first: int, last: int) -> StoredDataset:
        """The blocks from ``first`` to ``last - 1``, where they are."""
        sequences = self.sequences[first : last + 1]
        offsets = self.offsets[sequences[0] : sequences[-1] + 1]
        tokens = int(offsets[0]), int(offsets[-1])
        groups = {kind: group.some(first, last, *tokens) for kind, group in self.groups.items()}
        return StoredDataset(offsets - tokens[0], sequences - sequences[0], groups)

    @property
    def flat(self) -> Dataset:
        """Flat arrays of all blocks, in memory."""
        return self._flat

    def part(self, first: int, last: int) -> Dataset:
        """Flat arrays of the blocks from ``first`` to ``last - 1``."""
        offsets = self.offsets[self.sequences[first] : self.sequences[last] + 1]
        a, b = int(offsets[0]), int(offsets[-1])
        flat: dict[str, tuple[NDArray[np.int64], NDArray[np.uint32]]] = {}
        for kind, group in self.groups.items():
            attr = [group.flat(k) for k in range(first, last)]
            ptr = np.concatenate([[0], np.cumsum(group.counts[a:b], dtype=np.int64)])
            flat[kind] = ptr, np.concatenate(attr) if attr else np.zeros(0, np.uint32)
            if ptr[-1] != len(flat[kind][1]):
                raise ValueError("the entries of a block do not match the counts of its tokens")
        values = self.groups["state"].values
        if values is not None:
            firsts = self.groups["state"].first_value
            values = values[firsts[first] : firsts[last]]
        return Dataset(offsets - a, *flat["state"], values, *flat.get("edge", (None, None)))

    def gather(self, sequences: NDArray[np.int64]) -> Dataset:
        """Flat arrays of some sequences, in rising order."""
        blocks = np.searchsorted(self.sequences, sequences, side="right") - 1
        parts = [self.part(b, b + 1).take(sequences[blocks == b] - self.sequences[b]) for b in np.unique(blocks)]
        return parts[0] if len(parts) == 1 else Dataset.concatenate(parts)

    @cached_property
    def _flat(self) -> Dataset:
        return self.part(0, self.n_blocks)

    def without_zeros(self) -> Dataset:
        """The same without attributes of value zero, which score nothing."""
        values = self.groups["state"].values
        return self if values is None or values.all() else self._flat.without_zeros()

    def take(self, sequences: NDArray[np.int64]) -> Dataset:
        """Some of the sequences, in the given order, in memory; all of them stay where they are."""
        if len(sequences) == self.n_sequences and (sequences == np.arange(self.n_sequences)).all():
            return self
        return self._flat.take(sequences)

    ptr = property(lambda self: self._flat.ptr)
    attr = property(lambda self: self._flat.attr)
    value = property(lambda self: self._flat.value)
    edge_ptr = property(lambda self: self._flat.edge_ptr)
    edge_attr = property(lambda self: self._flat.edge_attr)


def in_blocks(data: Dataset, tokens: int) -> Dataset:
    """The same data set in memory, in blocks of at most ``tokens`` tokens, for repeated scoring.

    Data that has attributes of transitions, or tokens with very many, stays as it is.
    """
    counts = np.diff(data.ptr)
    if data.edge_ptr is not None or counts.max(initial=0) >= 1 << 16:
        return data
    ranges = list(pieces(data.offsets, tokens))
    attributes, entries = [np.zeros(0, np.uint32)], [np.zeros(0, np.uint16)]
    for a, b in ranges:
        table, places = np.unique(data.attr[data.ptr[data.offsets[a]] : data.ptr[data.offsets[b]]], return_inverse=True)
        attributes.append(table)
        wide = len(table) > 1 << 16
        entries.append(places.astype("<u4").view(np.uint16) if wide else places.astype(np.uint16))
    cuts = np.array([0, *(b for _, b in ranges)], np.int64)
    first, word = (np.cumsum([len(x) for x in parts], dtype=np.int64) for parts in (attributes, entries))
    group = Group(
        np.concatenate(attributes),
        np.concatenate(entries),
        counts.astype(np.uint16),
        data.value,
        first,
        word,
        data.ptr[data.offsets[cuts]],
    )
    return StoredDataset(data.offsets, cuts, {"state": group})


class Blocks:
    """Sequences in a block file, written by ``crfkit encode`` or :meth:`crfkit.CRF.encode`; pass it to ``fit`` as X.

    Only what training needs at the time is in memory. Training gives the same weights, bit for bit, as training on the
    sequences themselves.

    Parameters
    ----------
    path : path
        A block file, written by :meth:`crfkit.CRF.encode` or ``crfkit encode``.
    window : int, optional
        Number of blocks, of a few thousand tokens each, that stochastic optimisers hold in memory at a time. They
        shuffle the blocks, and the sequences within each window of blocks. By default the window holds all blocks.

    Attributes
    ----------
    classes : tuple
        The labels.
    n_sequences, n_tokens, n_attributes : int
        ``n_attributes`` counts the attributes of tokens and of transitions together.
    min_freq : float
        Attributes that occur less often were left out.
    features : str or None
        The features of the :class:`crfkit.CRF` that encoded it, as text.
    hash_bits : int or None
        Its ``hash_bits``.

    Raises
    ------
    ModelError
        If the file is not a block file, is truncated or damaged, or has a later version.

    Examples
    --------
    >>> import os, tempfile
    >>> from crfkit import CRF
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "pears.blocks")
    ...     blocks = CRF().encode([["one", "pear"], ["pear"]], [["QTY", "NAME"], ["NAME"]], path)
    ...     crf = CRF().fit(Blocks(path))
    >>> blocks, crf.predict([["one"]])
    (<Blocks: 2 sequences, 3 tokens, 2 labels>, [['QTY']])
    """

    def __init__(self, path: str | os.PathLike[str], *, window: int | None = None) -> None:
        self.path, self.window = os.fspath(path), window
        check_number("Blocks", "window", window, 1, integer=True, optional=True)
        header, _, _, arrays = read_tensors(path, KEY, WHAT, verify=False)
        version = header.get("blocks")
        if type(version) is not int or version < 1:
            raise ModelError(f"{self.path}: not a crfkit {WHAT}: no version number")
        if version > VERSION:
            raise ModelError(f"{self.path}: written by a later crfkit (version {version}, this one reads {VERSION})")
        with damaged(self.path, WHAT):
            head = _HEADER(header, "")
            check_pairs(len(head["labels"]), os.path.getsize(path))
            vocabulary = sum(x.size for name, x in arrays.items() if name.startswith("encoder."))
            if sum(head["n_attributes"]) > vocabulary:
                raise ValueError(f"'n_attributes' is {head['n_attributes']}, but its encoder has {vocabulary} numbers")
            self._arrays, self._sums = arrays, head["checksums"]
            small = [k for k in arrays if k.startswith("blocks.") or ".first_" in k]
            self._check_sums({*small, *(k for k in self._sums if not k.startswith("encoder."))})
            s, n = head["sequences"], head["tokens"]
            offsets = arrays.of_kind("offsets", "i", (s + 1,))
            starts = arrays.of_kind("blocks.sequences", "i", (None,))
            if not len(starts) or offsets[0] != 0 or offsets[-1] != n or starts[0] != 0 or starts[-1] != s:
                raise ValueError(f"its blocks do not hold {s} sequences of {n} tokens")
            groups = {kind: arrays.group(kind) for kind in KINDS}
            data = {k: Group.of_file(x, len(starts) - 1, n) for k, x in groups.items() if x or k == "state"}
            self.dataset = StoredDataset(offsets, starts, data, os.path.dirname(self.path) or ".", window)
            self.dataset.stored  # noqa: B018 - checks that the arrays fit each other
            self._labels = arrays.of_kind("labels", "i", (n,))
            self.weights = arrays.finite("weights", (s,)) if "weights" in arrays else None
            if self.weights is not None and self.weights.min(initial=0) < 0:
                raise ValueError("the array 'weights' must hold numbers >= 0")
            self.sets = self._known_sets(len(head["labels"]))
            self._crc32 = arrays.of_kind("blocks.crc32", "u", (self.dataset.n_blocks,))
        self.numbers: tuple[Any, Any] | None = None  # those of its attributes in an encoder
        self.classes = tuple(head["labels"])
        self.encoder_config: dict[str, Any] = head["encoder"]
        self.reading: dict[str, Any] = head["reading"]
        self.features: str | None = head["features"]
        self.hash_bits: int | None = head["encoder"].get("bits")
        self.attributes: tuple[int, int] = tuple(head["n_attributes"])
        self.min_freq: float = head["min_freq"]
        self.n_unknown: int = head["unknown"]

    def _known_sets(self, n_labels: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]] | None:
        if "sets.tokens" not in self._arrays:
            return None
        tokens = self._arrays.of_kind("sets.tokens", "i", (None,))
        if len(tokens) and (tokens[0] < 0 or (np.diff(tokens) <= 0).any() or tokens[-1] >= len(self._labels)):
            raise ValueError("the array 'sets.tokens' must hold increasing token numbers")
        if (self._labels[tokens] >= 0).any():
            raise ValueError("the array 'sets.tokens' must hold tokens with unknown labels")
        return tokens, self._arrays.of_kind("sets.labels", "b", (len(tokens), n_labels))

    def _check_sums(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            if name not in self._arrays or self._sums.get(name) != checksum(name, self._arrays[name]):
                raise ValueError(f"{name!r} does not match its checksum")

    @cached_property
    def labels(self) -> NDArray[np.int32]:
        """Number of each token's label, -1 where it is not known, [N]."""
        with damaged(self.path, WHAT):
            if self._labels.min(initial=-1) < -1 or self._labels.max(initial=-1) >= len(self.classes):
                raise ValueError(f"the array 'labels' must hold numbers from -1 to {len(self.classes) - 1}")
        return self._labels

    @property
    def n_sequences(self) -> int:
        """Number of sequences."""
        return self.dataset.n_sequences

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        return self.dataset.n_tokens

    @property
    def n_attributes(self) -> int:
        """Number of attributes, of tokens and of transitions."""
        return sum(self.attributes)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sequence, [S]."""
        return np.diff(self.dataset.offsets)

    def __len__(self) -> int:
        return self.n_sequences

    def __repr__(self) -> str:
        sizes = {"sequence": len(self), "token": self.n_tokens, "label": len(self.classes)}
        return f"<Blocks: {', '.join(counted(n, noun) for noun, n in sizes.items())}>"

    def __reduce__(self) -> Any:
        return partial(Blocks, window=self.window), (self.path,)

    def encoder_arrays(self) -> Arrays:
        """The vocabulary, checked."""
        with damaged(self.path, WHAT):
            self._check_sums([name for name in self._arrays if name.startswith("encoder.")])
        return self._arrays.group("encoder")

    def verify(self, n_jobs: int | None = None) -> None:
        """Raises unless every block matches its checksum; reads all of the file."""

        for _ in ordered(self.verify_block, iter(range(self.dataset.n_blocks)), resolve_threads(n_jobs)):
            pass

    def verify_block(self, b: int) -> None:
        """Raises unless a block matches its checksum."""
        if block_checksum(self.dataset, self._labels, b) != int(self._crc32[b]):
            raise ModelError(f"{self.path}: the {WHAT} is damaged: block {b} does not match its checksum")

    def part(self, first: int, last: int) -> Dataset:
        """Flat arrays of the blocks from ``first`` to ``last - 1``, checked."""
        for b in range(first, last):
            self.verify_block(b)
        with damaged(self.path, WHAT):
            found = self.dataset.part(first, last)
            for attr, n in zip((found.attr, found.edge_attr), self.attributes, strict=True):
                if attr is not None and len(attr) and attr.max() >= n:
                    raise ValueError("an attribute has a number that is too large")
        return found

    def known(self) -> tuple[NDArray[np.int32], Hints | None]:
        """Numbers of the labels, and hints as training takes them; no hints if all are known."""
        if not self.n_unknown:
            return self.labels, None
        if self.sets is None:
            return self.labels, np.zeros((0, len(self.classes)))
        tokens, possible = self.sets
        numbers = np.array(self.labels)
        numbers[tokens] = -2 - np.arange(len(tokens))
        return numbers, np.where(possible, 0.0, -np.inf)

    def label_lists(self) -> list[list[Any]]:
        """The labels of all sequences, None where they are not known."""
        names = [*self.classes, None]
        flat = [names[i] for i in self.labels.tolist()]
        bounds = self.dataset.offsets.tolist()
        return [flat[a:b] for a, b in itertools.pairwise(bounds)]


def given_labels(X: Any, y: Any, method: str) -> Any:
    """The labels of sequences, which a block file holds itself; raises unless they are there once."""
    if (y is None) != isinstance(X, Blocks):
        rule = "must hold the labels of the sequences" if y is None else "must be None: a block file holds the labels"
        raise ValueError(f"'y' of {method} {rule}" + (", got None" if y is None else ""))
    return X.label_lists() if y is None else y


def is_block_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a block file, or looks like one; ``"-"`` is none."""
    if path == "-" or not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return is_block_head(file.read(_HEAD))


def is_block_head(head: bytes) -> bool:
    """Whether a block file begins so."""
    return head[8:9] == b"{" and f'"{KEY}"'.encode() in head[:_HEAD]


def block_checksum(data: StoredDataset, labels: NDArray[np.int32], b: int) -> int:
    """CRC-32 of all that belongs to a block."""
    first, last = (int(data.offsets[data.sequences[b + k]]) for k in (0, 1))
    return checksum_of(
        data.offsets[data.sequences[b] : data.sequences[b + 1] + 1] - first,
        labels[first:last],
        *(part for group in data.groups.values() for part in group.parts(b, first, last)),
    )


def checksum_of(*arrays: NDArray[Any]) -> int:
    """CRC-32 of arrays, one after another."""
    total = 0
    for x in arrays:
        total = zlib.crc32(np.ascontiguousarray(x).view(np.uint8).data, total)
    return total
