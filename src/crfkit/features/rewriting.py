"""Joining and splitting block files, without encoding anything again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from crfkit.base.messages import counted, warn
from crfkit.data.blocks import Blocks
from crfkit.features.encoding import BlockWriter
from crfkit.features.restoring import StoredEncoder, empty_encoder, features_of

_BLOCKS = 64  # that are in memory at a time


def join_blocks(
    files: Sequence[Blocks], path: str | os.PathLike[str], min_freq: float = 0, n_jobs: int | None = None
) -> Blocks:
    """Writes the sequences of several block files into one, as if their texts had been encoded one after another.

    The files must have the same features. Attributes that occur less often than ``min_freq`` in all of them together
    are left out. Occurrences of an attribute that one file left out as too rare are missing from the joined file too.
    """
    require_same_features(files)
    cut = [blocks for blocks in files if blocks.min_freq > 1]
    if cut and len(files) > 1:
        warn(
            f"{cut[0].path}: attributes that occur fewer than {cut[0].min_freq:g} times were left out of the file, and "
            "are not counted; to join exactly, encode without a minimum frequency, and give it when joining",
            UserWarning,
        )
    return _rewrite([(blocks, 0, blocks.dataset.n_blocks) for blocks in files], path, min_freq, n_jobs)


def require_same_features(files: Sequence[Blocks]) -> None:
    """Raises ValueError for the first block file whose features are not those of the first."""
    for blocks in files[1:]:
        if features_of(blocks.encoder_config) != features_of(files[0].encoder_config):
            raise ValueError(f"{blocks.path}: its features are not those of {files[0].path}")


def split_blocks(blocks: Blocks, paths: Sequence[str | os.PathLike[str]], n_jobs: int | None = None) -> list[Blocks]:
    """Writes a block file's sequences into several, of about as many tokens, with the same vocabulary and labels."""
    n = blocks.dataset.n_blocks
    if len(paths) > n:
        raise ValueError(f"{blocks.path}: {counted(n, 'block')} cannot be split among {len(paths)} files")
    cuts = [n * k // len(paths) for k in range(len(paths) + 1)]
    parts = zip(paths, cuts, cuts[1:], strict=False)
    return [_rewrite([(blocks, a, b)], path, 0, n_jobs) for path, a, b in parts]


def _rewrite(
    parts: Sequence[tuple[Blocks, int, int]], path: str | os.PathLike[str], min_freq: float, n_jobs: int | None
) -> Blocks:
    """The blocks from one to another of several files, as one file."""
    some = parts[0][0]
    encoder = empty_encoder(some.encoder_config, some.encoder_arrays())
    known_of: dict[str, Any] = {"reading": some.reading, "features": some.features}
    writer = BlockWriter(path, encoder, min_freq=min_freq, n_jobs=n_jobs, **known_of)
    with writer.cleaned():
        _copy(parts, writer)
        return writer.finish(max(min_freq, *(blocks.min_freq for blocks, _, _ in parts)))


def _copy(parts: Sequence[tuple[Blocks, int, int]], writer: BlockWriter) -> None:
    """Makes a run of the blocks of each file."""
    number = 0
    for blocks, first, last in parts:
        own = [writer.labels.setdefault(label, len(writer.labels)) for label in blocks.classes]
        known = np.array([*own, -1], np.int32)
        run = writer.new_run(StoredEncoder(blocks).load())
        data = blocks.dataset
        for a in range(first, last, _BLOCKS):
            z = min(a + _BLOCKS, last)
            sequences = slice(int(data.sequences[a]), int(data.sequences[z]))
            begin, end = int(data.offsets[sequences.start]), int(data.offsets[sequences.stop])
            weights = None if blocks.weights is None else blocks.weights[sequences]
            sets = []
            if blocks.sets is not None:
                tokens, masks = blocks.sets
                which = np.flatnonzero((tokens >= begin) & (tokens < end))
                sets = [[int(tokens[k]) - begin, known[np.flatnonzero(masks[k])].tolist()] for k in which]
            run.add(number, blocks.part(a, z), known[blocks.labels[begin:end]], weights, sets)
            number += 1
        writer.close_run(run)
