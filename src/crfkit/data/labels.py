"""Labels to numbers.

A label is a str or an int; None where it is not known, or a set of labels of which any may be right. A sequence without
any known label may be None as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crfkit.base.messages import are_counted, counted
from crfkit.data.dataset import Dataset
from crfkit.data.sequences import Columns

__all__ = ["Tagging"]

#: Tokens without a label of which something is known [K], and the labels that each of them may have [K, L].
Sets = tuple[NDArray[np.int64], NDArray[np.bool_]]

#: What messages call a sequence and a token of it.
Names = tuple[str, str]
_NAMES = ("sequence", "token")


class Tagging(NamedTuple):
    """One labelling of a sequence and its probability."""

    labels: list[Any]
    probability: float


class Entity(NamedTuple):
    """A span of tokens with a label, and its probability.

    Attributes
    ----------
    label : label
        The type: X of B-X; a label without a tag as it is.
    start, end : int
        Tokens; ``end`` is the one after the last.
    text : str or None
        The words, as they stand in the text if the tokens know it, else with blanks between; None if tokens are
        attributes.
    probability : float
        That the labelling has a span of this type with these very ends.
    char_start, char_end : int or None
        Characters of the text, for tokens of :func:`crfkit.data.tokenize`.
    """

    label: Any
    start: int
    end: int
    text: str | None
    probability: float
    char_start: int | None = None
    char_end: int | None = None


class LabelLists(list[Any]):
    """Lists (or arrays) of labels that numpy takes as an array of lists, whatever their lengths.

    scikit-learn joins folds so.
    """

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        out = np.empty(len(self), object)
        for i, labels in enumerate(self):
            out[i] = labels
        return out


def in_label_order(labels: set[Any]) -> list[Any]:
    """In a fixed order: numbers by size, text by the alphabet, numbers first."""
    return sorted(labels, key=lambda x: (isinstance(x, str), x))


def _plain(label: Any) -> Any:
    """Python's own str or int for numpy's."""
    return label.item() if isinstance(label, np.generic) else label


def label_array(labels: Sequence[Any]) -> NDArray[Any]:
    """Labels as an array: of their own type if they share one, else of objects.

    >>> label_array(["a", "b"]), label_array(["a", 1])
    (array(['a', 'b'], dtype='<U1'), array(['a', 1], dtype=object))
    """
    if all(type(x) is type(labels[0]) and isinstance(x, (str, int, bool)) for x in labels):
        return np.array(labels)
    out = np.empty(len(labels), object)
    out[:] = labels
    return out


def found_labels(y: Any, unit: str = "sequence", kinds: tuple[type, ...] = (str, int)) -> set[Any]:
    """The distinct labels.

    >>> sorted(found_labels([["b", {"a", "c"}, None], None]))
    ['a', 'b', 'c']
    """
    found: set[Any] = set()
    if isinstance(y, Columns):
        found = {y.strings[int(i)] for i in np.unique(y.ids[:, -1])}
    else:
        for i, sequence in enumerate(y):
            if sequence is None:
                continue
            if isinstance(sequence, str) or not isinstance(sequence, Iterable):
                raise ValueError(f"labels of {unit} {i} must be a list, got {sequence!r}")
            for t, raw in enumerate(sequence):
                if raw is None:
                    continue
                if isinstance(raw, (set, frozenset)) and not raw:
                    raise ValueError(f"{unit} {i}, position {t}: a set of possible labels must not be empty")
                for one in raw if isinstance(raw, (set, frozenset)) else (raw,):
                    label = _plain(one)
                    if not isinstance(label, kinds) or label != label:
                        kind = type(label).__name__
                        raise ValueError(
                            f"{unit} {i}, position {t}: a label must be a str or an int, got {kind} {label!r}"
                        )
                    found.add(label)
    return found


def collect_labels(
    y: Any, known: Sequence[Any] = (), unit: str = "sequence", kinds: tuple[type, ...] = (str, int)
) -> tuple[Any, ...]:
    """The distinct labels: the known ones first, then the new ones in order.

    >>> collect_labels([["b", "a"], ["c"]], known=["c"])
    ('c', 'a', 'b')
    """
    found = found_labels(y, unit, kinds)
    labels = (*known, *in_label_order(found - set(known)))
    if not labels:
        raise ValueError("there is no label to learn")
    return labels


def _check_lengths(y: Any, offsets: NDArray[np.int64], names: Names) -> None:
    unit, part = names
    lengths = np.diff(offsets)
    if len(y) != len(lengths):
        raise ValueError(f"there {are_counted(len(lengths), unit)}, but labels for {len(y)}")
    if isinstance(y, Columns):
        given = y.lengths
    else:
        given = np.array([n if s is None else len(s) for s, n in zip(y, lengths, strict=True)], np.int64)
    wrong = np.flatnonzero(given != lengths)
    if len(wrong):
        i = int(wrong[0])
        raise ValueError(f"{unit} {i} has {counted(lengths[i], part)}, but {counted(given[i], 'label')}")


def _number(label: Any, number: Mapping[Any, int], place: str) -> int:
    try:
        return number[_plain(label)]
    except (KeyError, TypeError):
        raise ValueError(f"{place}: label {label!r} is not one of the model's") from None


def label_numbers(
    y: Any, labels: Sequence[Any], offsets: NDArray[np.int64], names: Names = _NAMES
) -> NDArray[np.int32]:
    """Numbers of the labels of all tokens, [N]; -1 where none or several are given.

    Lengths are checked against the tokens'.
    """
    _check_lengths(y, offsets, names)
    number = {label: i for i, label in enumerate(labels)}
    if isinstance(y, Columns):
        table = np.full(len(y.strings), -1, np.int32)
        for label, i in number.items():
            at = y.strings.find(label)
            if at >= 0:
                table[at] = i
        return table[y.ids[:, -1]]
    flat: list[int] = []
    for i, (sequence, length) in enumerate(zip(y, np.diff(offsets).tolist(), strict=True)):
        if sequence is None:
            flat += [-1] * length
            continue
        try:
            flat += [number[_plain(label)] for label in sequence]
        except (KeyError, TypeError):
            place = f"{names[0]} {i}"
            flat += [
                -1 if label is None or isinstance(label, (set, frozenset)) else _number(label, number, place)
                for label in sequence
            ]
    return np.array(flat, dtype=np.int32)


def label_sets(y: Any, labels: Sequence[Any], offsets: NDArray[np.int64], names: Names = _NAMES) -> Sets:
    """Tokens whose label is one of a set [K], and the sets [K, L]."""
    number = {label: i for i, label in enumerate(labels)}
    tokens: list[int] = []
    rows: list[list[int]] = []
    if not isinstance(y, Columns):
        for i, (sequence, first) in enumerate(zip(y, offsets[:-1].tolist(), strict=True)):
            for t, label in enumerate(sequence if sequence is not None else ()):
                if isinstance(label, (set, frozenset)):
                    tokens.append(first + t)
                    rows.append([_number(x, number, f"{names[0]} {i}") for x in label])
    mask = np.zeros((len(rows), len(labels)), bool)
    for k, row in enumerate(rows):
        mask[k, row] = True
    return np.array(tokens, np.int64), mask


def allowed_labels(y: Any, labels: Sequence[Any], offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Labels that each token may have, [N, L].

    >>> allowed_labels([["a", None, {"a", "b"}]], ["a", "b", "c"], np.array([0, 3])).astype(int).tolist()
    [[1, 0, 0], [1, 1, 1], [1, 1, 0]]
    """
    known = collect_labels(y, labels)
    if len(known) > len(labels):
        raise ValueError(f"label {known[len(labels)]!r} is not one of the model's")
    return allowed_by(label_numbers(y, labels, offsets), label_sets(y, labels, offsets), len(labels))


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


def allowed_by(labels: NDArray[np.integer], sets: Sets, n_labels: int) -> NDArray[np.bool_]:
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
