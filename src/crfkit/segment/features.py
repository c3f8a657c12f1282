"""Features of whole segments: entries of dictionaries, shapes, similarity, and what a function says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit.base.fields import Arrays, flag, list_of, number, optional, record, text
from crfkit.base.shown import Record
from crfkit.data.sequences import Columns
from crfkit.segment.entries import Found, Lists, Texts
from crfkit.segment.known import Known
from crfkit.segment.objective import Items
from crfkit.segment.seen import Seen, SeenWords

Function = Callable[[Sequence[Any], int, int], Any]


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
        attribute; case does not matter. An open file is read here.
    similarity : float, optional
        Also give an attribute to segments whose similarity to an entry of a gazetteer is at least this: the cosine of
        their words, weighted by how rare they are.
    seen : bool, default=False
        Whether segments have an attribute for how often, and in which share of its occurrences, their text is a segment
        in the *other* sentences of the training data; and for how often their first word begins segments there, their
        last word ends them, and their words are within them. Case does not matter. Sentences of the training data do
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
        if self.gazetteers is not None:  # files and generators are read once
            object.__setattr__(self, "gazetteers", {name: tuple(texts) for name, texts in self.gazetteers.items()})
        if self.similarity is None:
            return
        kind = isinstance(self.similarity, (int, float, np.number)) and not isinstance(self.similarity, bool)
        if not kind or not 0 < self.similarity <= 1:
            raise ValueError(f"'similarity' of SegmentFeatures must be above 0 and at most 1, got {self.similarity!r}")
        if not self.gazetteers:
            raise ValueError("'similarity' of SegmentFeatures is one to entries of 'gazetteers', which must be given")


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
            out.seen_words = SeenWords.learn(_require_text(X), known, skip)
        return out

    def _parts(self) -> dict[str, Texts | Lists | Seen | SeenWords]:
        """What looks segments up, in the order of the attributes, by the names of its arrays in a model file."""
        more = {"lists": self.lists, "seen": self.seen, "seen_words": self.seen_words}
        return {f"texts{i}": x for i, x in enumerate(self.texts)} | {k: x for k, x in more.items() if x is not None}

    def find(
        self, X: Any, offsets: Any, longest: int, first: int, known: Known | None, n_jobs: Any, grow: bool = False
    ) -> Items:
        """Segments of a text that have attributes, numbered from ``first`` on.

        ``known``: it is the training set, with these labels; ``grow``: what the function names anew is an attribute.
        """
        out, at = Found(), 0
        for part in self._parts().values():
            part.find(_require_text(X), longest, at, out, n_jobs, known)
            at += part.width
        if self.needs_function:
            self._call(X, offsets, longest, at, grow, out)
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
        out = [name for part in self._parts().values() for name in part.names()]
        return [f"segment {name}" for name in (*out, *self.function_names)]

    def config(self) -> dict[str, Any]:
        """What a model file needs besides the arrays."""
        return {
            "texts": [[x.name, x.entries.view] for x in self.texts],
            "lists": None if self.lists is None else self.lists.titles,
            "similarity": None if self.lists is None else self.lists.similarity,
            "seen": self.seen is not None,
            "function": self.needs_function,
            "function_names": list(self.function_names),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Entries and counts, for a model file."""
        return {f"{name}.{k}": x for name, part in self._parts().items() for k, x in part.arrays().items()}

    @classmethod
    def restore(cls, config: Any, arrays: Arrays, labels: Sequence[Any], function: Any, skip: int) -> FeatureFinder:
        """From a model file; checked."""
        head = _CONFIG(config, "segments")
        out = cls(labels, function=function, needs_function=head["function"])
        out.function_names = {name: i for i, name in enumerate(head["function_names"])}
        for i, (name, view) in enumerate(head["texts"]):
            out.texts.append(Texts.restore(name, view, arrays.group(f"texts{i}")))
        if head["lists"] is not None:
            out.lists = Lists.restore(head["lists"], head["similarity"], arrays.group("lists"))
        if head.get("seen"):
            out.seen = Seen.restore(arrays.group("seen"), labels)
            out.seen_words = SeenWords.restore(arrays.group("seen_words"), skip)
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
