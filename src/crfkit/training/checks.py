"""Checks of training data before an optimiser sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit.base.numbers import PIECE, inner_tokens, pieces
from crfkit.base.parameters import check_number
from crfkit.chain.constraints import Constraints
from crfkit.chain.inference import reachable
from crfkit.chain.potentials import Potentials
from crfkit.data.dataset import Dataset
from crfkit.data.labels import Hints, scores_by, split_by_knowledge
from crfkit.data.sequences import rows_of


def class_weights(
    rule: str | Mapping[Any, float] | None,
    labels: Sequence[Any],
    numbers: NDArray[np.int32],
    offsets: NDArray[np.int64],
    counts: NDArray[np.int64] | None = None,
) -> NDArray[np.float64] | None:
    r"""Weights of sequences [S] by ``class_weight``: the mean over their known labels; 1 where none is known.

    ``"balanced"`` gives label j the weight :math:`N / (L N_j)`, with :math:`N_j` of the N known labels being j; these
    ``counts`` [L] are of ``numbers`` unless they are given.

    >>> class_weights({"b": 3}, ["a", "b"], np.array([0, 1, 0], np.int32), np.array([0, 2, 3]))
    array([2., 1.])
    """
    if rule is None:
        return None
    known = numbers >= 0
    if isinstance(rule, Mapping):
        for label, weight in rule.items():
            if label not in labels:
                raise ValueError(f"'class_weight' names the label {label!r}, which does not occur in the data")
            check_number("class_weight", str(label), weight, 0)
        by_label = np.array([float(rule.get(label, 1.0)) for label in labels])
    elif rule == "balanced":
        counts = np.bincount(numbers[known], minlength=len(labels)) if counts is None else counts
        by_label = counts.sum() / (max(1, np.count_nonzero(counts)) * np.maximum(counts, 1))
    else:
        raise ValueError(f"'class_weight' must be 'balanced', a dict of labels and weights, or None, got {rule!r}")
    if not np.isfinite(by_label).all():
        raise ValueError("'class_weight' must hold finite numbers")
    sequence = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[known]
    many = np.bincount(sequence, minlength=len(offsets) - 1)
    total = np.bincount(sequence, by_label[numbers[known]], minlength=len(offsets) - 1)
    return np.where(many > 0, total / np.maximum(many, 1), 1.0)


def sequence_weights(weights: ArrayLike | None, n: int) -> NDArray[np.float64] | None:
    """Weights of n sequences as an array, or None."""
    if weights is None:
        return None
    array = np.ascontiguousarray(weights, np.float64)
    if array.shape != (n,):
        raise ValueError(f"'sample_weight' must have shape ({n},), got {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any():
        raise ValueError("'sample_weight' must hold finite numbers >= 0")
    return array


def check_gold(numbers: NDArray[np.int32], data: Dataset, rules: Constraints, labels: Sequence[Any]) -> None:
    """Raises where the training labels break the rules: their likelihood would be zero."""
    for a, b in pieces(data.offsets, PIECE):
        offsets = data.offsets[a : b + 1]
        _check_piece(numbers[offsets[0] : offsets[-1]], offsets - offsets[0], a, rules, labels)


def _check_piece(
    numbers: NDArray[np.int32], offsets: NDArray[np.int64], number: int, rules: Constraints, labels: Sequence[Any]
) -> None:
    """The same for some sequences; ``number`` is that of the first."""
    filled = np.diff(offsets) > 0
    first, last = offsets[:-1][filled], offsets[1:][filled] - 1
    at = np.flatnonzero(inner_tokens(offsets))
    at = at[(numbers[at - 1] >= 0) & (numbers[at] >= 0)]
    first, last = first[numbers[first] >= 0], last[numbers[last] >= 0]
    faults = [
        (at[~rules.transitions[numbers[at - 1], numbers[at]]], "{before!r} may not be followed by {label!r}"),
        (first[~rules.start[numbers[first]]], "{label!r} may not begin a sequence"),
        (last[~rules.end[numbers[last]]], "{label!r} may not end a sequence"),
    ]
    for tokens, text in faults:
        if len(tokens):
            t = int(tokens[0])
            s = int(np.searchsorted(offsets, t, side="right")) - 1
            what = text.format(label=labels[numbers[t]], before=labels[numbers[t - 1]] if t else None)
            place = f"sequence {number + s}, position {t - int(offsets[s])}"
            raise ValueError(f"{place}: the labels break the constraints: {what}")


def check_partial(numbers: NDArray[np.int32], hints: Hints, data: Dataset, rules: Constraints) -> None:
    """Raises where no labelling fits both what is known and the rules."""
    _, part, _ = split_by_knowledge(data, numbers)
    if not len(part):
        return
    tokens, offsets = rows_of(data.offsets, part)
    scores = rules.as_scores()
    n = len(rules.start)
    p = Potentials(
        scores_by(numbers[tokens], hints),
        scores[: n * n].reshape(n, n),
        scores[n * n : n * n + n],
        scores[n * n + n :],
        offsets=offsets,
    )
    dead = np.isneginf(reachable(p))
    if dead.any():
        s = int(part[np.argmax(dead)])
        raise ValueError(f"sequence {s}: no labelling fits both the known labels and the constraints")
