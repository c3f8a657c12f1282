"""Texts that are looked up: those of training segments, and gazetteers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.fields import Arrays
from crfkit.base.threads import resolve_threads
from crfkit.data.dataset import NONE
from crfkit.data.sequences import Columns
from crfkit.data.tokens import lower_case
from crfkit.segment.known import Known
from crfkit.segment.objective import Items

_SIMILAR = np.array([0.6, 0.7, 0.8, 0.9, 0.999])


def word_shape(word: str) -> str:
    """The shape of a word: letters to A and a, digits to 0, runs shortened to two.

    >>> word_shape("Interleukin-12b")
    'Aaa-00a'
    """
    out = ""
    for c in word:
        s = "A" if c.isupper() else "a" if c.islower() else "0" if c.isdigit() else c
        if not out.endswith(s * 2):
            out += s
    return out


#: What tokens are compared by.
VIEWS: dict[str, Callable[[str], str]] = {"word": str, "lower": lower_case, "shape": word_shape}


class Found:
    """Places of segments and their attributes, from several sources."""

    def __init__(self) -> None:
        self.parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]] = []

    def add(self, start: Any, length: Any, attr: Any, value: Any = None) -> None:
        """Segments with an attribute each."""
        start = np.asarray(start, np.int64)
        ones = np.ones(len(start)) if value is None else np.asarray(value, np.float64)
        self.parts.append((start, np.asarray(length, np.int64), np.asarray(attr, np.int64), ones))

    def items(self, n_tokens: int, first: int) -> Items:
        """All of them, with attributes numbered from ``first`` on."""
        none = np.zeros(0, np.int64)
        columns = list(zip(*self.parts, strict=True)) or [(none,), (none,), (none,), (np.zeros(0),)]
        start, length, attr, value = (np.concatenate(x) for x in columns)
        last = start + length - 1
        order = np.lexsort((attr, length, last))
        last, length, attr, value = last[order], length[order], attr[order], value[order]
        new = np.ones(len(last), bool)
        new[1:] = (np.diff(last) != 0) | (np.diff(length) != 0)
        at = np.flatnonzero(new)
        ptr = np.searchsorted(last[at], np.arange(n_tokens + 1))
        attr_ptr = np.append(at, len(last)).astype(np.int64)
        values = None if (value == 1).all() else value
        return Items(
            ptr.astype(np.int64), length[at].astype(np.int32), attr_ptr, (attr + first).astype(np.uint32), values
        )


@dataclass(eq=False)
class Entries:
    """Rows of tokens that are looked for, by one view of the tokens.

    Attributes
    ----------
    view : str
        What tokens are compared by.
    words : list of str
        The tokens, numbered.
    tokens : uint32, ptr : int64 [E + 1]
        The entries.
    """

    view: str
    words: list[str]
    tokens: NDArray[np.uint32]
    ptr: NDArray[np.int64]

    @classmethod
    def of(cls, view: str, rows: Iterable[tuple[str, ...]]) -> Entries:
        """Distinct rows of tokens, which are seen by the view."""
        number: dict[str, int] = {}
        flat: list[int] = []
        ptr = [0]
        for row in rows:
            flat += [number.setdefault(word, len(number)) for word in row]
            ptr.append(len(flat))
        return cls(view, list(number), np.array(flat, np.uint32), np.array(ptr, np.int64))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "trie"}

    @cached_property
    def trie(self) -> _core.SegmentTrie:
        """The same in the core."""
        return _core.SegmentTrie(self.tokens, self.ptr)

    def see(self, columns: Columns) -> NDArray[np.uint32]:
        """Numbers of the tokens, by the view."""
        number = {word: i for i, word in enumerate(self.words)}
        view = VIEWS[self.view]
        table = np.array([number.get(view(word), NONE) for word in columns.texts()], np.uint32)
        return np.ascontiguousarray(table[columns.ids[:, 0]]) if len(table) else np.zeros(0, np.uint32)

    def find(self, columns: Columns, longest: int, n_jobs: int | None) -> tuple[Any, Any, Any]:
        """Start, length and entry of everything found in a text."""
        found = self.trie.find(self.see(columns), columns.offsets, longest, resolve_threads(n_jobs))
        return found[:3]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """For a model file."""
        words = [w.encode() for w in self.words]
        return {
            "tokens": self.tokens,
            "ptr": self.ptr,
            "words": np.frombuffer(b"".join(words), np.uint8).copy(),
            "word_ends": np.cumsum([len(w) for w in words], dtype=np.int64),
        }

    @classmethod
    def restore(cls, view: str, arrays: Arrays) -> Entries:
        """From a model file; checked."""
        ends = arrays.of_kind("word_ends", "i", (None,))
        raw = bytes(arrays.of_kind("words", "u", (None,)))
        if len(ends) and (ends[0] < 0 or (np.diff(ends) < 0).any() or ends[-1] != len(raw)):
            raise ValueError("the words of its segments do not fit their ends")
        bounds = [0, *ends.tolist()]
        words = [raw[a:b].decode() for a, b in pairwise(bounds)]
        tokens, ptr = arrays.of_kind("tokens", "u", (None,)), arrays.of_kind("ptr", "i", (None,))
        if len(tokens) and int(tokens.max()) >= len(words):
            raise ValueError("an entry of its segments has a word that does not exist")
        out = cls(view, words, tokens.astype(np.uint32), ptr.astype(np.int64))
        out.trie  # noqa: B018 - checks the entries
        return out


@dataclass(eq=False)
class Texts:
    """The texts (or shapes) of training segments: an attribute for each."""

    name: str
    entries: Entries

    @property
    def width(self) -> int:
        """Number of attributes."""
        return len(self.entries.ptr) - 1

    def names(self) -> list[str]:
        """Of the attributes."""
        words, flat = self.entries.words, self.entries.tokens.tolist()
        bounds = self.entries.ptr.tolist()
        return [f"{self.name}={' '.join(words[i] for i in flat[a:b])}" for a, b in pairwise(bounds)]

    @classmethod
    def learn(cls, name: str, view: str, columns: Columns, known: Known, longest: int, skip: int) -> Texts:
        """Those of the segments of a training set, without those of the label ``skip``."""
        segments = known.segments()
        segments = segments[(segments[:, 2] != skip) & (segments[:, 1] - segments[:, 0] <= longest)]
        words = [VIEWS[view](word) for word in columns.texts()]
        ids = columns.ids[:, 0].tolist()
        rows = dict.fromkeys(tuple(words[i] for i in ids[a:b]) for a, b, _ in segments.tolist())
        return cls(name, Entries.of(view, rows))

    def find(self, columns: Columns, longest: int, first: int, out: Found, n_jobs: Any, known: Known | None) -> None:
        """Adds the attributes of segments in a text, in training as later."""
        if self.width:
            start, length, entry = self.entries.find(columns, longest, n_jobs)
            out.add(start, length, first + entry.astype(np.int64))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """For a model file."""
        return self.entries.arrays()

    @classmethod
    def restore(cls, name: str, view: str, arrays: Arrays) -> Texts:
        """From a model file; checked."""
        if view not in VIEWS:
            raise ValueError(f"'segments.texts' has an unknown view {view!r}")
        return cls(name, Entries.restore(view, arrays))


@dataclass(eq=False)
class Lists:
    """Gazetteers, side by side as one set of entries."""

    titles: list[str]
    entries: Entries
    member: NDArray[np.bool_]  # [E, lists]
    similarity: float | None

    @classmethod
    def of(cls, given: Mapping[str, Iterable[Any]], similarity: float | None) -> Lists:
        """The entries of lists; case does not matter."""
        place: dict[tuple[str, ...], set[int]] = {}
        for i, (name, texts) in enumerate(given.items()):
            for entry in texts:
                if isinstance(entry, bytes) or not isinstance(entry, Iterable):
                    raise ValueError(f"the gazetteer {name!r} must hold texts or lists of tokens, got {entry!r}")
                row = tuple(lower_case(str(w)) for w in (entry.split() if isinstance(entry, str) else entry))
                if not row:
                    raise ValueError(f"the gazetteer {name!r} has an empty entry")
                place.setdefault(row, set()).add(i)
        member = np.zeros((len(place), len(given)), bool)
        for k, lists in enumerate(place.values()):
            member[k, list(lists)] = True
        return cls(list(given), Entries.of("lower", place), member, similarity)

    @property
    def width(self) -> int:
        """Number of attributes."""
        return len(self.titles) * (1 + (0 if self.similarity is None else len(_SIMILAR)))

    def names(self) -> list[str]:
        """Of the attributes."""
        near = [] if self.similarity is None else [f" similar~{x:g}" for x in _SIMILAR]
        return [f"in {name}{more}" for more in ("", *near) for name in self.titles]

    def find(self, columns: Columns, longest: int, first: int, out: Found, n_jobs: Any, known: Known | None) -> None:
        """Adds the attributes of segments in a text, in training as later."""
        if not len(self.member):
            return
        start, length, entry = self.entries.find(columns, longest, n_jobs)
        row, which = np.nonzero(self.member[entry])
        out.add(np.asarray(start)[row], np.asarray(length)[row], first + which)
        if self.similarity is None:
            return
        seen, threads = self.entries.see(columns), resolve_threads(n_jobs)
        start, length, entry, value = self.entries.trie.similar(
            seen, columns.offsets, longest, self.similarity, threads
        )
        row, which = np.nonzero(self.member[entry])
        near = np.maximum(np.searchsorted(_SIMILAR, np.asarray(value)[row] + 1e-6, side="right") - 1, 0)
        out.add(np.asarray(start)[row], np.asarray(length)[row], first + (1 + near) * len(self.titles) + which)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """For a model file."""
        return {**self.entries.arrays(), "member": self.member.astype(np.uint8)}

    @classmethod
    def restore(cls, titles: list[str], similarity: float | None, arrays: Arrays) -> Lists:
        """From a model file; checked."""
        entries = Entries.restore("lower", arrays)
        member = arrays.of_kind("member", "u", (len(entries.ptr) - 1, len(titles)))
        return cls(titles, entries, member.astype(bool), similarity)
