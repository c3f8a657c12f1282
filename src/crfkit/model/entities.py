"""Entities from potentials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crfkit.chain.chunks import ChunkLabels, chunk_probabilities, likely_chunks
from crfkit.chain.inference import decode_flat
from crfkit.chain.potentials import Potentials
from crfkit.data.labels import Entity
from crfkit.data.tokens import Token


def find_entities(
    p: Potentials,
    labels: Sequence[Any],
    sequences: Sequence[Any],
    threshold: float | None = None,
    n_jobs: int | None = None,
) -> list[list[Entity]]:
    """The entities of a batch: those of the best labels, or all with a probability of at least ``threshold``.

    Parameters
    ----------
    p : Potentials
        A batch.
    labels : sequence
        Of the numbers in the potentials.
    sequences : sequences of tokens
        Those of the batch.
    """
    table = ChunkLabels(labels)
    if threshold is None:
        assert p.offsets is not None
        chunks = table.find(decode_flat(p, n_jobs), p.offsets)
        chances = chunk_probabilities(p, table, chunks, n_jobs)
    else:
        check_threshold(threshold)
        chunks, chances = likely_chunks(p, table, threshold, n_jobs)
    out: list[list[Entity]] = [[] for _ in range(len(p))]
    known, tokens = -1, []
    for i, kind, start, end, chance in zip(*(x.tolist() for x in (*chunks, chances)), strict=True):
        if i != known:
            known, tokens = i, sequences[i]
        out[i].append(Entity(table.kinds[kind], start, end, *_place(tokens[start:end], chance)))
    return out


def check_threshold(given: Any) -> None:
    """Raises ValueError unless the least probability of entities is a number above 0 and at most 1."""
    if isinstance(given, bool) or not isinstance(given, (int, float, np.number)) or not 0 < given <= 1:
        raise ValueError(f"'threshold' must be a number above 0 and at most 1, got {given!r}")


def _place(tokens: Sequence[Any], probability: float) -> tuple[str | None, float, int | None, int | None]:
    """Text, the probability, and characters; of rows, the first column counts."""
    words = [token[0] if isinstance(token, tuple) else token for token in tokens]
    first, last = words[0], words[-1]
    if isinstance(first, Token) and isinstance(last, Token) and first.source is last.source:
        return first.source[first.start : last.end], probability, first.start, last.end
    text = " ".join(words) if all(isinstance(word, str) for word in words) else None
    return text, probability, None, None
