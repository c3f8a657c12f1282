"""Scores of sequences: scikit-learn's, over all tokens, and the fraction of sequences that are all correct."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn import metrics as _metrics

from crfkit.compat.sklearn_crfsuite.utils import flatten

__all__ = [
    "flat_accuracy_score",
    "flat_classification_report",
    "flat_f1_score",
    "flat_fbeta_score",
    "flat_precision_score",
    "flat_recall_score",
    "sequence_accuracy_score",
]

Labels = Sequence[Sequence[Any]]


def flat_accuracy_score(y_true: Labels, y_pred: Labels) -> float:
    """Accuracy over all tokens.

    >>> flat_accuracy_score([["a", "b"], ["b", "b"]], [["a", "b"], ["b", "a"]])
    0.75
    """
    return float(_metrics.accuracy_score(flatten(y_true), flatten(y_pred)))


def flat_precision_score(y_true: Labels, y_pred: Labels, **kwargs: Any) -> Any:
    """Precision over all tokens; takes what :func:`sklearn.metrics.precision_score` takes."""
    return _metrics.precision_score(flatten(y_true), flatten(y_pred), **kwargs)


def flat_recall_score(y_true: Labels, y_pred: Labels, **kwargs: Any) -> Any:
    """Recall over all tokens; takes what :func:`sklearn.metrics.recall_score` takes."""
    return _metrics.recall_score(flatten(y_true), flatten(y_pred), **kwargs)


def flat_f1_score(y_true: Labels, y_pred: Labels, **kwargs: Any) -> Any:
    """F1 over all tokens; takes what :func:`sklearn.metrics.f1_score` takes."""
    return _metrics.f1_score(flatten(y_true), flatten(y_pred), **kwargs)


def flat_fbeta_score(y_true: Labels, y_pred: Labels, beta: float, **kwargs: Any) -> Any:
    """F-beta over all tokens; takes what :func:`sklearn.metrics.fbeta_score` takes."""
    return _metrics.fbeta_score(flatten(y_true), flatten(y_pred), beta=beta, **kwargs)


def flat_classification_report(
    y_true: Labels, y_pred: Labels, labels: Sequence[Any] | None = None, **kwargs: Any
) -> Any:
    """The report of :func:`sklearn.metrics.classification_report` over all tokens."""
    return _metrics.classification_report(flatten(y_true), flatten(y_pred), labels=labels, **kwargs)


def sequence_accuracy_score(y_true: Labels, y_pred: Labels) -> float:
    """Fraction of the sequences whose labels are all correct.

    >>> sequence_accuracy_score([["a", "b"], ["b", "b"]], [["a", "b"], ["b", "a"]])
    0.5
    """
    if len(y_true) == 0:
        return 0.0
    return sum(list(a) == list(b) for a, b in zip(y_true, y_pred, strict=True)) / len(y_true)
