"""What labelled data asks of a model, counted part by part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crfkit.data.dataset import Layout, PairCounts, WeightRules
from crfkit.data.labels import collect_labels
from crfkit.features.encoders import Encoder


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Attributes, labels, and how often the data has them together; those of parts add up to that of the whole.

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
        encoder = self.encoder.copy()
        numbers = encoder.translate(other.encoder, grow=True)
        labels = collect_labels([self.labels, other.labels])
        place = {label: i for i, label in enumerate(labels)}
        mine, theirs = (np.array([place[x] for x in part.labels], np.int64) for part in (self, other))
        counts = self.counts.moved((None, None), mine, len(labels)) + other.counts.moved(numbers, theirs, len(labels))
        sizes = self.n_sequences + other.n_sequences, self.n_tokens + other.n_tokens
        return Vocabulary(encoder, labels, counts, *sizes)

    def cut(self, rule: WeightRules) -> tuple[Encoder, Layout]:
        """The encoder without attributes that get no weight, and the weights; nothing is added to either any more."""
        layout = Layout.of_counts(self.counts, self.encoder.n_attributes, rule)
        kept = [np.diff(ptr) > 0 for ptr in (layout.state_ptr, layout.edge_ptr)]
        if all(k.all() for k in kept):
            return self.encoder, layout
        return self.encoder.pruned(*kept), layout.without_empty_rows()
