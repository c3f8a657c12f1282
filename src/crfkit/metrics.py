"""Scores of predicted labels: tokens, sequences, and chunks as conlleval counts them."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit.base.messages import counted
from crfkit.chain.constraints import TAGS, chunk_part, goes_on
from crfkit.data.sequences import Columns

__all__ = [
    "Report",
    "accuracy_scorer",
    "confusion",
    "evaluate",
    "f1_scorer",
    "sequence_accuracy",
    "span_scores",
    "spans",
    "token_accuracy",
]

Labels = Sequence[Sequence[Any]]


class Span(NamedTuple):
    """A chunk of a sequence: its type, first token, and the token after its last."""

    kind: str
    start: int
    end: int


class Score(NamedTuple):
    """Precision, recall and their harmonic mean; ``support`` is the number of true chunks."""

    precision: float
    recall: float
    f1: float
    support: int
    predicted: int
    correct: int

    @classmethod
    def of_counts(cls, true: int, predicted: int, correct: int) -> Score:
        """From counts; 0 where there is nothing to divide by."""
        precision = correct / predicted if predicted else 0.0
        recall = correct / true if true else 0.0
        f1 = 2 * correct / (true + predicted) if correct else 0.0
        return cls(precision, recall, f1, true, predicted, correct)

    @classmethod
    def mean(cls, scores: Sequence[Score], weights: Sequence[float]) -> Score:
        """Weighted means of precision, recall and F1, each by itself; counts are added up."""
        total = sum(weights)
        parts = [w / total if total else 0.0 for w in weights]
        means = [sum(w * s[k] for w, s in zip(parts, scores, strict=True)) for k in range(3)]
        return cls(*means, *(sum(s[k] for s in scores) for k in (3, 4, 5)))  # type: ignore[arg-type]


def spans(labels: Sequence[str]) -> list[Span]:
    """Chunks of a label sequence by conlleval's rules; BIO, IOB1, BIOES and BILOU may be mixed.

    A chunk begins at B, S and U, and at I, E or L where none of its type is open; it ends before O, B, S, U
    and before another type, and after E, L, S and U.

    Examples
    --------
    >>> spans(["B-NP", "I-NP", "O", "I-VP", "I-NP"])
    [Span(kind='NP', start=0, end=2), Span(kind='VP', start=3, end=4), Span(kind='NP', start=4, end=5)]
    """
    parts = [chunk_part(label) for label in labels]
    starts = [t for t, part in enumerate(parts) if t == 0 or not goes_on(parts[t - 1], part)]
    return [Span(parts[a][1], a, b) for a, b in pairwise([*starts, len(parts)]) if parts[a][0] != "O"]


def require_known(y: Labels, name: str) -> None:
    """Raises if a label is missing or ambiguous, since there is nothing to compare with."""
    if isinstance(y, Columns):
        return
    for i, row in enumerate(y):
        if row is None:
            raise ValueError(f"sequence {i} of {name!r} has no labels; all must be known to score them")
        for t, label in enumerate(row):
            if label is None or isinstance(label, (set, frozenset, Mapping)):
                raise ValueError(
                    f"sequence {i} of {name!r}, position {t}: the label must be known to score it, got {label!r}"
                )


def _check(y_true: Labels, y_pred: Labels) -> None:
    require_known(y_true, "y_true")
    if len(y_true) != len(y_pred):
        raise ValueError(f"{counted(len(y_true), 'true sequence')}, but {len(y_pred)} predicted ones")
    for i, (a, b) in enumerate(zip(y_true, y_pred, strict=True)):
        if isinstance(a, str) or isinstance(b, str):
            raise TypeError(f"sequence {i} must be a list of labels, got {a if isinstance(a, str) else b!r}")
        if len(a) != len(b):
            raise ValueError(f"sequence {i} has {counted(len(a), 'true label')}, but {len(b)} predicted ones")


def token_accuracy(y_true: Labels, y_pred: Labels, sample_weight: ArrayLike | None = None) -> float:
    """Fraction of the tokens whose label is correct; 0 if there are none. ``sample_weight`` [S] weights sequences.

    Examples
    --------
    >>> token_accuracy([["A", "B"], ["A"]], [["A", "A"], ["A"]])
    0.6666666666666666
    """
    _check(y_true, y_pred)
    right = [sum(x == y for x, y in zip(a, b, strict=True)) for a, b in zip(y_true, y_pred, strict=True)]
    return _ratio(right, [len(a) for a in y_true], sample_weight)


def _ratio(part: Sequence[float], whole: Sequence[float], sample_weight: ArrayLike | None) -> float:
    """The quotient of two weighted sums over sequences; 0 if there is nothing to divide by."""
    if sample_weight is None:
        return sum(part) / sum(whole) if any(whole) else 0.0
    weights = np.asarray(sample_weight, np.float64)
    if weights.shape != (len(whole),):
        raise ValueError(f"'sample_weight' must have a weight for each of {len(whole)} sequences, got {weights.shape}")
    total = float(weights @ np.asarray(whole, np.float64))
    return float(weights @ np.asarray(part, np.float64)) / total if total else 0.0


def sequence_accuracy(y_true: Labels, y_pred: Labels) -> float:
    """Fraction of the sequences whose labels are all correct.

    Examples
    --------
    >>> sequence_accuracy([["A", "B"], ["A"]], [["A", "A"], ["A"]])
    0.5
    """
    _check(y_true, y_pred)
    right = sum(list(a) == list(b) for a, b in zip(y_true, y_pred, strict=True))
    return right / len(y_true) if len(y_true) else 0.0


def span_scores(y_true: Labels, y_pred: Labels) -> dict[str, Score]:
    """Precision, recall and F1 of chunks, per type; the key ``""`` holds all types together.

    Examples
    --------
    >>> scores = span_scores([["B-X", "I-X", "O"]], [["B-X", "O", "B-X"]])
    >>> scores[""].precision, scores["X"].recall
    (0.0, 0.0)
    """
    _check(y_true, y_pred)
    true: Counter[str] = Counter()
    predicted: Counter[str] = Counter()
    correct: Counter[str] = Counter()
    for a, b in zip(y_true, y_pred, strict=True):
        chunks_a, chunks_b = spans(a), spans(b)
        true.update(chunk.kind for chunk in chunks_a)
        predicted.update(chunk.kind for chunk in chunks_b)
        correct.update(chunk.kind for chunk in set(chunks_a) & set(chunks_b))
    scores = {kind: Score.of_counts(true[kind], predicted[kind], correct[kind]) for kind in sorted(true | predicted)}
    scores[""] = Score.of_counts(true.total(), predicted.total(), correct.total())
    return scores


def confusion(y_true: Labels, y_pred: Labels) -> tuple[list[Any], NDArray[np.int64]]:
    """Labels, and the counts of each true label (row) and predicted label (column).

    Examples
    --------
    >>> labels, counts = confusion([["A", "B", "B"]], [["A", "A", "B"]])
    >>> labels, counts.tolist()
    (['A', 'B'], [[1, 0], [1, 1]])
    """
    _check(y_true, y_pred)
    pairs: Counter[tuple[Hashable, Hashable]] = Counter()
    for a, b in zip(y_true, y_pred, strict=True):
        pairs.update(zip(a, b, strict=True))
    labels: list[Any] = sorted({label for pair in pairs for label in pair}, key=str)
    number = {label: i for i, label in enumerate(labels)}
    counts = np.zeros((len(labels), len(labels)), np.int64)
    for (true, predicted), n in pairs.items():
        counts[number[true], number[predicted]] += n
    return labels, counts


def _as_predicted(estimator: Any, X: Any, y: Labels) -> Labels:
    """Labels as the estimator writes them, if it has a way of its own: spans, or tags of another scheme."""
    rewritten: Labels = estimator.as_predicted(y, X) if hasattr(estimator, "as_predicted") else y
    return rewritten


def accuracy_scorer(estimator: Any, X: Any, y: Labels, sample_weight: ArrayLike | None = None) -> float:
    """Token accuracy of an estimator's predictions, for ``scoring=`` of scikit-learn's searches.

    Examples
    --------
    >>> from crfkit import CRF
    >>> X, y = [["a", "b"], ["b"]], [["B-A", "O"], ["O"]]
    >>> accuracy_scorer(CRF().fit(X, y), X, y)
    1.0
    """
    return token_accuracy(_as_predicted(estimator, X, y), estimator.predict(X), sample_weight)


def f1_scorer(estimator: Any, X: Any, y: Labels, sample_weight: ArrayLike | None = None) -> float:
    """F1 of all chunks of an estimator's predictions, for ``scoring=`` of scikit-learn's searches.

    Labels must be those of a chunking scheme (B-X, I-X, O); F1 is 0 if there is no chunk.

    Examples
    --------
    >>> from crfkit import CRF
    >>> X, y = [["a", "b"], ["b"]], [["B-A", "O"], ["O"]]
    >>> f1_scorer(CRF().fit(X, y), X, y)
    1.0
    """
    found, y = estimator.predict(X), _as_predicted(estimator, X, y)
    _check(y, found)
    labels = {label for rows in (y, found) for row in rows for label in row}
    if labels - {"O"} and not _are_chunks(labels):
        other = next(x for x in sorted(labels - {"O"}, key=str) if not _are_chunks({x}))
        raise ValueError(f"f1_scorer needs labels such as B-X, I-X and O, got {other!r}: use accuracy_scorer")
    pairs = [(spans(a), spans(b)) for a, b in zip(y, found, strict=True)]
    right = [2 * len(set(a) & set(b)) for a, b in pairs]
    return _ratio(right, [len(a) + len(b) for a, b in pairs], sample_weight)


@dataclass(frozen=True, repr=False)
class Report:
    """All scores of a prediction; prints as a table, shows as HTML in notebooks.

    Attributes
    ----------
    accuracy : float
        Token accuracy.
    sequence_accuracy : float
    chunks : dict of str to Score, or None
        As :func:`span_scores` returns them; None if the labels form no chunks.
    labels : dict of str to Score
        Scores of single labels.
    macro, weighted : Score
        Means over the types of chunks, or over labels where there are no chunks.
    tokens, sequences : int
    """

    accuracy: float
    sequence_accuracy: float
    chunks: dict[str, Score] | None
    labels: dict[str, Score]
    tokens: int
    sequences: int

    @property
    def f1(self) -> float:
        """F1 of all chunks, or the token accuracy where there are no chunks."""
        return self.accuracy if self.chunks is None else self.chunks[""].f1

    @property
    def _rows(self) -> dict[str, Score]:
        """Scores of the chunks' types, or of the labels where there are no chunks."""
        return self.labels if self.chunks is None else {k: v for k, v in self.chunks.items() if k}

    @property
    def macro(self) -> Score:
        """Means over the chunks' types, or over the labels where there are no chunks; all count the same."""
        rows = list(self._rows.values())
        return Score.mean(rows, [1.0] * len(rows))

    @property
    def weighted(self) -> Score:
        """The same means, where each type or label counts by its support."""
        rows = list(self._rows.values())
        return Score.mean(rows, [float(s.support) for s in rows])

    def summary(self) -> dict[str, float]:
        """The main numbers."""
        out = {"accuracy": self.accuracy, "sequence_accuracy": self.sequence_accuracy}
        if self.chunks is not None:
            whole = self.chunks[""]
            out |= {"precision": whole.precision, "recall": whole.recall, "f1": whole.f1}
        return out

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain dicts."""
        tables: dict[str, Any] = {"macro": self.macro._asdict(), "weighted": self.weighted._asdict()}
        tables["labels"] = {k: v._asdict() for k, v in self.labels.items()}
        if self.chunks is not None:
            tables["chunks"] = {k: v._asdict() for k, v in self.chunks.items() if k}
        return {**self.summary(), "tokens": self.tokens, "sequences": self.sequences, **tables}

    def __str__(self) -> str:
        rows = self._rows
        width = max([9, *(len(kind) for kind in rows)])
        lines = [f"{'':{width}}  precision  recall      F1  support"]

        def line(name: str, s: Score) -> str:
            numbers = f"{100 * s.precision:9.2f} {100 * s.recall:7.2f} {100 * s.f1:7.2f}"
            return f"{name:{width}}  {numbers} {s.support:8d}"

        lines += [line(kind, score) for kind, score in rows.items()]
        lines += ["", *(line(name, score) for name, score in self._means().items()), ""]
        lines.append(f"token accuracy: {100 * self.accuracy:.2f}% of {self.tokens}")
        lines.append(f"sequence accuracy: {100 * self.sequence_accuracy:.2f}% of {self.sequences}")
        return "\n".join(lines)

    def _means(self) -> dict[str, Score]:
        whole = {} if self.chunks is None else {"all": self.chunks[""]}
        return {**whole, "macro": self.macro, "weighted": self.weighted}

    def __repr__(self) -> str:
        name = "accuracy" if self.chunks is None else "f1"
        return f"<Report: {name} {self.f1:.4f}, {counted(self.tokens, 'token')}, {counted(self.sequences, 'sequence')}>"

    def _repr_html_(self) -> str:
        def row(name: str, s: Score) -> str:
            cells = "".join(f"<td>{100 * x:.2f}</td>" for x in s[:3])
            return f"<tr><th>{html.escape(name)}</th>{cells}<td>{s.support}</td></tr>"

        head = "".join(f"<th>{name}</th>" for name in ("", "precision", "recall", "F1", "support"))
        body = "".join(row(name, score) for name, score in self._rows.items())
        means = "".join(row(name, score) for name, score in self._means().items())
        right = f"{100 * self.accuracy:.2f}% of {counted(self.tokens, 'token')}, "
        right += f"{100 * self.sequence_accuracy:.2f}% of {counted(self.sequences, 'sequence')} are right"
        parts = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody><tfoot>{means}</tfoot>"
        return f'<table class="crfkit-report">{parts}</table><p>{right}</p>'


def _are_chunks(labels: set[Any]) -> bool:
    """Whether the labels look like B-X, I-X, O."""
    if not all(isinstance(label, str) for label in labels):
        return False
    tagged = [label for label in labels if label != "O"]
    return bool(tagged) and all(label[:1] in TAGS and label[1:2] == "-" for label in tagged)


def evaluate(y_true: Labels, y_pred: Labels) -> Report:
    """A report on predicted labels; print it for a table. All true labels must be known.

    Examples
    --------
    >>> report = evaluate([["B-X", "O"]], [["B-X", "O"]])
    >>> report.accuracy, report.f1
    (1.0, 1.0)
    """
    labels, counts = confusion(y_true, y_pred)
    correct = np.diag(counts)
    per_label = {
        str(label): Score.of_counts(int(counts[i].sum()), int(counts[:, i].sum()), int(correct[i]))
        for i, label in enumerate(labels)
    }
    total = int(counts.sum())
    return Report(
        accuracy=int(correct.sum()) / total if total else 0.0,
        sequence_accuracy=sequence_accuracy(y_true, y_pred),
        chunks=span_scores(y_true, y_pred) if _are_chunks(set(labels)) else None,
        labels=per_label,
        tokens=total,
        sequences=len(y_true),
    )
