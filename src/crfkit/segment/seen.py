"""How often texts and words are segments, or parts of them, in a training set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit.base.fields import Arrays
from crfkit.data.dataset import NONE
from crfkit.data.sequences import Columns
from crfkit.data.tokens import lower_case
from crfkit.segment.entries import Entries, Found, Texts
from crfkit.segment.known import Known

_SHARES = np.array([0.25, 0.5, 0.75, 0.95])  # of occurrences that are segments, and how often
_TIMES = np.array([2, 4, 10])
_ENDS = np.array([0.02, 0.1, 0.3, 0.6])  # shares of a word's occurrences that begin, or end, a segment
_INSIDE = np.array([0.1, 0.25, 0.4, 0.6, 0.8])  # mean shares of words' occurrences that are within segments
_LONG = np.array([2, 3, 5])


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
    """How often words occur in a training set, begin segments, end them, and are within them.

    Attributes
    ----------
    entries : Entries
        The words.
    counts : int64 [4, E]
        Of occurrences, beginnings, ends, and words inside.
    skip : int
        Label whose segments do not count; -1 for none.
    """

    entries: Entries
    counts: NDArray[np.int64]
    skip: int

    @classmethod
    def learn(cls, columns: Columns, known: Known, skip: int) -> SeenWords:
        """Counts of a training set."""
        entries = Entries.of("lower", dict.fromkeys((lower_case(word),) for word in columns.texts()))
        out, n = cls(entries, np.zeros((4, 0), np.int64), skip), len(entries.words)
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

    def find(self, columns: Columns, longest: int, first: int, out: Found, n_jobs: Any, known: Known | None) -> None:
        """Adds the attributes of segments in a text; ``known``: it is the training set, with these labels."""
        seen = self.entries.see(columns)
        there = seen != NONE
        if not len(self.entries.words):
            return
        counts = np.where(there, self.counts[:, np.where(there, seen, 0)], 0)
        sentence = np.searchsorted(columns.offsets, np.arange(len(seen)), side="right") - 1
        if known is not None:
            _, same = np.unique(sentence * len(self.entries.words) + seen, return_inverse=True)
            counts = counts - np.stack([np.bincount(same, marked)[same] for marked in _roles(known, self.skip)])
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
    def restore(cls, arrays: Arrays, skip: int) -> SeenWords:
        """From a model file; checked."""
        entries = Entries.restore("lower", arrays)
        counts = arrays.of_kind("counts", "i", (4, len(entries.words))).astype(np.int64)
        if (counts < 0).any() or (counts > counts[0]).any():
            raise ValueError("the counts of its words do not fit their occurrences")
        return cls(entries, counts, skip)


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
