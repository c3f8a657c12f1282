"""Memory and disk space that training needs, from the sizes of the data and of the model."""

from __future__ import annotations

from typing import NamedTuple

from crfkit import _core
from crfkit.training.optimiser import Algorithm

_FREED = 16_000_000  # bytes that the allocator keeps, at most, of what was freed before training begins
_ALONE = 34_500_000  # of a process that trains sequence by sequence, with Python and numpy
_RUN = 8_000_000  # tokens that a thread encodes with a vocabulary of its own, or fewer


def _process(labels: int, threads: int) -> int:
    """Bytes of Python, numpy and the working space of threads."""
    return 28_500_000 + 20_000 * labels + threads * (5_300_000 + 27_000 * labels)


class Sizes(NamedTuple):
    """Sizes of a data set and its model.

    Attributes
    ----------
    tokens, sequences : int
    entries : int
        Occurrences of attributes, over all tokens and transitions.
    local : int
        Distinct attributes of each block, added up over the blocks.
    listed, spread : int
        Entries where each weight of a rare attribute counts as one: in blocks, and sequence by sequence.
    dense : int
        Attributes that have weights with so many labels that they are stored as a row of all labels.
    rows : int
        Numbers in a vector of weights of an optimiser that goes sequence by sequence: these rows, and single weights.
    attributes, labels, weights : int
    seen : int
        Attributes before rare ones are left out.
    """

    tokens: int
    sequences: int
    entries: int
    local: int
    listed: int
    spread: int
    dense: int
    rows: int
    attributes: int
    labels: int
    weights: int
    seen: int


class Needs(NamedTuple):
    """Bytes that training takes; see :doc:`/large-data` for the arithmetic.

    Attributes
    ----------
    memory, memory_stored : int
        Peak anonymous memory with the data in memory, and on a block file.
    optimiser : int
        The part that grows with the weights.
    blocks, scratch : int
        Disk space of the block file, and of the blocks as training needs them.
    """

    memory: int
    memory_stored: int
    optimiser: int
    blocks: int
    scratch: int

    @classmethod
    def of(cls, x: Sizes, algorithm: Algorithm, threads: int, window: int | None = None) -> Needs:
        """The needs of sizes; ``window`` is the number of blocks that a stochastic optimiser holds."""
        blocks = 2 * x.entries + 6 * x.tokens + 4 * x.local + 8 * x.sequences + 10 * x.attributes
        optimiser = algorithm.bytes_per_weight * x.weights
        if not algorithm.sequential:
            threads = min(threads, -(-x.tokens // _core.tokens_per_block(x.labels)))  # one block each, at least
            model = optimiser + 6 * x.weights + 8 * (x.labels + 8) * x.dense + 4 * x.attributes
            base = _process(x.labels, threads) + min(_FREED, 32 * x.weights)
            base += threads * algorithm.bytes_per_pair * x.labels**2
            scratch = 2 * x.listed + 8 * x.tokens + 5 * x.local
            # most is held where the data is there as arrays and in blocks, or later, with the optimiser's vectors
            arrays = _process(x.labels, 0) + 37 * x.tokens + 4 * x.entries + 41 * x.seen + 4 * x.weights + scratch
            later = base + optimiser + 37 * x.tokens + 2 * x.listed + 6 * x.local + 30 * x.seen
            return cls(5_000_000 + max(arrays, later), base + model, optimiser, blocks, scratch)
        optimiser += 4 * algorithm.vectors * x.rows
        width = -(-x.labels // 8) * 8
        data = 4 * x.entries + 22 * x.tokens + 8 * x.sequences + 8 * x.spread
        data += algorithm.keeps_marginals * 4 * width * (x.tokens + x.labels * x.sequences)
        share = 1.0 if window is None else window * _core.tokens_per_block(x.labels) / max(x.tokens, 1)
        base = _ALONE + optimiser + 9 * x.weights + 8 * x.sequences  # the order of a pass
        return cls(base + data + 30 * x.tokens, base + min(data, int(1.7 * share * data)), optimiser, blocks, 0)


class EncodingNeeds(NamedTuple):
    """Bytes that encoding text takes: peak anonymous memory, and disk space until the block file is done."""

    memory: int
    disk: int

    @classmethod
    def of(cls, x: Sizes, blocks: int, power: float, threads: int, memory: int) -> EncodingNeeds:
        """The needs of sizes.

        Parameters
        ----------
        x : Sizes
        blocks : int
            Size of the block file.
        power : float
            How the number of attributes grows with that of tokens.
        threads, memory : int
            As they are given to the encoder.
        """
        part = min(x.tokens / threads, _RUN) / max(x.tokens, 1)  # of the tokens, that a thread has at a time
        runs = min(threads * x.seen * part**power, max(memory, 64 << 20) / 48)
        held = max(72 * runs, 90 * x.attributes)
        return cls(
            _process(x.labels, threads) + _FREED // 2 + int(held), 2 * blocks + 4 * x.entries + 40 * x.attributes
        )
