"""Hard constraints: which labels may follow which, from rules or from the labels' names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crfkit.base.shown import Record


class Scheme(NamedTuple):
    """Pairs of tags that may be adjacent within one type, tags that may begin a chunk, and tags that may end one."""

    within: frozenset[str]
    begins: frozenset[str]
    ends: frozenset[str]

    @property
    def tags(self) -> frozenset[str]:
        """All tags of the scheme."""
        return frozenset("".join(self.within)) | self.begins | self.ends


#: The chunking schemes; "bio" is IOB2.
SCHEMES = {
    "bio": Scheme(frozenset({"BI", "II"}), frozenset("B"), frozenset("BI")),
    "iob1": Scheme(frozenset({"BI", "II", "IB", "BB"}), frozenset("I"), frozenset("BI")),
    "bioes": Scheme(frozenset({"BI", "BE", "II", "IE"}), frozenset("BS"), frozenset("ES")),
    "bilou": Scheme(frozenset({"BI", "BL", "II", "IL"}), frozenset("BU"), frozenset("LU")),
}
#: Tags of all schemes; of these and O, those that go on with no chunk, and those after which none goes on.
TAGS = frozenset[str]().union(*(scheme.tags for scheme in SCHEMES.values()))
_OPENING = {"O"} | TAGS - {pair[1] for scheme in SCHEMES.values() for pair in scheme.within if pair[1] != "B"}
_CLOSING = {"O"} | TAGS - {pair[0] for scheme in SCHEMES.values() for pair in scheme.within}


def split_label(label: str) -> tuple[str, str]:
    """Tag and type of a chunk label; ``("O", "")`` outside chunks.

    >>> split_label("B-NP"), split_label("I"), split_label("O")
    (('B', 'NP'), ('I', ''), ('O', ''))
    """
    if label == "O":
        return "O", ""
    tag, _, kind = label.partition("-")
    return tag, kind


@lru_cache(maxsize=65536)
def chunk_part(label: Any) -> tuple[str, Any]:
    """Tag and type. A label without a tag is a chunk of its own type, whose neighbours of that type belong to it.

    >>> chunk_part("B-NP"), chunk_part("NOUN"), chunk_part(3)
    (('B', 'NP'), ('I', 'NOUN'), ('I', 3))
    """
    tag, kind = split_label(label) if isinstance(label, str) else ("", "")
    return (tag, kind) if tag == "O" or tag in TAGS else ("I", label)


def goes_on(before: tuple[str, Any], part: tuple[str, Any]) -> bool:
    """Whether a label continues the chunk of the label before it, both as :func:`chunk_part` returns them.

    They must have the same type, the one before must not end chunks (E, L, S, U), and this one must not begin them
    (B, S, U).

    >>> goes_on(("B", "NP"), ("I", "NP")), goes_on(("E", "NP"), ("I", "NP")), goes_on(("O", ""), ("I", "NP"))
    (True, False, False)
    """
    return before[1] == part[1] and before[0] not in _CLOSING and part[0] not in _OPENING


@dataclass(frozen=True, eq=False, repr=False)
class Constraints(Record):
    """Which labels may begin a sequence, end it, and follow each other.

    Attributes
    ----------
    transitions : bool array [L, L]
        Whether label i may be followed by label j.
    start : bool array [L]
        Whether a sequence may begin with each label.
    end : bool array [L]
        Whether a sequence may end with each label.

    Examples
    --------
    >>> rules = Constraints.from_scheme(["B-X", "I-X", "O"], "bio")
    >>> rules.transitions.astype(int)
    array([[1, 1, 1],
           [1, 1, 1],
           [1, 0, 1]])
    >>> rules.start
    array([ True, False,  True])
    """

    transitions: NDArray[np.bool_]
    start: NDArray[np.bool_]
    end: NDArray[np.bool_]

    def __post_init__(self) -> None:
        n = len(np.atleast_1d(self.start))
        for name, shape in (("transitions", (n, n)), ("start", (n,)), ("end", (n,))):
            value = np.asarray(getattr(self, name))
            if value.dtype != np.bool_ or value.shape != shape:
                raise ValueError(
                    f"{name!r} of Constraints must be a bool array of shape {shape}, got {value.dtype} {value.shape}"
                )
            object.__setattr__(self, name, value)

    @classmethod
    def _restored(cls, arrays: Mapping[str, NDArray[Any]]) -> Constraints:
        """Those of a model file, which must allow some labelling."""
        for name in ("start", "end"):
            if not arrays[name].any():
                raise ValueError(f"'constraints.{name}' must allow a label")
        return cls(**{name: arrays[name] for name in ("transitions", "start", "end")})

    @classmethod
    def from_scheme(cls, labels: Sequence[str], scheme: str) -> Constraints:
        """The rules of a chunking scheme: ``"bio"`` (IOB2), ``"iob1"``, ``"bioes"`` or ``"bilou"``."""
        scheme = scheme.lower()
        if scheme not in SCHEMES:
            raise ValueError(f"'constraints' must be one of {sorted(SCHEMES)}, got {scheme!r}")
        within, begins, ends = SCHEMES[scheme]
        tags = SCHEMES[scheme].tags
        for label in labels:
            if not isinstance(label, str):
                raise ValueError(f"label {label!r} does not fit scheme {scheme!r}: it must be a str")
        parts = [split_label(label) for label in labels]
        for label, (tag, _) in zip(labels, parts, strict=True):
            if label != "O" and tag not in tags:
                names = ", ".join(f"{t}-TYPE" for t in sorted(tags))
                raise ValueError(f"label {label!r} does not fit scheme {scheme!r}: expected O, {names}")

        def may_begin(part: tuple[str, str]) -> bool:
            return part[0] == "O" or part[0] in begins

        def may_end(part: tuple[str, str]) -> bool:
            return part[0] == "O" or part[0] in ends

        def may_follow(a: tuple[str, str], b: tuple[str, str]) -> bool:
            if a[0] != "O" and a[1] == b[1] and a[0] + b[0] in within:
                return True
            return may_end(a) and may_begin(b)

        return cls(
            np.array([[may_follow(a, b) for b in parts] for a in parts], dtype=bool),
            np.array([may_begin(a) for a in parts], dtype=bool),
            np.array([may_end(a) for a in parts], dtype=bool),
        )

    @classmethod
    def from_forbidden(cls, labels: Sequence[str], pairs: Iterable[tuple[str, str]]) -> Constraints:
        """Allows everything except the given (label, next label) pairs."""
        number = {label: i for i, label in enumerate(labels)}
        n = len(number)
        transitions = np.ones((n, n), bool)
        for pair in pairs:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise ValueError(f"'constraints' must hold (label, next label) pairs, got {pair!r}")
            for label in pair:
                if label not in number:
                    raise ValueError(f"'constraints' name the label {label!r}, which does not occur in the data")
            transitions[number[pair[0]], number[pair[1]]] = False
        return cls(transitions, np.ones(n, bool), np.ones(n, bool))

    def as_scores(self) -> NDArray[np.float64]:
        """0 where allowed, minus infinity where not: transitions, start, end, one after another [L (L + 2)]."""
        allowed = np.concatenate([self.transitions.ravel(), self.start, self.end])
        return np.where(allowed, 0.0, -np.inf)
