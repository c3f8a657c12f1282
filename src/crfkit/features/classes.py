"""Word classes, learned from unlabelled text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.fields import Arrays, damaged, flag, integer, list_of, record, text
from crfkit.base.parameters import check_number, check_text
from crfkit.base.tensors import read_tensors, write_tensors
from crfkit.base.threads import resolve_threads
from crfkit.data.readers import iter_text
from crfkit.data.sequences import Columns
from crfkit.data.tokens import lower_case, tokenize

#: How often words follow one another: pointers, words, counts.
Bigrams = tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint32]]

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
        The words.
    codes : iterable of str
        The bit string of each word (``"0110"``).
    prefixes : sequence of int
        Lengths of the prefixes that :class:`~crfkit.TokenFeatures` turns into features; a shorter bit string is used
        whole.
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
        for word in self.words:
            if not isinstance(word, str):
                raise ValueError(f"'words' of WordClasses must be strings, got {word!r}")
            check_text(word, "a word of WordClasses")
        for code in set(self.codes):
            if not isinstance(code, str) or not _BITS.fullmatch(code):
                raise ValueError(f"'codes' of WordClasses must be strings of 0 and 1, got {code!r}")
        wrong = any(type(n) is not int or not 1 <= n <= 65535 for n in self.prefixes)
        if not self.prefixes or wrong or len(set(self.prefixes)) < len(self.prefixes):
            raise ValueError(f"'prefixes' of WordClasses must be distinct ints from 1 to 65535, got {self.prefixes!r}")
        self._place = {word: k for k, word in enumerate(self.words)}
        if len(self._place) != len(self.words):
            twice = next(word for k, word in enumerate(self.words) if self._place[word] != k)
            raise ValueError(f"'words' of WordClasses must be distinct, got {twice!r} twice")

    @classmethod
    def fit(
        cls,
        texts: Any,
        n_classes: int = 500,
        *,
        method: str = "brown",
        min_freq: int = 2,
        lower: bool = True,
        format: str = "text",
        column: int | None = None,
        prefixes: Iterable[int] = PREFIXES,
        random_state: int | None = None,
        n_jobs: int | None = -1,
    ) -> WordClasses:
        r"""Learns classes from unlabelled text.

        ``"brown"`` merges classes bottom up, each time the two whose merger loses least of the mutual information

        .. math:: \sum_{a, b} p(a, b) \log \frac{p(a, b)}{p(a) p(b)}

        of adjacent classes a and b (Brown and others 1992; words are added by frequency, in a window of
        ``n_classes`` + 1 classes, as in Liang's program). ``"spectral"`` takes the 60 leading singular vectors of
        :math:`\sqrt{c_{wv}} / (c_w c_v)^{1/4}`, counts of words and their neighbours on either side, groups the words
        by k-means, and the groups by Ward's tree. Sentence boundaries and rare words count as neighbours.

        Parameters
        ----------
        texts : path, Columns, or iterable
            The path of a file; or sequences as :meth:`CRF.fit <crfkit.CRF.fit>` takes them; or an iterable of
            sequences, :class:`~crfkit.data.Columns`, strings of running text, and ``pathlib.Path`` of files.
        n_classes : int
            Number of classes, the leaves of the tree. One of them is of sentence boundaries and rare words, so that the
            words usually have one less.
        method : {"brown", "spectral"}
            Brown clustering, or clusters of spectral word vectors.
        min_freq : int
            Words that occur less often get no class.
        lower : bool
            Whether words are taken in lower case.
        format : {"text", "tokens", "columns", "conllu"}
            Format of files: running text, tokens separated by blanks, or one token per line.
        column : int, optional
            The column of the words; the first by default, or the form in CoNLL-U.
        prefixes : sequence of int
            As for the class.
        random_state : int, optional
            Seed, used by ``"spectral"``.
        n_jobs : int
            Number of threads; the result does not depend on it.

        Examples
        --------
        >>> text = ["put two cups of flour", "put two pinches of salt", "put three cups of sugar"] * 5
        >>> classes = WordClasses.fit(text, 4)
        >>> classes["cups"] == classes["pinches"] != classes["of"]
        True
        """
        cls._check(n_classes, method, min_freq, random_state)
        if not isinstance(lower, (bool, np.bool_)):
            raise ValueError(f"'lower' of WordClasses must be True or False, got {lower!r}")
        threads = resolve_threads(n_jobs)
        counter = _core.WordCounter()
        for part in _parts(texts, format, column):
            at = 0 if part.n_columns == 1 or column is None else column
            counter.add(part.strings, part.ids, part.offsets, at % part.n_columns, bool(lower))
        words, _, ptr, following, count = counter.bigrams(min_freq, threads)
        bigrams = ptr, following, count
        if not words:
            raise ValueError(f"the text has no word that occurs {min_freq} times: it has {counter.n_tokens} tokens")
        group, merges = _METHODS[method](bigrams, min(n_classes, len(words)), random_state or 0, threads)
        codes = _codes(merges.reshape(-1, 2).tolist())
        known = [(word, codes[g]) for word, g in zip(words, group.tolist(), strict=True) if word]
        return cls([word for word, _ in known], [code for _, code in known], prefixes=prefixes, lower=lower)

    @staticmethod
    def _check(
        n_classes: int, method: str, min_freq: int, random_state: int | None, owner: str = "WordClasses"
    ) -> None:
        """Raises if a parameter of :meth:`fit` is wrong."""
        check_number(owner, "n_classes", n_classes, 1, integer=True)
        check_number(owner, "min_freq", min_freq, 1, integer=True)
        check_number(owner, "random_state", random_state, 0, integer=True, optional=True)
        if n_classes > _MOST_CLASSES:
            raise ValueError(f"'n_classes' of {owner} must be at most {_MOST_CLASSES}, got {n_classes}")
        if method not in _METHODS:
            raise ValueError(f"'method' of WordClasses must be one of {', '.join(map(repr, _METHODS))}, got {method!r}")

    def __getitem__(self, word: str) -> str:
        return self.codes[self._place[lower_case(word) if self.lower and isinstance(word, str) else word]]

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
        """Classes from the contents of a file, which are checked."""
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
        """Writes a file; after an error no partial file remains."""
        header = {"kind": "WordClasses", "prefixes": list(self.prefixes), "lower": self.lower}
        write_tensors(path, _KEY, header, self.arrays())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> WordClasses:
        """Reads what :meth:`save` wrote.

        Raises
        ------
        ModelError
            If the file does not hold word classes, or is truncated or damaged.
        """
        file = read_tensors(path, _KEY, _WHAT)
        with damaged(os.fspath(path), _WHAT):
            return cls.from_arrays(file.header, file.arrays)


def _brown(bigrams: Bigrams, n_classes: int, seed: int, threads: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    group, merges, _, _ = _core.brown_tree(*bigrams, n_classes, threads)
    return group, merges


def _spectral(
    bigrams: Bigrams, n_classes: int, seed: int, threads: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    n_words = len(bigrams[0]) - 1
    rank = min(_RANK, n_words)
    x, values = _core.word_vectors(*bigrams, rank, seed, threads)
    return _grouped((x.reshape(n_words, rank) * values**_POWER).astype(np.float32), n_classes, seed, threads)


def _grouped(
    x: NDArray[np.float32], n_classes: int, seed: int, threads: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Group of each vector by its direction, and the merges of the groups."""
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    group, centres = _core.k_means(x, n_classes, _ITERATIONS, seed, threads)
    sizes = np.bincount(group, minlength=n_classes).astype(np.float64)
    return group, _core.ward_tree(centres.reshape(n_classes, x.shape[1]), np.maximum(sizes, 1e-9))


def classes_of_vectors(
    words: list[str], x: NDArray[np.float32], n_classes: int, random_state: int | None, n_jobs: int | None
) -> WordClasses:
    """Classes of words whose vectors are known, as those of the spectral method; in lower case if all words are."""
    WordClasses._check(n_classes, "spectral", 1, random_state, "WordVectors.classes")
    n = min(n_classes, len(words))
    group, merges = _grouped(x, n, random_state or 0, resolve_threads(n_jobs))
    codes = _codes(merges.reshape(-1, 2).tolist())
    return WordClasses(words, [codes[g] for g in group.tolist()], lower=all(word == lower_case(word) for word in words))


_METHODS = {"brown": _brown, "spectral": _spectral}
_MOST_CLASSES = 16_384  # whose tables of pairs take 4 GB
_RANK = 60
_POWER = 1.0  # of the singular values that the vectors are multiplied by
_ITERATIONS = 20
_BATCH = 50_000  # tokens that are handed over at a time


def _codes(merges: list[list[int]]) -> list[str]:
    """Bit strings of the leaves of a tree of merges; leaves, then merges, are numbered from zero.

    >>> _codes([[0, 2], [1, 3]])
    ['10', '0', '11']
    """
    n = len(merges) + 1
    codes = [""] * (2 * n - 1)
    for k in range(len(merges) - 1, -1, -1):
        for bit, node in zip("01", merges[k], strict=True):
            codes[node] = codes[n + k] + bit
    return codes[:n] if n > 1 else ["0"]


def _parts(texts: Any, format: str, column: int | None) -> Iterator[Columns]:
    """The text in columns, piece by piece."""
    if isinstance(texts, Columns):
        yield texts
        return
    if isinstance(texts, (str, os.PathLike)):
        yield from iter_text(texts, format, column=column)
        return
    held: list[Any] = []
    size = 0
    for item in texts:
        if isinstance(item, Columns):
            yield item
        elif isinstance(item, os.PathLike):
            yield from iter_text(item, format, column=column)
        else:
            rows = tokenize(item) if isinstance(item, str) else [list(item)]
            held += rows
            size += sum(map(len, rows))
        if size >= _BATCH:
            yield Columns.from_sequences(held)
            held, size = [], 0
    if held:
        yield Columns.from_sequences(held)
