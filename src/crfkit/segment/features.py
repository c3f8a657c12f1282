"""Features of whole segments: entries of dictionaries, shapes, similarity, and what a function says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.fields import Arrays, flag, list_of, number, optional, record, text
from crfkit.base.shown import Record
from crfkit.base.threads import resolve_threads
from crfkit.data.dataset import NONE
from crfkit.data.sequences import Columns
from crfkit.data.tokens import lower_case
from crfkit.segment.known import Known
from crfkit.segment.objective import Items

Function = Callable[[Sequence[Any], int, int], Any]
_SIMILAR = np.array([0.6, 0.7, 0.8, 0.9, 0.999])
_SHARES = np.array([0.25, 0.5, 0.75, 0.95])  # of occurrences that are segments, and how often
_TIMES = np.array([2, 4, 10])
_ENDS = np.array([0.02, 0.1, 0.3, 0.6])  # shares of a word's occurrences that begin, or end, a segment
_INSIDE = np.array([0.1, 0.25, 0.4, 0.6, 0.8])  # mean shares of words' occurrences that are inside of segments
_LONG = np.array([2, 3, 5])


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
_VIEWS: dict[str, Callable[[str], str]] = {"word": str, "lower": str.lower, "shape": word_shape}


@dataclass(frozen=True)
class SegmentFeatures(Record):
    r"""Features of whole segments, for :class:`SegmentCRF`.

    Segments are found by native code, and only those that have a feature cost anything.

    Parameters
    ----------
    dictionary : bool, default=True
        Whether each text that was a segment in training is an attribute of segments with this text; case does not
        matter.
    shape : bool, default=False
        The same for the segments' shapes, such as ``Aaa 00``.
    gazetteers : dict of names to texts, optional
        Lists of known names: strings, tokens separated by blanks, or lists of tokens. A segment that is in one has an
        attribute; case does not matter.
    similarity : float, optional
        Also give an attribute to segments whose similarity to an entry of a gazetteer is at least this: the cosine of
        their words, weighted by how rare they are.
    seen : bool, default=False
        Whether segments have an attribute for how often, and in which share of its occurrences, their text is a segment
        in the *other* sentences of the training data; and for how often their first word begins segments there, their
        last word ends them, and their words are inside of them. Case does not matter. Sentences of the training data do
        not count for themselves, so that a text counts in training as it will in new sentences.
    function : callable, optional
        Called as ``f(sequence, start, end)`` for every segment that is short enough; returns attributes, as a list of
        strings or a dict of strings and numbers, or None.

    Examples
    --------
    >>> from crfkit import SegmentCRF
    >>> from crfkit.segment import SegmentFeatures
    >>> features = SegmentFeatures(gazetteers={"city": ["New York", "Rome"]})
    >>> crf = SegmentCRF(segments=features, max_length=2, c2=0.1)
    >>> crf = crf.fit([["in", "New", "York"], ["to", "Rome"]], [[(1, 3, "LOC")], [(1, 2, "LOC")]])
    >>> crf.predict_entities([["from", "New", "York"]])[0][0].text
    'New York'
    """

    dictionary: bool = True
    shape: bool = False
    gazetteers: Mapping[str, Iterable[Any]] | None = None
    similarity: float | None = None
    function: Function | None = None
    seen: bool = False

    def __post_init__(self) -> None:
        for name in ("dictionary", "shape", "seen"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ValueError(f"{name!r} of SegmentFeatures must be True or False, got {getattr(self, name)!r}")
        if self.function is not None and not callable(self.function):
            raise ValueError(f"'function' of SegmentFeatures must be callable, got {self.function!r}")
        if self.gazetteers is not None and not isinstance(self.gazetteers, Mapping):
            raise ValueError(
                f"'gazetteers' of SegmentFeatures must be a dict of names and lists, got {self.gazetteers!r}"
            )
        for name, texts in (self.gazetteers or {}).items():
            if not isinstance(name, str) or isinstance(texts, (str, bytes, Mapping)) or not isinstance(texts, Iterable):
                raise ValueError(f"'gazetteers' of SegmentFeatures must have lists of texts, got {name!r}: {texts!r}")
        if self.similarity is None:
            return
        kind = isinstance(self.similarity, (int, float, np.number)) and not isinstance(self.similarity, bool)
        if not kind or not 0 < self.similarity <= 1:
            raise ValueError(f"'similarity' of SegmentFeatures must be above 0 and at most 1, got {self.similarity!r}")
        if not self.gazetteers:
            raise ValueError("'similarity' of SegmentFeatures is one to entries of 'gazetteers', which must be given")


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
        view = _VIEWS[self.view]
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
        words = [_VIEWS[view](word) for word in columns.texts()]
        ids = columns.ids[:, 0].tolist()
        rows = dict.fromkeys(tuple(words[i] for i in ids[a:b]) for a, b, _ in segments.tolist())
        return cls(name, Entries.of(view, rows))

    def find(self, columns: Columns, longest: int, first: int, out: Found, n_jobs: Any) -> None:
        """Adds the attributes of segments in a text."""
        if self.width:
            start, length, entry = self.entries.find(columns, longest, n_jobs)
            out.add(start, length, first + entry.astype(np.int64))


@dataclass(eq=False)
class Lists:
    """Gazetteers, side by side as one set of entries."""

    names: list[str]
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
        return len(self.names) * (1 + (0 if self.similarity is None else len(_SIMILAR)))

    def attribute_names(self) -> list[str]:
        """Of the attributes."""
        near = [] if self.similarity is None else [f" similar~{x:g}" for x in _SIMILAR]
        return [f"in {name}{more}" for more in ("", *near) for name in self.names]

    def find(self, columns: Columns, longest: int, first: int, out: Found, n_jobs: Any) -> None:
        """Adds the attributes of segments in a text."""
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
        out.add(np.asarray(start)[row], np.asarray(length)[row], first + (1 + near) * len(self.names) + which)


@dataclass(eq=False)
class Seen:
    """How often texts occur in a training set, and how often they are segments there.

    Attributes
    ----------
    entries : Entries
    labels : list of str
    occurrences : int64 [E]
    segments : int64 [E, L]
    """

    entries: Entries
    labels: list[str]
    occurrences: NDArray[np.int64]
    segments: NDArray[np.int64]

    @classmethod
    def learn(cls, columns: Columns, known: Known, labels: Sequence[Any], longest: int, skip: int) -> Seen:
        """Counts of a training set, without segments of the label ``skip``."""
        texts = Texts.learn("seen", "lower", columns, known, longest, skip)
        n = texts.width, len(labels)
        out = cls(texts.entries, [str(x) for x in labels], np.zeros(n[0], np.int64), np.zeros(n, np.int64))
        if n[0]:
            start, length, entry = texts.entries.find(columns, longest, None)
            label = _labels_at(start, length, known)
            out.occurrences += np.bincount(entry, minlength=n[0])
            counted = (label >= 0) & (label != skip)
            np.add.at(out.segments, (entry[counted], label[counted]), 1)
        return out

    @property
    def width(self) -> int:
        """Number of attributes."""
        return len(self.labels) * (len(_SHARES) + 1) * (len(_TIMES) + 1)

    def names(self) -> list[str]:
        """Of the attributes."""
        shares, times = ("0", *(f"{x:g}" for x in _SHARES)), ("1", *map(str, _TIMES))
        return [f"seen as {label}: times>={n} share>={x}" for label in self.labels for n in times for x in shares]

    def find(self, columns: Columns, longest: int, first: int, out: Found, n_jobs: Any, known: Known | None) -> None:
        """Adds the attributes of segments in a text; ``known``: it is the training set, with these labels."""
        if not len(self.occurrences):
            return
        start, length, entry = self.entries.find(columns, longest, n_jobs)
        total, segments = self.occurrences[entry], self.segments[entry]
        if known is not None:
            sentence = np.searchsorted(columns.offsets, start, side="right") - 1
            _, same = np.unique(sentence * len(self.occurrences) + entry, return_inverse=True)
            label = _labels_at(start, length, known)
            own = np.zeros((int(same.max(initial=-1)) + 1, len(self.labels)), np.int64)
            np.add.at(own, (same[label >= 0], label[label >= 0]), 1)
            total, segments = total - np.bincount(same)[same], segments - own[same]
        row, label = np.nonzero(segments > 0)
        times = segments[row, label]
        share = np.searchsorted(_SHARES, times / np.maximum(total[row], 1), side="right")
        kind = (label * (len(_TIMES) + 1) + np.searchsorted(_TIMES, times, side="right")) * (len(_SHARES) + 1) + share
        out.add(np.asarray(start)[row], np.asarray(length)[row], first + kind)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """For a model file."""
        return {**self.entries.arrays(), "occurrences": self.occurrences, "segments": self.segments}

    @classmethod
    def restore(cls, arrays: Arrays, labels: Sequence[Any]) -> Seen:
        """From a model file; checked."""
        entries = Entries.restore("lower", arrays)
        shape = len(entries.ptr) - 1, len(labels)
        occurrences = arrays.of_kind("occurrences", "i", shape[:1]).astype(np.int64)
        segments = arrays.of_kind("segments", "i", shape).astype(np.int64)
        if (segments < 0).any() or (segments > occurrences[:, None]).any():
            raise ValueError("the counts of its segments do not fit their occurrences")
        return cls(entries, [str(x) for x in labels], occurrences, segments)


@dataclass(eq=False)
class SeenWords:
    """How often words occur in a training set, begin segments, end them, and are inside of them.

    Attributes
    ----------
    entries : Entries
        The words.
    counts : int64 [4, E]
        Of occurrences, beginnings, ends, and words inside.
    """

    entries: Entries
    counts: NDArray[np.int64]

    @classmethod
    def learn(cls, columns: Columns, known: Known, skip: int) -> SeenWords:
        """Counts of a training set, without segments of the label ``skip``."""
        entries = Entries.of("lower", dict.fromkeys((lower_case(word),) for word in columns.texts()))
        out, n = cls(entries, np.zeros((4, 0), np.int64)), len(entries.words)
        seen = entries.see(columns)
        out.counts = np.stack([np.bincount(seen[marked], minlength=n) for marked in _roles(known, skip)])
        return out

    @property
    def width(self) -> int:
        """Number of attributes."""
        return (len(_LONG) + 1) * (len(_ENDS) ** 2 + len(_INSIDE) + 1)

    def names(self) -> list[str]:
        """Of the attributes."""
        lengths = ("1", *map(str, _LONG))
        ends = [f"first>={a:g} last>={b:g}" for a in _ENDS for b in _ENDS]
        inside = [f"inside>={x:g}" for x in (0, *_INSIDE)]
        return [f"seen words: length>={n} {x}" for kinds in (ends, inside) for n in lengths for x in kinds]

    def find(
        self, columns: Columns, longest: int, first: int, out: Found, n_jobs: Any, known: Known | None, skip: int
    ) -> None:
        """Adds the attributes of segments in a text; ``known``: it is the training set, with these labels."""
        seen = self.entries.see(columns)
        there = seen != NONE
        if not len(self.entries.words):
            return
        counts = np.where(there, self.counts[:, np.where(there, seen, 0)], 0)
        sentence = np.searchsorted(columns.offsets, np.arange(len(seen)), side="right") - 1
        if known is not None:
            _, same = np.unique(sentence * len(self.entries.words) + seen, return_inverse=True)
            counts = counts - np.stack([np.bincount(same, marked)[same] for marked in _roles(known, skip)])
        shares = counts[1:] / np.maximum(counts[0], 1)
        begin, end = (np.searchsorted(_ENDS, x, side="right") for x in shares[:2])
        sums = np.concatenate([[0], np.cumsum(shares[2])])
        for length in range(1, min(longest, int(np.diff(columns.offsets).max(initial=0))) + 1):
            a = np.flatnonzero((begin[: len(seen) - length + 1] > 0) & (end[length - 1 :] > 0))
            a = a[sentence[a] == sentence[a + length - 1]]
            size = np.full(len(a), length)
            group = int(np.searchsorted(_LONG, length, side="right"))
            ends = (begin[a] - 1) * len(_ENDS) + end[a + length - 1] - 1
            out.add(a, size, first + group * len(_ENDS) ** 2 + ends)
            mean = np.searchsorted(_INSIDE, (sums[a + length] - sums[a]) / length + 1e-9, side="right")
            at = first + (len(_LONG) + 1) * len(_ENDS) ** 2 + group * (len(_INSIDE) + 1)
            out.add(a, size, at + mean)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """For a model file."""
        return {**self.entries.arrays(), "counts": self.counts}

    @classmethod
    def restore(cls, arrays: Arrays) -> SeenWords:
        """From a model file; checked."""
        entries = Entries.restore("lower", arrays)
        counts = arrays.of_kind("counts", "i", (4, len(entries.words))).astype(np.int64)
        if (counts < 0).any() or (counts > counts[0]).any():
            raise ValueError("the counts of its words do not fit their occurrences")
        return cls(entries, counts)


def _roles(known: Known, skip: int) -> NDArray[np.bool_]:
    """Whether tokens are there, begin a segment with another label than ``skip``, end one, and are inside, [4, N]."""
    table = known.segments()
    start, end = table[table[:, 2] != skip, :2].T
    n = len(known.labels)
    out = np.zeros((4, n), bool)
    out[0], out[1, start], out[2, end - 1] = True, True, True
    depth = np.bincount(start, minlength=n + 1) - np.bincount(end, minlength=n + 1)
    out[3] = np.cumsum(depth)[:n] > 0
    return out


def _labels_at(start: Any, length: Any, known: Known) -> NDArray[np.int64]:
    """The labels of the segments that are known to be at these places, -1 elsewhere."""
    table = known.segments()
    place = table[:, 0] * (len(known.labels) + 1) + table[:, 1] - table[:, 0]
    wanted = np.asarray(start, np.int64) * (len(known.labels) + 1) + length
    at = np.minimum(np.searchsorted(place, wanted), max(len(place) - 1, 0))
    return np.where(place[at] == wanted, table[at, 2], -1) if len(place) else np.full(len(wanted), -1)


def _named(found: Any, place: str) -> list[tuple[str, float]]:
    """Attributes that a function returned, with their values."""
    if found is None:
        return []
    if isinstance(found, Mapping):
        for k, v in found.items():
            if not isinstance(v, (int, float, np.number, np.bool_)) or not np.isfinite(v):
                raise ValueError(f"{place}: a function of segments must return finite numbers, got {k!r}: {v!r}")
        return [(str(k), float(v)) for k, v in found.items()]
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise ValueError(f"{place}: a function of segments must return attributes in a list or a dict, got {found!r}")
    return [(str(k), 1.0) for k in found]


@dataclass(eq=False)
class FeatureFinder:
    """Features of segments as a model has them: what was learnt from a training set, and what was given."""

    labels: Sequence[Any]
    texts: list[Texts] = field(default_factory=list)
    lists: Lists | None = None
    seen: Seen | None = None
    seen_words: SeenWords | None = None
    skip: int = -1
    function: Function | None = None
    function_names: dict[str, int] = field(default_factory=dict)
    needs_function: bool = False

    @classmethod
    def learn(
        cls, rule: SegmentFeatures, X: Any, known: Known, labels: Sequence[Any], longest: int, skip: int
    ) -> FeatureFinder:
        """Features of a training set."""
        out = cls(labels, function=rule.function, needs_function=rule.function is not None)
        for name, view, asked in (("text", "lower", rule.dictionary), ("shape", "shape", rule.shape)):
            if asked:
                out.texts.append(Texts.learn(name, view, _require_text(X), known, longest, skip))
        if rule.gazetteers:
            _require_text(X)
            out.lists = Lists.of(rule.gazetteers, rule.similarity)
        if rule.seen:
            out.seen = Seen.learn(_require_text(X), known, labels, longest, skip)
            out.seen_words, out.skip = SeenWords.learn(_require_text(X), known, skip), skip
        return out

    def find(self, X: Any, offsets: Any, longest: int, first: int, known: Known | None, n_jobs: Any) -> Items:
        """Segments of a text that have attributes, numbered from ``first`` on; ``known``: what is known in training."""
        out, at = Found(), 0
        for texts in self.texts:
            texts.find(_require_text(X), longest, at, out, n_jobs)
            at += texts.width
        if self.lists is not None:
            self.lists.find(_require_text(X), longest, at, out, n_jobs)
            at += self.lists.width
        if self.seen is not None:
            self.seen.find(_require_text(X), longest, at, out, n_jobs, known)
            at += self.seen.width
        if self.seen_words is not None:
            self.seen_words.find(_require_text(X), longest, at, out, n_jobs, known, self.skip)
            at += self.seen_words.width
        if self.needs_function:
            self._call(X, offsets, longest, at, known is not None, out)
        return out.items(int(offsets[-1]), first)

    def _call(self, X: Any, offsets: Any, longest: int, at: int, grow: bool, out: Found) -> None:
        if self.function is None:
            raise ValueError("the model needs its function of segments: give it with set_params(segments=f)")
        rows: list[tuple[int, int, int, float]] = []
        for i, (sequence, begin) in enumerate(zip(X, offsets.tolist(), strict=False)):
            tokens = list(sequence)
            for a in range(len(tokens)):
                for b in range(a + 1, min(len(tokens), a + longest) + 1):
                    place = f"sequence {i}, tokens {a} to {b}"
                    try:
                        given = self.function(tokens, a, b)
                    except Exception as e:
                        e.add_note(f"raised by the function of segments at {place}")
                        raise
                    for name, value in _named(given, place):
                        if grow:
                            self.function_names.setdefault(name, len(self.function_names))
                        if name in self.function_names:
                            rows.append((begin + a, b - a, at + self.function_names[name], value))
        if rows:
            out.add(*zip(*rows, strict=True))

    def names(self) -> list[str]:
        """Names of all attributes."""
        out = [name for texts in self.texts for name in texts.names()]
        out += [] if self.lists is None else self.lists.attribute_names()
        out += [] if self.seen is None else self.seen.names()
        out += [] if self.seen_words is None else self.seen_words.names()
        return [f"segment {name}" for name in (*out, *self.function_names)]

    def config(self) -> dict[str, Any]:
        """What a model file needs besides the arrays."""
        return {
            "texts": [[x.name, x.entries.view] for x in self.texts],
            "lists": None if self.lists is None else self.lists.names,
            "similarity": None if self.lists is None else self.lists.similarity,
            "seen": self.seen is not None,
            "function": self.needs_function,
            "function_names": list(self.function_names),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Entries and counts, for a model file."""
        out: dict[str, NDArray[Any]] = {}
        for i, texts in enumerate(self.texts):
            out |= {f"texts{i}.{k}": v for k, v in texts.entries.arrays().items()}
        if self.lists is not None:
            out |= {f"lists.{k}": v for k, v in self.lists.entries.arrays().items()}
            out["lists.member"] = self.lists.member.astype(np.uint8)
        if self.seen is not None:
            out |= {f"seen.{k}": v for k, v in self.seen.arrays().items()}
        if self.seen_words is not None:
            out |= {f"seen_words.{k}": v for k, v in self.seen_words.arrays().items()}
        return out

    @classmethod
    def restore(cls, config: Any, arrays: Arrays, labels: Sequence[Any], function: Any) -> FeatureFinder:
        """From a model file; checked."""
        head = _CONFIG(config, "segments")
        out = cls(labels, function=function, needs_function=head["function"])
        out.function_names = {name: i for i, name in enumerate(head["function_names"])}
        for i, (name, view) in enumerate(head["texts"]):
            if view not in _VIEWS:
                raise ValueError(f"'segments.texts' has an unknown view {view!r}")
            out.texts.append(Texts(name, Entries.restore(view, arrays.group(f"texts{i}"))))
        if head["lists"] is not None:
            mine = arrays.group("lists")
            entries = Entries.restore("lower", mine)
            member = mine.of_kind("member", "u", (len(entries.ptr) - 1, len(head["lists"])))
            out.lists = Lists(head["lists"], entries, member.astype(bool), head["similarity"])
        if head.get("seen"):
            out.seen = Seen.restore(arrays.group("seen"), labels)
            out.seen_words = SeenWords.restore(arrays.group("seen_words"))
        return out


_CONFIG = record(
    {
        "texts": list_of(list_of(text, 2, 2), 0, 8),
        "lists": optional(list_of(text)),
        "similarity": optional(number(0)),
        "function": flag,
        "function_names": list_of(text),
    },
    {"seen": flag},
    closed=True,
)


def _require_text(X: Any) -> Columns:
    if not isinstance(X, Columns):
        raise ValueError("features of segments need text as tokens, not attributes: give text, or a function")
    return X
