"""Gazetteers: lists of names and other phrases."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Self

from crfkit import _core
from crfkit.base.fields import Arrays
from crfkit.data.readers import feed, pieces, source_name
from crfkit.features.lexicon import Part, gazetteer_part, table_arrays

CASES = ("exact", "lower")


class Gazetteer:
    """A list of phrases of one or more words to find in the text: cities, drugs, given names.

    Matching goes from left to right, takes the longest phrase that begins at a token, and continues after it. The
    phrase's tokens are marked ``B`` (begin), ``I`` (inside) and ``L`` (last), or ``U`` if it has one word. The time
    needed grows with the text, not with the number of phrases.

    Parameters
    ----------
    phrases : iterable of str, or of sequences of str
        Each phrase has at most 64 words. A str is split at blanks; its words should be tokenized as the text is.
    case : {"exact", "lower"}
        Whether words must match the phrase exactly, or after lower-casing.

    Examples
    --------
    >>> from crfkit import CRF, TokenFeatures
    >>> cities = Gazetteer(["New York", "York", "Riga"])
    >>> len(cities), cities.marks(["in", "New", "York", "and", "York"])
    (3, [None, 'B', 'L', None, 'U'])
    >>> features = TokenFeatures(gazetteers={"cities": cities})
    >>> crf = CRF(features).fit([["in", "York"], ["at", "noon"]], [["O", "LOC"], ["O", "O"]])
    >>> crf.predict([["in", "New", "York"]])
    [['O', 'LOC', 'LOC']]
    """

    def __init__(self, phrases: Iterable[str | Sequence[str]], *, case: str = "exact") -> None:
        builder = _builder(case)
        if isinstance(phrases, (str, bytes, os.PathLike)):
            raise ValueError(
                f"'phrases' of Gazetteer must be a list, got {phrases!r}: use Gazetteer.from_file for a file"
            )
        for number, phrase in enumerate(phrases):
            if not isinstance(phrase, Iterable):
                raise ValueError(f"phrase {number} of a Gazetteer must be a str or a list of strs, got {phrase!r}")
            words = phrase.split() if isinstance(phrase, str) else list(phrase)
            try:
                builder.add(words)
            except (TypeError, RuntimeError, ValueError) as e:
                problem = "its words must be strs" if isinstance(e, TypeError) else e
                raise ValueError(f"phrase {number} of a Gazetteer, {phrase!r}: {problem}") from None
        self._keep(case, builder.build())

    def _keep(self, case: str, native: _core.Gazetteer) -> None:
        self.case, self._native = case, native

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, case: str = "exact") -> Self:
        """Phrases from a file, one per line, words separated by blanks; it may be compressed (.gz, .xz, .bz2).

        Raises
        ------
        DataError
            If a line is not valid UTF-8, or has more than 64 words; the message gives the file and line.
        """
        builder = _builder(case)
        for piece, line in pieces(path):
            feed(builder, piece, line, source_name(path))
        out = cls.__new__(cls)
        out._keep(case, builder.build())
        return out

    def __len__(self) -> int:
        return len(self._native)

    def __repr__(self) -> str:
        return f"<Gazetteer: {len(self)} phrases, case {self.case}>"

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # it never changes

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.case, dict(self.part.arrays))

    def marks(self, words: Sequence[str]) -> list[str | None]:
        """The mark of each word of a sequence, None outside phrases."""
        given = list(words)
        if wrong := [word for word in given if not isinstance(word, str)]:
            raise ValueError(f"'words' of marks must be strs, got {wrong[0]!r}")
        return self._native.marks(given)

    @cached_property
    def part(self) -> Part:
        """As encoders look at it."""
        first, label, last = self._native.trie()
        kept = {**table_arrays(self._native.words), "first": first, "label": label, "last": last}
        return Part(self.case, kept, self._native)


def _builder(case: str) -> _core.GazetteerBuilder:
    if case not in CASES:
        raise ValueError(f"'case' of Gazetteer must be one of {', '.join(CASES)}, got {case!r}")
    return _core.GazetteerBuilder(case)


def _restored(case: str, arrays: dict[str, Any]) -> Gazetteer:
    out = Gazetteer.__new__(Gazetteer)
    out._keep(case, gazetteer_part(case, Arrays(arrays)).native)
    return out
