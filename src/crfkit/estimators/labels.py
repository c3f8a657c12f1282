"""Labels to numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit.data.sequences import Columns

__all__ = ["LabelLists", "collect_labels", "label_numbers"]


class LabelLists(list[list[Any]]):
    """Lists of labels that numpy takes as an array of lists, whatever their lengths; scikit-learn joins folds so."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        out = np.empty(len(self), object)
        for i, labels in enumerate(self):
            out[i] = labels
        return out


def _sorted(labels: set[Any]) -> list[Any]:
    """In a fixed order: numbers by size, text by the alphabet, numbers first."""
    return sorted(labels, key=lambda x: (isinstance(x, str), x))


def _plain(label: Any) -> Any:
    """Python's own str or int for numpy's."""
    return label.item() if isinstance(label, np.generic) else label


def collect_labels(y: Any, known: Sequence[Any] = ()) -> tuple[Any, ...]:
    """The distinct labels: the known ones first, then the new ones in order.

    >>> collect_labels([["b", "a"], ["c"]], known=["c"])
    ('c', 'a', 'b')
    """
    found: set[Any] = set()
    if isinstance(y, Columns):
        found = {y.strings[int(i)] for i in np.unique(y.ids[:, -1])}
    else:
        for i, sequence in enumerate(y):
            if isinstance(sequence, str):
                raise ValueError(f"labels of sequence {i} must be a list, got a str")
            for t, raw in enumerate(sequence):
                label = _plain(raw)
                if not isinstance(label, (str, int)):
                    raise ValueError(
                        f"sequence {i}, position {t}: a label must be a str or an int, got {type(label).__name__}"
                    )
                found.add(label)
    labels = (*known, *_sorted(found - set(known)))
    if not labels:
        raise ValueError("there is no label to learn")
    return labels


def label_numbers(y: Any, labels: Sequence[Any], offsets: NDArray[np.int64]) -> NDArray[np.int32]:
    """Numbers of the labels of all tokens, [N]; lengths are checked against the tokens'."""
    lengths = np.diff(offsets)
    given = y.lengths if isinstance(y, Columns) else np.array([len(s) for s in y], np.int64)
    if len(given) != len(lengths):
        raise ValueError(f"there are {len(lengths)} sequences, but labels for {len(given)}")
    wrong = np.flatnonzero(given != lengths)
    if len(wrong):
        i = int(wrong[0])
        raise ValueError(f"sequence {i} has {lengths[i]} tokens, but {given[i]} labels")
    number = {label: i for i, label in enumerate(labels)}
    if isinstance(y, Columns):
        table = np.full(len(y.strings), -1, np.int32)
        for label, i in number.items():
            at = y.strings.find(label)
            if at >= 0:
                table[at] = i
        return table[y.ids[:, -1]]
    flat = [number[_plain(label)] for sequence in y for label in sequence]
    return np.array(flat, dtype=np.int32)
