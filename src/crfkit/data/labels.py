"""Labels to numbers.

A label is a str or an int; None if it is unknown; a set of labels, any of which may be right; or a soft label, a dict
of labels and weights. A sequence with no known label may be None as a whole.

In arrays of numbers, -1 is a label of which nothing is known, and -2 - k stands for row k of a table of hints: what is
known of a label, as the logarithm of its weight q(label), minus infinity where it is impossible. The likelihood sums
p(y | x) times the product of q(y_t) over all labellings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crfkit.base.messages import are_counted, counted
from crfkit.base.parameters import check_text
from crfkit.data.dataset import Dataset, check_label_count
from crfkit.data.sequences import Columns

__all__ = ["Tagging"]

#: Logarithms of the weights of all labels, [K, L].
Hints = NDArray[np.float64]

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
        Token positions; ``end`` is the one after the last.
    text : str or None
        The words, as in the text if the tokens carry offsets, else joined by spaces; None if tokens are
        attributes.
    probability : float
        Probability that the labelling has a span of this type with exactly these boundaries.
    char_start, char_end : int or None
        Character positions in the text, for tokens from :func:`crfkit.data.tokenize`.
    """

    label: Any
    start: int
    end: int
    text: str | None
    probability: float
    char_start: int | None = None
    char_end: int | None = None


class LabelLists(list[Any]):
    """Lists (or arrays) of labels that numpy treats as an array of lists, whatever their lengths.

    scikit-learn needs this to join folds.
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
        found = {y.strings[int(i)] for i in np.flatnonzero(np.bincount(y.ids[:, -1]))}
    else:
        for i, sequence in enumerate(y):
            if sequence is None:
                continue
            if isinstance(sequence, str) or not isinstance(sequence, Iterable):
                raise ValueError(f"labels of {unit} {i} must be a list, got {sequence!r}")
            for t, raw in enumerate(sequence):
                if raw is None:
                    continue
                several = isinstance(raw, (set, frozenset, Mapping))
                if several and not raw:
                    raise ValueError(f"{unit} {i}, position {t}: a set of possible labels must not be empty")
                for one in raw if several else (raw,):
                    label = _plain(one)
                    if not isinstance(label, kinds) or label != label:
                        kind = type(label).__name__
                        raise ValueError(
                            f"{unit} {i}, position {t}: a label must be a str or an int, got {kind} {label!r}"
                        )
                    found.add(label)
    check_label_texts(found)
    return found


def check_label_texts(labels: Iterable[Any]) -> None:
    """Raises if a label cannot be written to a model file."""
    for label in labels:
        if isinstance(label, str):
            check_text(label, "a label")


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
        raise ValueError("there are no labels to learn from")
    if len(labels) > len(known):
        check_label_count(len(labels))
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
        raise ValueError(f"{place}: label {label!r} is not one of the model's labels") from None


def label_numbers(
    y: Any, labels: Sequence[Any], offsets: NDArray[np.int64], names: Names = _NAMES
) -> tuple[NDArray[np.int32], Hints]:
    """Numbers of the labels of all tokens [N], and the hints [K, L] that some of them stand for.

    Lengths are checked against the tokens'. Equal sets share a hint.

    >>> y = [["a", None, {"a", "b"}, {"a": 3, "c": 1}]]
    >>> numbers, hints = label_numbers(y, ["a", "b", "c"], np.array([0, 4]))
    >>> numbers.tolist(), np.exp(hints).round(2).tolist()
    ([0, -1, -2, -3], [[1.0, 1.0, 0.0], [0.75, 0.0, 0.25]])
    """
    _check_lengths(y, offsets, names)
    hints = _HintTable(labels)
    number = hints.number
    if isinstance(y, Columns):
        table = np.full(len(y.strings), -1, np.int32)
        for label, i in number.items():
            at = y.strings.find(label)
            if at >= 0:
                table[at] = i
        return table[y.ids[:, -1]], hints.table()
    flat: list[int] = []
    for i, (sequence, length) in enumerate(zip(y, np.diff(offsets).tolist(), strict=True)):
        if sequence is None:
            flat += [-1] * length
            continue
        try:
            flat += [number[_plain(label)] for label in sequence]
        except (KeyError, TypeError):
            flat += [hints.code(label, f"{names[0]} {i}, position {t}") for t, label in enumerate(sequence)]
    return np.array(flat, dtype=np.int32), hints.table()


class _HintTable:
    """Collects the hints of sets and of soft labels.

    A label that occurs several times among the labels has as many states; only the label is known, not its state.
    """

    def __init__(self, labels: Sequence[Any]) -> None:
        self.states: dict[Any, list[int]] = {}
        for i, label in enumerate(labels):
            self.states.setdefault(label, []).append(i)
        self.n_labels = len(labels)
        self.rows: list[NDArray[np.float64]] = []
        self.sets: dict[frozenset[Any], int] = {}
        #: of each label: its number, or the hint of its states
        self.number = {
            label: states[0] if len(states) == 1 else self._add({label: 1.0}) for label, states in self.states.items()
        }

    def table(self) -> Hints:
        """All hints."""
        return np.array(self.rows).reshape(len(self.rows), self.n_labels)

    def code(self, label: Any, place: str) -> int:
        """The number of a label, or of what is known of it."""
        if label is None:
            return -1
        several = isinstance(label, (set, frozenset, Mapping))
        for one in label if several else (label,):
            if one not in self.number and _plain(one) not in self.number:
                raise ValueError(f"{place}: label {one!r} is not one of the model's labels")
        if isinstance(label, Mapping):
            return self._add(distribution(label, place))
        if not several:
            return self.number[_plain(label)]
        key = frozenset(_plain(one) for one in label)
        if key not in self.sets:
            self.sets[key] = self._add(dict.fromkeys(key, 1.0))
        return self.sets[key]

    def _add(self, weights: Mapping[Any, float]) -> int:
        row = np.full(self.n_labels, -np.inf)
        for label, weight in weights.items():
            if weight > 0:
                row[self.states[_plain(label)]] = np.log(weight)
        self.rows.append(row)
        return -1 - len(self.rows)


def distribution(soft: Mapping[Any, float], place: str) -> dict[Any, float]:
    """The weights of a soft label, which sum to one."""
    for label, weight in soft.items():
        if isinstance(weight, bool) or not isinstance(weight, (int, float, np.number)):
            raise ValueError(f"{place}: the weight of label {label!r} must be a number, got {weight!r}")
    total = float(sum(soft.values()))
    if not (0 < total < np.inf and all(weight >= 0 for weight in soft.values())):
        raise ValueError(f"{place}: weights of labels must be >= 0, finite, and not all 0, got {dict(soft)!r}")
    return {label: float(weight) / total for label, weight in soft.items()}


def by_label(chances: NDArray[Any], labels: Sequence[Any]) -> NDArray[Any]:
    """Probabilities of states [..., n] added up to those of the distinct labels [..., L].

    >>> by_label(np.array([[0.1, 0.2, 0.7]]), ["A", "B", "A"]).tolist()
    [[0.7999999999999999, 0.2]]
    """
    distinct = list(dict.fromkeys(labels))
    if len(distinct) == len(labels):
        return chances
    place = {label: i for i, label in enumerate(distinct)}
    out = np.zeros((*chances.shape[:-1], len(distinct)), chances.dtype)
    for state, label in enumerate(labels):
        out[..., place[label]] += chances[..., state]
    return out


_CLASSES = 101  # most labels, or classes of them, of which all triples can have weights


def label_classes(labels: Sequence[Any], known: Sequence[int] = ()) -> tuple[int, ...]:
    """Class of each label: itself, or with more than 101 labels, those that share a prefix.

    The prefixes are as long as possible with at most 101 classes. ``known``: classes of the first labels, to keep.

    >>> label_classes(["a", "b", "c"]), len(set(label_classes([f"{x}{y}" for x in "ab" for y in range(90)])))
    ((0, 1, 2), 20)
    """
    own = tuple(range(len(labels)))
    if not all(isinstance(label, str) for label in labels) or (not known and len(labels) <= _CLASSES):
        return own
    if tuple(known) == own[: len(known)] and known:
        return own
    best = own
    for n in range(1, max(map(len, labels), default=1) + 1):
        number: dict[str, int] = {}
        classes = tuple(number.setdefault(label[:n], len(number)) for label in labels)
        if known and classes[: len(known)] == tuple(known):
            return classes
        if len(number) > _CLASSES:
            break
        best = classes
    return best


def label_scores(y: Any, labels: Sequence[Any], offsets: NDArray[np.int64]) -> Hints:
    """What is known of each token's label, as what it adds to the scores, [N, L].

    >>> y = [["a", None, {"a", "b"}]]
    >>> label_scores(y, ["a", "b", "c"], np.array([0, 3])).tolist()
    [[0.0, -inf, -inf], [0.0, 0.0, 0.0], [0.0, 0.0, -inf]]
    """
    known = collect_labels(y, labels)
    if len(known) > len(labels):
        raise ValueError(f"label {known[len(labels)]!r} is not one of the model's labels")
    return scores_by(*label_numbers(y, labels, offsets))


def allowed_labels(y: Any, labels: Sequence[Any], offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Labels that each token may have, [N, L], where there are no soft labels.

    >>> allowed_labels([["a", None, {"a", "b"}]], ["a", "b", "c"], np.array([0, 3])).astype(int).tolist()
    [[1, 0, 0], [1, 1, 1], [1, 1, 0]]
    """
    scores = label_scores(y, labels, offsets)
    require_hard(scores)
    allowed: NDArray[np.bool_] = scores == 0
    return allowed


def require_hard(hints: Hints, message: str = "soft labels (dicts of labels and weights) are for CRF only") -> None:
    """Raises if some of the hints are soft labels."""
    if len(hints) and not np.isin(hints, (0.0, -np.inf)).all():
        raise ValueError(message)


def split_by_knowledge(
    data: Dataset, labels: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of the sequences whose labels are all known, known in part, and not known at all."""
    sequence = np.repeat(np.arange(data.n_sequences), np.diff(data.offsets))
    certain = np.bincount(sequence[labels >= 0], minlength=data.n_sequences)
    hints = certain + np.bincount(sequence[labels < -1], minlength=data.n_sequences)
    full = certain == np.diff(data.offsets)
    unknown = ~full & (hints == 0)
    return np.flatnonzero(full), np.flatnonzero(~full & ~unknown), np.flatnonzero(unknown)


def scores_by(labels: NDArray[np.integer], hints: Hints) -> Hints:
    """What numbers and hints add to the scores of the labels, [N, L].

    >>> scores_by(np.array([0, -1, -2], np.int32), np.array([[-1.0, -np.inf, 0.0]])).tolist()
    [[0.0, -inf, -inf], [0.0, 0.0, 0.0], [-1.0, -inf, 0.0]]
    """
    scores = np.zeros((len(labels), hints.shape[1]))
    single = np.flatnonzero(labels >= 0)
    scores[single] = -np.inf
    scores[single, labels[single]] = 0.0
    some = np.flatnonzero(labels < -1)
    scores[some] = hints[-2 - labels[some]]
    return scores
