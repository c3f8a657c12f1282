"""Where words are in a pool, to give an answer to every occurrence of a span."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


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
        self._offsets = np.concatenate([[0], np.cumsum([len(row) for row in sentences], dtype=np.int64)])
        self._order = np.argsort(self._words, kind="stable")
        self._first = np.searchsorted(self._words[self._order], np.arange(len(number) + 1))

    def find(self, words: Sequence[str]) -> list[tuple[int, int]]:
        """Sentences that have these words in a row, and where they begin there, in order."""
        numbers = [self._number.get(word, -1) for word in words]
        if not numbers or min(numbers) < 0:
            return []
        rarest = min(range(len(numbers)), key=lambda k: self._first[numbers[k] + 1] - self._first[numbers[k]])
        at = self._order[self._first[numbers[rarest]] : self._first[numbers[rarest] + 1]]
        row = np.searchsorted(self._offsets, at, side="right") - 1
        start = at - rarest
        whole = (start >= self._offsets[row]) & (start + len(numbers) <= self._offsets[row + 1])
        row, start = row[whole], start[whole]
        for k, number in enumerate(numbers):
            same = self._words[start + k] == number
            row, start = row[same], start[same]
        return list(zip(row.tolist(), (start - self._offsets[row]).tolist(), strict=True))
