"""Classes of words by their labels: how often a word is within an entity, in all text of a corpus.

A first model labels the sentences without labels. The class of a word is the share of its occurrences that are inside
of entities, by the labels where they are known and by the first model where they are not, together with the number of
its occurrences. A second model has the classes as a column beside the words.

What the second model learns from must look like what it is used on, so classes are cross-fitted: the labelled sentences
are cut into parts, and for each part the classes come from a first model, and from labels, of the other parts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfkit import CRF

PARTS = 4
#: Borders between classes: shares of occurrences within entities, and numbers of occurrences.
SHARES = np.array([0.02, 0.1, 0.3, 0.6, 0.9])
COUNTS = np.array([1.5, 3.5, 10.5, 100.5])
Sentence = Sequence[str]
Fit = Callable[[Sequence[Any], Sequence[Any]], CRF]


class Shares:
    """How often words occur, and how often within entities; case does not matter."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[int, float]] = {}

    def add(self, X: Iterable[Sentence], inside: Iterable[Iterable[float]]) -> Shares:
        """Counts sentences, given the probability of each token that it is within an entity."""
        for sentence, row in zip(X, inside, strict=True):
            for word, p in zip(sentence, row, strict=True):
                count, total = self._of.get(word.lower(), (0, 0.0))
                self._of[word.lower()] = count + 1, total + float(p)
        return self

    def add_labelled(self, X: Sequence[Sentence], y: Sequence[Sequence[str]]) -> Shares:
        """Counts sentences whose labels are known."""
        return self.add(X, ([label != "O" for label in row] for row in y))

    def add_predicted(self, X: Sequence[Sentence], crf: CRF) -> Shares:
        """Counts sentences by a model's probabilities."""
        outside = list(crf.classes_).index("O")
        return self.add(X, (1 - rows[:, outside] for rows in crf.predict_marginals(X)))

    def word_class(self, word: str) -> str:
        """The class of a word."""
        count, total = self._of.get(word.lower(), (0, 0.0))
        if not count:
            return "unknown"
        return f"{np.searchsorted(SHARES, total / count)}.{np.searchsorted(COUNTS, count)}"

    def beside(self, X: Iterable[Sentence]) -> list[list[tuple[str, str]]]:
        """Sentences with the classes as a second column."""
        found = {word: self.word_class(word) for word in self._of}
        return [[(word, found.get(word.lower(), "unknown")) for word in sentence] for sentence in X]


@dataclass
class Stacked:
    """A model of words and their classes by labels."""

    crf: CRF
    shares: Shares

    def predict(self, X: Iterable[Sentence]) -> list[list[Any]]:
        """The labels of sentences of words."""
        return self.crf.predict(self.shares.beside(X))


def label_classes(
    X: Sequence[Sentence], y: Sequence[Sequence[str]], unlabelled: Sequence[Sentence], first: Fit, seed: int
) -> tuple[list[Any], Shares]:
    """The labelled sentences with classes beside the words, and the classes of words in other text.

    ``first`` trains the first models.
    """
    part = np.random.default_rng(seed).integers(0, PARTS, size=len(X))
    marked: list[Any] = [None] * len(X)
    for k in range(PARTS):
        inner, outer = np.flatnonzero(part == k).tolist(), np.flatnonzero(part != k).tolist()
        X_in, X_out, y_out = [X[i] for i in inner], [X[i] for i in outer], [y[i] for i in outer]
        shares = Shares().add_labelled(X_out, y_out).add_predicted([*X_in, *unlabelled], first(X_out, y_out))
        for i, sentence in zip(inner, shares.beside(X_in), strict=True):
            marked[i] = sentence
    return marked, Shares().add_labelled(X, y).add_predicted(unlabelled, first(X, y))


def quietly(crf: CRF, X: Sequence[Any], y: Sequence[Any]) -> CRF:
    """Trains without the warning that the limit of iterations was reached."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return crf.fit(X, y)
