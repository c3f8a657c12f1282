"""The attributes and labels of labelled data, counted part by part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crfkit.data.dataset import Layout, PairCounts, WeightRules
from crfkit.data.labels import collect_labels
from crfkit.features.encoders import Encoder
from crfkit.features.restoring import StoredEncoder


def same_file(a: Encoder, b: Encoder) -> bool:
    """Whether two encoders are those of the same block file."""
    return isinstance(a, StoredEncoder) and isinstance(b, StoredEncoder) and a.blocks.path == b.blocks.path


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Attributes, labels, and how often they occur together; the vocabularies of parts add up to that of the whole.

    Attributes
    ----------
    encoder : Encoder
        Knows all attributes.
    labels : tuple
    counts : PairCounts
    n_sequences, n_tokens : int
    """

    encoder: Encoder
    labels: tuple[Any, ...]
    counts: PairCounts
    n_sequences: int
    n_tokens: int

    def __add__(self, other: Vocabulary) -> Vocabulary:
        """That of two parts, numbered as if the data of the other followed."""
        sizes = self.n_sequences + other.n_sequences, self.n_tokens + other.n_tokens
        if same_file(self.encoder, other.encoder):
            return Vocabulary(self.encoder, self.labels, self.counts + other.counts, *sizes)
        encoder = self.encoder.copy()
        numbers = encoder.absorb(other.encoder)
        labels = collect_labels([self.labels, other.labels])
        place = {label: i for i, label in enumerate(labels)}
        mine, theirs = (np.array([place[x] for x in part.labels], np.int64) for part in (self, other))
        counts = self.counts.moved((None, None), mine, len(labels)) + other.counts.moved(numbers, theirs, len(labels))
        return Vocabulary(encoder, labels, counts, *sizes)

    def cut(self, rule: WeightRules) -> tuple[Encoder, Layout]:
        """The encoder without attributes that get no weight, and the weights; nothing is added to either any more."""
        layout = Layout.of_counts(self.counts, self.encoder.n_attributes, rule)
        if isinstance(self.encoder, StoredEncoder):  # its data has its numbers
            return self.encoder, layout
        kept = [np.diff(ptr) > 0 for ptr in (layout.state_ptr, layout.edge_ptr)]
        if all(k.all() for k in kept):
            return self.encoder, layout
        return self.encoder.pruned(*kept), layout.without_empty_rows()
