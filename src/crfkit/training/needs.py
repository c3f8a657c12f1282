"""Memory and disk space that training needs, from the sizes of the data and of the model."""

from __future__ import annotations

from typing import NamedTuple


class Sizes(NamedTuple):
    """Sizes of a data set and its model.

    Attributes
    ----------
    tokens, sequences : int
    entries : int
        Occurrences of attributes, over all tokens and transitions.
    local : int
        Distinct attributes of each block, added up over the blocks.
    listed : int
        Entries where each weight of a rare attribute counts as one.
    dense : int
        Attributes that have weights with so many labels that they are stored as a row of all labels.
    attributes, labels, weights : int
    """

    tokens: int
    sequences: int
    entries: int
    local: int
    listed: int
    dense: int
    attributes: int
    labels: int
    weights: int


class Needs(NamedTuple):
    """Bytes that training by L-BFGS takes; see :doc:`/large-data` for the arithmetic.

    Attributes
    ----------
    memory, memory_stored : int
        Peak anonymous memory with the data in memory, and on a block file.
    optimiser : int
        The part that grows with the weights.
    blocks, scratch, encoding : int
        Disk space of the block file, of the blocks as training needs them, and while the file is written.
    """

    memory: int
    memory_stored: int
    optimiser: int
    blocks: int
    scratch: int
    encoding: int

    @classmethod
    def of(cls, sizes: Sizes, threads: int) -> Needs:
        """The needs of sizes."""
        x = sizes
        optimiser = 100 * x.weights
        rows = 8 * (x.labels + 8) * x.dense  # of weights and of their gradient, in whole vectors
        blocks = 2 * x.entries + 6 * x.tokens + 4 * x.local + 8 * x.sequences + 10 * x.attributes
        scratch = 2 * x.listed + 8 * x.tokens + 5 * x.local
        model = optimiser + 6 * x.weights + rows + 4 * x.attributes
        stored = 45_000_000 + threads * (12 << 20) + model
        memory = 100_000_000 + optimiser + 30 * x.tokens + 8 * x.entries
        return cls(memory, stored, optimiser, blocks, scratch, 2 * blocks + 4 * x.entries + 40 * x.attributes)
