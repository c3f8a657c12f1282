"""What workers do with a partition: encode it, count what it holds, keep it for training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from crfkit.base.checkpoints import digest
from crfkit.chain.constraints import Constraints
from crfkit.data.blocks import Blocks
from crfkit.data.dataset import Dataset, Layout, PairCounts
from crfkit.data.labels import Hints, collect_labels, label_numbers
from crfkit.data.readers import DataError
from crfkit.data.sequences import check_sequences
from crfkit.features.encoders import Encoder, FeatureSource, make_encoder, plain_lists
from crfkit.features.hashing import HashedEncoder
from crfkit.features.restoring import StoredEncoder
from crfkit.features.vocabulary import Vocabulary, same_file
from crfkit.training.checks import check_gold, check_partial, class_weights, sequence_weights
from crfkit.training.objective import Problem
from crfkit.training.partitions import Partition


@dataclass(frozen=True, eq=False)
class Part:
    """What a partition holds: sequences, labels, weights of the sequences; keys of the first and last sequence."""

    X: Any
    y: Any
    weights: Any = None
    ends: tuple[Any, Any] | None = None


class BlockRange(NamedTuple):
    """Blocks of a block file, from ``first`` to ``last - 1``."""

    path: str
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Encoded:
    """A partition in numbers of its own; None where it holds no sequence."""

    vocabulary: Vocabulary | None
    data: Dataset | None = None
    numbers: NDArray[np.int32] | None = None
    hints: Hints | None = None
    weights: NDArray[np.float64] | None = None
    ends: tuple[Any, Any] | None = None


@dataclass(frozen=True, eq=False)
class Facts:
    """What is known of a partition where training is led."""

    n_sequences: int
    n_tokens: int
    unknown: bool
    weighted: bool
    ends: tuple[Any, Any] | None
    digest: str


@dataclass(frozen=True, eq=False)
class Frozen:
    """The vocabulary of all partitions, cut; and the settings of training.

    ``first`` is the first partition with sequences.
    """

    encoder: Encoder
    labels: tuple[Any, ...]
    layout: Layout
    constraints: Constraints | None
    class_weight: Any
    label_counts: NDArray[np.int64]
    n_sequences: int
    first: int
    c2: float
    dtype: str
    sequential: bool


def new_encoder(features: FeatureSource, hash_bits: int | None, X: Any) -> Encoder:
    """An encoder without a vocabulary, or one that needs none."""
    encoder = make_encoder(features, X)
    return encoder if hash_bits is None else HashedEncoder(encoder, hash_bits)


def encode(part: Part, make: Callable[[Any], Encoder], number: int) -> Encoded:
    """A partition, encoded with a vocabulary of its own."""
    with naming(number):
        if isinstance(part.X, BlockRange):
            return _of_blocks(part.X)
        X, y = plain_lists(part.X), plain_lists(part.y)
        if y is None:
            raise ValueError("there are no labels to learn from")
        check_sequences(X, text=True)
        if len(X) == 0:
            return Encoded(None)
        encoder = make(X)
        data = encoder.encode(X, True, 1)
        known = any(row is not None and any(x is not None for x in row) for row in y)
        labels = collect_labels(y) if known else ()
        numbers, known_labels = label_numbers(y, labels, data.offsets)
        hints = known_labels if len(numbers) and numbers.min() < 0 else None
        counts = PairCounts.of(data, numbers, len(labels), encoder.n_attributes, hints)
        weights = sequence_weights(part.weights, data.n_sequences)
        vocabulary = Vocabulary(encoder, labels, counts, data.n_sequences, data.n_tokens)
        return Encoded(vocabulary, data, numbers, hints, weights, part.ends)


def _of_blocks(some: BlockRange) -> Encoded:
    """Some blocks of a block file, where they are."""
    blocks = Blocks(some.path)
    data = blocks.dataset.some(some.first, some.last)
    start = int(blocks.dataset.sequences[some.first])
    first = int(blocks.dataset.offsets[start])
    flat = blocks.part(some.first, some.last)
    known, hints = blocks.known()
    numbers, n_labels = known[first : first + data.n_tokens], len(blocks.classes)
    if numbers.min(initial=0) >= 0:
        hints = None
    weights = None if blocks.weights is None else blocks.weights[start : start + data.n_sequences]
    counts = PairCounts.of(flat, numbers, n_labels, blocks.attributes, hints)
    vocabulary = Vocabulary(StoredEncoder(blocks), blocks.classes, counts, data.n_sequences, data.n_tokens)
    return Encoded(vocabulary, data, numbers, hints, weights)


class naming:
    """Errors about the data name the partition."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> None:
        """Nothing to begin with."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, (ValueError, OSError)) and "(partition " not in str(error):
            named = isinstance(error, OSError) and error.filename is not None
            text = f"{error.filename}: {error.strerror}" if named else error  # type: ignore[union-attr]
            raise DataError(f"{text} (partition {self.number})") from error


def vocabulary_of(encoded: Encoded) -> Vocabulary | None:
    """The vocabulary of a partition, which is sent to where it is merged with others."""
    return encoded.vocabulary


def merge(a: Vocabulary | None, b: Vocabulary | None) -> Vocabulary | None:
    """That of both; in the order of the partitions."""
    return b if a is None else a if b is None else a + b


def facts_of(encoded: Encoded, full: bool) -> Facts:
    """What to tell of a partition; ``full``: with a digest of all it holds."""
    e, v = encoded, encoded.vocabulary
    if v is None or e.data is None:
        return Facts(0, 0, False, False, None, "")
    found = digest([*e.data.digested, e.numbers, e.hints, e.weights, v.labels]) if full else ""
    return Facts(v.n_sequences, v.n_tokens, e.hints is not None, e.weights is not None, e.ends, found)


#: Partitions in this process, which share its threads.
_HELD: WeakSet[Held] = WeakSet()


class Held(Partition):
    """A partition that stays in its process; whoever gets a copy of it gets nothing.

    Dask would otherwise write it to disk, or send it around, where making it anew is cheaper.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        _HELD.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Moved, ()

    def __sizeof__(self) -> int:
        return 1000


class Moved:
    """What is left of a partition that was moved."""


class PartitionMoved(RuntimeError):
    """A partition is not where it was made."""


def hold(encoded: Encoded, frozen: Frozen, number: int) -> Held:
    """A partition in the numbers of the whole, ready for training."""
    f, e, v = frozen, encoded, encoded.vocabulary
    if v is None or e.data is None or e.numbers is None:
        empty = Dataset(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(0, np.uint32))
        return Held(Problem(f.layout, empty, np.zeros(0, np.int32)), 0.0, f.sequential)
    with naming(number):
        place = {label: i for i, label in enumerate(f.labels)}
        moved = np.array([*(place[label] for label in v.labels), -1], np.int32)
        numbers, hints = np.where(e.numbers < 0, e.numbers, moved[np.maximum(e.numbers, -1)]), None
        if e.hints is not None:
            hints = np.full((len(e.hints), len(f.labels)), -np.inf)
            hints[:, moved[:-1]] = e.hints
        data = e.data
        if not same_file(f.encoder, v.encoder):
            own = v.encoder.load() if isinstance(v.encoder, StoredEncoder) else v.encoder
            state, edge = f.encoder.translate(own)
            edge_attr = None if data.edge_attr is None else edge[data.edge_attr] if len(edge) else data.edge_attr
            attr = state[data.attr] if len(state) else data.attr
            data = Dataset(data.offsets, data.ptr, attr, data.value, data.edge_ptr, edge_attr)
        weights = e.weights
        by_class = class_weights(f.class_weight, f.labels, numbers, data.offsets, f.label_counts)
        if by_class is not None:
            weights = by_class if weights is None else weights * by_class
        if f.constraints is not None:
            check_gold(numbers, data, f.constraints, f.labels)
            if hints is not None:
                check_partial(numbers, hints, data, f.constraints)
    given = f.layout, data.without_zeros(), numbers, hints, weights, f.constraints
    share = v.n_sequences / f.n_sequences
    c2 = f.c2 * (share if f.sequential else number == f.first)
    return Held(Problem(*given, c2=c2, dtype=f.dtype, n_jobs=_threads()), share, f.sequential)


def call(held: Any, method: str, *given: Any) -> NDArray[np.float64]:
    """A method of a partition, on its share of the worker's threads."""
    if isinstance(held, Moved):
        raise PartitionMoved
    held.use(_threads())
    out: NDArray[np.float64] = getattr(held, method)(*given)
    return out


def _threads() -> int:
    """Threads for a task: Dask runs one task per thread, as long as there are that many partitions."""
    from distributed import get_worker

    try:
        slots = int(get_worker().state.nthreads)
    except ValueError:  # no worker: this process has all cores
        return -1
    return max(1, slots // max(1, min(slots, len(_HELD))))
