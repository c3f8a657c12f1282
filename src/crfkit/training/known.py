"""What is known of the labels of sequences."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crfkit.data.dataset import Dataset

__all__ = ["Sets", "allowed_by", "split_by_knowledge"]

#: Tokens without a label of which something is known [K], and the labels that each of them may have [K, L].
Sets = tuple[NDArray[np.int64], NDArray[np.bool_]]


def split_by_knowledge(
    data: Dataset, labels: NDArray[np.int32], set_tokens: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of the sequences whose labels are all known, known in part, and not known at all."""
    sequence = np.repeat(np.arange(data.n_sequences), np.diff(data.offsets))
    certain = np.bincount(sequence[labels >= 0], minlength=data.n_sequences)
    hints = certain + np.bincount(sequence[set_tokens], minlength=data.n_sequences)
    full = certain == np.diff(data.offsets)
    unknown = ~full & (hints == 0)
    return np.flatnonzero(full), np.flatnonzero(~full & ~unknown), np.flatnonzero(unknown)


def allowed_by(labels: NDArray[np.int32], sets: Sets, n_labels: int) -> NDArray[np.bool_]:
    """Labels that each token may have, [N, L]; -1 in ``labels`` is one that is not known for certain.

    >>> known = np.array([0, -1, -1], np.int32)
    >>> allowed_by(known, (np.array([2]), np.array([[True, True, False]])), 3).astype(int).tolist()
    [[1, 0, 0], [1, 1, 1], [1, 1, 0]]
    """
    allowed = np.ones((len(labels), n_labels), bool)
    single = np.flatnonzero(labels >= 0)
    allowed[single] = False
    allowed[single, labels[single]] = True
    allowed[sets[0]] = sets[1]
    return allowed
