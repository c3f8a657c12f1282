"""Where words are in a pool, to give an answer to every occurrence of a span."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_NOWHERE: Ints = np.zeros(0, np.int64)


class WordIndex:
    """Finds runs of words in sentences.

    Parameters
    ----------
    sentences : sequence of lists of str

    Examples
    --------
    >>> WordIndex([["a", "b", "a"], ["b"], ["a", "b"]]).find(["a", "b"])
    [(0, 0), (2, 0)]
    """

    def __init__(self, sentences: Sequence[Sequence[str]]) -> None:
        self._number: dict[str, int] = {}
        number = self._number
        words = (number.setdefault(word, len(number)) for row in sentences for word in row)
        self._words = np.fromiter(words, np.int64)
        lengths = [len(row) for row in sentences]
        self._offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self._row = np.repeat(np.arange(len(lengths)), lengths)  # the sentence of each token
        self._order = np.argsort(self._words, kind="stable")
        self._first = np.searchsorted(self._words[self._order], np.arange(len(number) + 1))

    def find(self, words: Sequence[str]) -> list[tuple[int, int]]:
        """Sentences that have these words in a row, and where they begin there, in order."""
        row, start = self._places(words)
        return list(zip(row.tolist(), (start - self._offsets[row]).tolist(), strict=True))

    def count(self, words: Sequence[str]) -> int:
        """How often these words occur in a row."""
        return len(self._places(words)[0])

    def _places(self, words: Sequence[str]) -> tuple[Ints, Ints]:
        """The same sentences, and the numbers of the first tokens in all of the text."""
        numbers = [self._number.get(word, -1) for word in words]
        if not numbers or min(numbers) < 0:
            return _NOWHERE, _NOWHERE
        rarest = min(range(len(numbers)), key=lambda k: self._first[numbers[k] + 1] - self._first[numbers[k]])
        start = self._order[self._first[numbers[rarest]] : self._first[numbers[rarest] + 1]] - rarest
        start = start[(start >= 0) & (start + len(numbers) <= len(self._words))]
        for k, number in enumerate(numbers):
            if k != rarest:
                start = start[self._words[start + k] == number]
        row = self._row[start]
        whole = row == self._row[start + len(numbers) - 1]
        return row[whole], start[whole]
