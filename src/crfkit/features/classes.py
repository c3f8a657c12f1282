"""Classes of words, learned from unlabelled text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.fields import Arrays, damaged, flag, integer, list_of, record, text
from crfkit.base.tensors import read_tensors, write_tensors

_KEY = "crfkit word classes"
_WHAT = "file of word classes"
_HEADER = record(
    {"kind": text, "prefixes": list_of(integer(1, 65535), 1, 64), "lower": flag},
)
#: Lengths of the prefixes of bit strings that become features.
PREFIXES = (4, 6, 10, 20)
_BITS = re.compile(r"[01]*")


class WordClasses(Mapping[str, str]):
    """Words and their classes in a hierarchy: a class is a string of bits, and a prefix of it is a larger class.

    Behaves as a dict of words and bit strings.

    Parameters
    ----------
    words : iterable of str
    codes : iterable of str
        The bit string of each word (``"0110"``).
    prefixes : sequence of int
        Lengths of the prefixes that :class:`~crfkit.TokenFeatures` makes features of; a bit string that is shorter is
        taken as a whole.
    lower : bool
        Whether the words are in lower case; a word is then looked up in lower case.

    Attributes
    ----------
    words, codes : list of str
    prefixes : tuple of int
    lower : bool

    Examples
    --------
    >>> classes = WordClasses(["cups", "spoons", "salt"], ["00", "00", "01"], prefixes=[1, 2])
    >>> classes["spoons"], len(classes)
    ('00', 3)
    """

    def __init__(
        self,
        words: Iterable[str],
        codes: Iterable[str],
        *,
        prefixes: Iterable[int] = PREFIXES,
        lower: bool = False,
    ) -> None:
        self.words, self.codes = list(words), list(codes)
        self.prefixes, self.lower = tuple(prefixes), bool(lower)
        if len(self.words) != len(self.codes):
            raise ValueError(
                f"'codes' of WordClasses must be as many as 'words', got {len(self.codes)} and {len(self.words)}"
            )
        for code in set(self.codes):
            if not isinstance(code, str) or not _BITS.fullmatch(code):
                raise ValueError(f"'codes' of WordClasses must be strings of 0 and 1, got {code!r}")
        if not self.prefixes or any(type(n) is not int or not 1 <= n <= 65535 for n in self.prefixes):
            raise ValueError(f"'prefixes' of WordClasses must be ints from 1 to 65535, got {self.prefixes!r}")
        self._place = {word: k for k, word in enumerate(self.words)}
        if len(self._place) != len(self.words):
            twice = next(word for k, word in enumerate(self.words) if self._place[word] != k)
            raise ValueError(f"'words' of WordClasses must be distinct, got {twice!r} twice")

    def __getitem__(self, word: str) -> str:
        return self.codes[self._place[word.lower() if self.lower else word]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        return f"<WordClasses: {len(self)} words, {len(set(self.codes))} classes>"

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The words, the distinct bit strings and the class of each word, for files."""
        numbers: dict[str, int] = {}
        of_word = np.array([numbers.setdefault(code, len(numbers)) for code in self.codes], np.uint32)
        out: dict[str, NDArray[Any]] = {"class": of_word}
        for name, strings in (("words", self.words), ("codes", list(numbers))):
            encoded = [s.encode() for s in strings]
            out[f"{name}.bytes"] = np.frombuffer(b"".join(encoded), np.uint8)
            out[f"{name}.ends"] = np.cumsum([len(s) for s in encoded], dtype=np.uint64)
        return out

    @classmethod
    def from_arrays(cls, header: Mapping[str, Any], arrays: Arrays) -> WordClasses:
        """From what a file holds, if that is sound."""
        fields = _HEADER(dict(header), "")
        tables = []
        for name in ("words", "codes"):
            group = arrays.group(name)
            raw, ends = group.of_kind("bytes", "u", (None,)), group.of_kind("ends", "u", (None,))
            tables.append(_core.StringTable.from_arrays(raw.astype(np.uint8), ends.astype(np.uint64)).tolist())
        words, codes = tables
        of_word = arrays.of_kind("class", "u", (len(words),))
        if of_word.size and int(of_word.max()) >= len(codes):
            raise ValueError("the array 'class' names a class that does not exist")
        return cls(words, [codes[k] for k in of_word.tolist()], prefixes=fields["prefixes"], lower=fields["lower"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file, whole or not at all."""
        header = {"kind": "WordClasses", "prefixes": list(self.prefixes), "lower": self.lower}
        write_tensors(path, _KEY, header, self.arrays())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> WordClasses:
        """Reads what :meth:`save` wrote.

        Raises
        ------
        ModelError
            If the file is something else, is cut short or damaged.
        """
        file = read_tensors(path, _KEY, _WHAT)
        with damaged(os.fspath(path), _WHAT):
            return cls.from_arrays(file.header, file.arrays)
