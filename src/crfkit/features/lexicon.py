"""Knowledge about words from outside the data: classes, gazetteers and vectors, as encoders use them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.fields import Arrays, list_of, one_of, record, text

#: How words are looked up: as they are, in lower case, or as they are and, if they are not known so, in lower case.
FOLDINGS = ("exact", "lower", "either")
_PART = record({"folding": one_of(*FOLDINGS)}, closed=True)
_CONFIG = record(
    {
        "classes": list_of(_PART, 0, 64),
        "gazetteers": list_of(_PART, 0, 4096),
        "vectors": list_of(_PART, 0, 1),
    },
    {"digest": text},
    closed=True,
)


def table_arrays(table: _core.StringTable, name: str = "words") -> dict[str, NDArray[Any]]:
    """Strings for a file."""
    raw, ends = table.arrays()
    return {f"{name}.bytes": raw, f"{name}.ends": ends}


def restored_table(arrays: Arrays, name: str = "words") -> _core.StringTable:
    """Strings from a file."""
    raw = arrays.of_kind(f"{name}.bytes", "u", (None,))
    ends = arrays.of_kind(f"{name}.ends", "u", (None,))
    return _core.StringTable.from_arrays(raw.astype(np.uint8), ends.astype(np.uint64))


@dataclass(frozen=True, eq=False)
class Part:
    """A table of words: arrays, and the core's object of them."""

    folding: str
    arrays: Mapping[str, NDArray[Any]]
    native: Any = field(repr=False)


def class_part(folding: str, arrays: Arrays) -> Part:
    """Words and the strings of their classes: ``words``, ``codes``, ``class`` [words]."""
    words, codes = restored_table(arrays), restored_table(arrays, "codes")
    of_word = arrays.of_kind("class", "u", (len(words),)).astype(np.uint32)
    kept = {**table_arrays(words), **table_arrays(codes, "codes"), "class": of_word}
    return Part(folding, kept, _core.ClassTable(words, folding, codes, of_word))


def gazetteer_part(folding: str, arrays: Arrays) -> Part:
    """Phrases: ``words``, and the trie ``first``, ``label`` and ``last``."""
    first, label = (arrays.of_kind(name, "u", (None,)).astype(np.uint32) for name in ("first", "label"))
    last = arrays.of_kind("last", "u", (None,)).astype(np.uint8)
    words = restored_table(arrays)
    kept = {**table_arrays(words), "first": first, "label": label, "last": last}
    return Part(folding, kept, _core.Gazetteer(words, folding, first, label, last))


def vector_part(folding: str, arrays: Arrays) -> Part:
    """Words and their vectors: ``words``, ``values`` [words, numbers]."""
    words = restored_table(arrays)
    values = np.ascontiguousarray(arrays.of_kind("values", "f", (len(words), None)), np.float32)
    kept = {**table_arrays(words), "values": values}
    return Part(folding, kept, _core.VectorTable(words, folding, values))


_MAKERS = {"classes": class_part, "gazetteers": gazetteer_part, "vectors": vector_part}


class Lexicon:
    """Tables of words that an encoder looks at; never changes.

    The plan names its columns by their numbers: first the classes, then the gazetteers; and the numbers of vectors.
    """

    def __init__(
        self, classes: Sequence[Part] = (), gazetteers: Sequence[Part] = (), vectors: Sequence[Part] = ()
    ) -> None:
        self.parts = {"classes": tuple(classes), "gazetteers": tuple(gazetteers), "vectors": tuple(vectors)}
        vector = vectors[0].native if vectors else None
        self.native = _core.Lexicon([x.native for x in classes], [x.native for x in gazetteers], vector)

    def __repr__(self) -> str:
        return f"<Lexicon: {self.native.n_columns} columns, {self.native.n_numbers} numbers>"

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Lexicon) and self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Lexicon.restore, (self.config(), Arrays(self.arrays()))

    @cached_property
    def digest(self) -> str:
        """A digest that distinguishes it from others."""
        made = hashlib.blake2b(digest_size=16)
        for kind, k, part in self._each():
            made.update(repr((kind, k, part.folding)).encode())
            for name, x in sorted(part.arrays.items()):
                made.update(repr((name, x.shape)).encode())
                made.update(np.ascontiguousarray(x).reshape(-1).view(np.uint8).data)
        return made.hexdigest()

    def _each(self) -> Iterable[tuple[str, int, Part]]:
        return ((kind, k, part) for kind, parts in self.parts.items() for k, part in enumerate(parts))

    def config(self) -> dict[str, Any]:
        """What a file needs besides the arrays."""
        parts = {kind: [{"folding": part.folding} for part in parts] for kind, parts in self.parts.items()}
        return {**parts, "digest": self.digest}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All tables, for a file."""
        return {f"{kind}.{k}.{name}": x for kind, k, part in self._each() for name, x in part.arrays.items()}

    @classmethod
    def restore(cls, config: Any, arrays: Arrays) -> Lexicon:
        """The lexicon that a file holds; raises unless it is sound."""
        known: dict[str, Any] = _CONFIG(config, "encoder.lexicon")
        made: dict[str, list[Part]] = {}
        for kind, make in _MAKERS.items():
            groups = arrays.parts(kind, len(known[kind]))
            made[kind] = [make(part["folding"], group) for part, group in zip(known[kind], groups, strict=True)]
        out = cls(**made)
        if odd := arrays.keys() - out.arrays().keys():
            raise ValueError(f"the array '{arrays.prefix}{min(odd)[:60]}' does not belong to the lexicon")
        return out
