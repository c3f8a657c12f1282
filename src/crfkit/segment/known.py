"""What is known of segmentations: labels of tokens and borders between them, from chunk tags or from spans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit.base.messages import are_counted, counted
from crfkit.data.labels import Hints, check_label_texts, distribution, in_label_order, label_numbers

ANY, BORDER, INNER = 0, 1, 2  # as the core has them
_BEGIN, _INSIDE = "BSU", "IELM"


def split_tag(label: Any) -> tuple[str, Any]:
    """Prefix and type of a chunk tag: B-X, I-X, E-X, S-X, L-X, U-X; others have no prefix.

    >>> split_tag("B-PER"), split_tag("O"), split_tag(3)
    (('B', 'PER'), ('', 'O'), ('', 3))
    """
    if isinstance(label, str) and len(label) > 2 and label[1] == "-" and label[0] in "BIESLUM":
        return label[0], label[2:]
    return "", label


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of the segmentations of sequences.

    Attributes
    ----------
    labels : int32 [N]
        Numbers of the labels; -1 for nothing known, -2 - k for hint k.
    hints : float64 [H, L]
    borders : uint8 [N]
        ``BORDER`` where a segment begins with the token, ``INNER`` where none does, ``ANY`` elsewhere.
    offsets : int64 [S + 1]
    inner : int64 [M, 2]
        (token, label): a segment with the label that begins with the token has a score of its own.
    inner_scores : float64 [M]
        Minus infinity where none begins, but one with another label may; for soft labels, what a beginning adds.
    """

    labels: NDArray[np.int32]
    hints: Hints
    borders: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    inner: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    inner_scores: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    @property
    def full(self) -> NDArray[np.bool_]:
        """Whether all is known of a sequence, [S]."""
        return self._none((self.labels < 0) | (self.borders == ANY))

    @property
    def unknown(self) -> NDArray[np.bool_]:
        """Whether nothing is known of a sequence that has tokens, [S]."""
        return self._none((self.labels != -1) | (self.borders != ANY)) & (np.diff(self.offsets) > 0)

    def _none(self, marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        sums = np.concatenate([[0], np.cumsum(marked)])
        return np.asarray(sums[self.offsets[1:]] == sums[self.offsets[:-1]])

    def blocks(self) -> NDArray[np.int64]:
        """(start, end) of the longest runs of tokens between which no segment may begin, [M, 2]."""
        cuts = np.append(np.flatnonzero(self.borders != INNER), len(self.borders))
        return np.stack([cuts[:-1], cuts[1:]], axis=1)

    def segments(self) -> NDArray[np.int64]:
        """(start, end, label) of the segments of which all is known, in tokens of all sequences, [M, 3]."""
        starts = np.flatnonzero(self.borders == BORDER)
        cuts = np.union1d(np.flatnonzero(self.borders != INNER), self.offsets)
        ends = cuts[np.searchsorted(cuts, starts, side="right")]
        whole = (self.labels[starts] >= 0) & ((ends == len(self.labels)) | (self._at(ends) != ANY) | self._last(ends))
        rows: NDArray[np.int64] = np.stack([starts, ends, self.labels[starts]], axis=1).astype(np.int64)[whole]
        return rows

    def by_sequence(self) -> list[NDArray[np.int64]]:
        """The same of each sequence, in its tokens."""
        rows = self.segments()
        parts = np.split(rows, np.searchsorted(rows[:, 0], self.offsets[1:-1]))
        return [part - [o, o, 0] for part, o in zip(parts, self.offsets[:-1], strict=False)]

    def _at(self, ends: NDArray[np.int64]) -> NDArray[np.uint8]:
        return np.append(self.borders, BORDER).astype(np.uint8)[ends]

    def _last(self, ends: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.isin(ends, self.offsets)


def are_spans(y: Any) -> bool:
    """Whether labels come as spans, (start, end, label), and not token by token."""
    if not isinstance(y, (list, tuple)):
        return False
    for sequence in y:
        for one in sequence if isinstance(sequence, (list, tuple)) else ():
            return isinstance(one, (tuple, list))
    return False


def as_tags(y: Any, lengths: NDArray[np.int64], outside: Any) -> list[list[Any] | None]:
    """Spans as chunk tags B-X and I-X; what they leave out is outside, as are spans of that label. None stays None.

    >>> as_tags([[(1, 3, "X")]], np.array([4]), "O")
    [['O', 'B-X', 'I-X', 'O']]
    """
    if len(y) != len(lengths):
        raise ValueError(f"there {are_counted(len(lengths), 'sequence')}, but spans for {len(y)}")
    out: list[list[Any] | None] = []
    for i, (spans, n) in enumerate(zip(y, lengths.tolist(), strict=True)):
        if spans is None:
            out.append(None)
            continue
        tags, before = [outside] * n, 0
        for start, end, label in sorted(_checked(spans, f"sequence {i}"), key=lambda x: x[:2]):
            if not 0 <= start < end <= n:
                raise ValueError(f"sequence {i}: the span {(start, end, label)!r} must lie within its {n} tokens")
            if start < before:
                raise ValueError(f"sequence {i}: the span {(start, end, label)!r} overlaps another")
            before = end
            if label != outside:
                tags[start:end] = [f"B-{label}", *[f"I-{label}"] * (end - start - 1)]
        out.append(tags)
    return out


def _checked(spans: Any, place: str) -> list[tuple[int, int, Any]]:
    """Spans with plain numbers; raises ValueError where something else is."""
    if isinstance(spans, str) or not isinstance(spans, Iterable):
        raise ValueError(f"{place}: spans must be a list, got {spans!r}")
    out: list[tuple[int, int, Any]] = []
    for span in spans:
        if isinstance(span, (tuple, list)) and len(span) != 3:
            raise ValueError(f"{place}: a span must be (start, end, label), got {span!r}")
        if not isinstance(span, (tuple, list)):
            raise ValueError(f"{place}: spans (start, end, label) and labels of tokens cannot be mixed, got {span!r}")
        start, end, label = span
        for x in (start, end):
            if isinstance(x, bool) or not isinstance(x, (int, np.integer)):
                raise ValueError(f"{place}: start and end of a span must be ints, got {span!r}")
        if not isinstance(label, str) or label == "":
            raise ValueError(f"{place}: the label of a span must be a str, got {span!r}")
        out.append((int(start), int(end), label))
    return out


def _each(label: Any) -> Iterable[Any]:
    return label if isinstance(label, (set, frozenset, Mapping)) else (label,)


def found_types(y: Iterable[Any], outside: Any) -> list[Any]:
    """The types of segments in order, the one outside last."""
    found: set[Any] = set()
    for i, sequence in enumerate(y):
        if sequence is None:
            continue
        if isinstance(sequence, str) or not isinstance(sequence, Iterable):
            raise ValueError(f"labels of sequence {i} must be a list, got {sequence!r}")
        for tag in sequence:
            if isinstance(tag, (tuple, list)):
                raise ValueError(
                    f"sequence {i}: spans (start, end, label) and labels of tokens cannot be mixed, got {tag!r}"
                )
            found.update(split_tag(one)[1] for one in _each(tag) if one is not None)
    if not found:
        raise ValueError("there are no labels to learn from")
    check_label_texts(found)
    return [*in_label_order(found - {outside}), *([outside] if outside in found else [])]


def read_tags(y: Sequence[Any], types: Sequence[Any], offsets: NDArray[np.int64], outside: Any, runs: bool) -> Known:
    """What tags say; ``runs``: each run of text outside segments is one segment, otherwise each of its tokens is."""
    bare: list[Any] = []
    borders = np.zeros(int(offsets[-1]), np.uint8)
    inner: list[tuple[int, int, float]] = []
    scale = np.zeros(len(borders))  # logarithms of what soft labels are divided by once more
    at = 0
    for i, (sequence, length) in enumerate(zip(y, np.diff(offsets).tolist(), strict=False)):
        if sequence is None:
            bare.append(None)
            at += length
            continue
        kinds: list[Any] = []
        tags = [_positive(x, f"sequence {i}, token {t}") for t, x in enumerate(sequence)]
        said = [[split_tag(one) for one in _each(tag)] if tag is not None else [] for tag in tags]
        for t, (tag, parts) in enumerate(zip(tags, said, strict=True)):
            if isinstance(tag, Mapping):
                kinds.append(None)
            elif isinstance(tag, (set, frozenset)):
                kinds.append({kind for _, kind in parts})
            else:
                kinds.append(parts[0][1] if parts else None)
            if at + t < len(borders):
                borders[at + t] = _border(parts, said[t - 1] if t else None, t == 0, outside, runs)
                if isinstance(tag, Mapping):
                    weights, more = _weights_of_types(tag, int(borders[at + t]), f"sequence {i}, token {t}")
                    kinds[t], scale[at + t] = weights, np.log(sum(weights.values()))
                    inner += [(at + t, types.index(kind), score) for kind, score in more.items() if kind in types]
        if any(len(parts) > 1 for parts in said):
            found = _inner_of_sets(said, borders[at : at + length].tolist(), outside, runs, i)
            inner += [(at + t, types.index(kind), -np.inf) for t, kind in found if kind in types]
        bare.append(kinds)
        at += length
    numbers, hints = label_numbers(bare, types, offsets)
    soft = np.flatnonzero(scale)
    hints[-2 - numbers[soft]] += scale[soft, None]
    rows = np.array([x[:2] for x in inner], np.int64).reshape(-1, 2)
    return Known(numbers, hints, borders, offsets, rows, np.array([x[2] for x in inner]))


def _positive(tag: Any, place: str) -> Any:
    """A tag; of a soft label, those that have a weight."""
    return {x: w for x, w in distribution(tag, place).items() if w > 0} if isinstance(tag, Mapping) else tag


def _weights_of_types(soft: Mapping[Any, float], border: int, place: str) -> tuple[dict[Any, float], dict[Any, float]]:
    """Weights of the types of a soft label, in the middle of a segment where none need begin; what beginning adds."""
    begin: dict[Any, set[float]] = {}
    inside: dict[Any, set[float]] = {}
    for tag, weight in soft.items():
        prefix, kind = split_tag(tag)
        (begin if prefix and prefix in _BEGIN else inside).setdefault(kind, set()).add(weight)
    for kind in [*begin, *inside]:
        if max(len(x.get(kind, ())) for x in (begin, inside)) > 1:
            shown = ", ".join(sorted(tag for tag in soft if split_tag(tag)[1] == kind))
            raise ValueError(
                f"{place}: the weights of {shown} must not depend on where a segment ends, got {dict(soft)!r}: "
                f"give them the same weight, or a set"
            )
    weights, more = {}, {}
    for kind in dict.fromkeys([*begin, *inside]):
        first, later = (next(iter(x[kind])) if kind in x else None for x in (begin, inside))
        chosen = first if later is None or (border == BORDER and first is not None) else later
        assert chosen is not None
        weights[kind] = chosen
        if border == ANY and first is not None and later is not None and first != later:
            more[kind] = float(np.log(first / later))
    return weights, more


def _inner_of_sets(said: list[Any], borders: list[int], outside: Any, runs: bool, i: int) -> list[tuple[int, Any]]:
    """Where sets say of a type, but not of all their types, that no segment begins; what cannot be said is an error."""
    out: list[tuple[int, Any]] = []
    for t, (parts, border) in enumerate(zip(said, borders, strict=False)):
        before, after = said[t - 1] if t else [], said[t + 1] if t + 1 < len(said) else []
        last = t + 1 >= len(borders) or borders[t + 1] == BORDER
        for kind in dict.fromkeys(kind for prefix, kind in parts if prefix) if len(parts) > 1 else ():
            ones = [part for part in parts if part[1] == kind]
            begins = {_border_of(part, before, outside, runs) for part in ones}
            closed = {_border_of(part, before, outside, runs) for part in ones if _closes(part, outside, runs)}
            opened = {_border_of(part, before, outside, runs) for part in ones if not _closes(part, outside, runs)}
            goes_on = not last and (not after or any(kind == other for _, other in after))
            came = not before or any(kind == other and not _closes((p, other), outside, runs) for p, other in before)
            if border == ANY and begins == {INNER}:
                out.append((t, kind))
            if (border == ANY and begins == {BORDER} and came) or (goes_on and closed - opened):
                shown = ", ".join(sorted(f"{p}-{other}" if p else str(other) for p, other in parts))
                raise ValueError(
                    f"sequence {i}, token {t}: the tags {shown} cannot be used together: a set must allow {kind!r} "
                    f"both to begin and to go on here, or not at all; give all tags of {kind!r}, or None"
                )
    return out


def refuse_inner(known: Known, types: Sequence[Any]) -> None:
    """Raises ValueError, with the place, where labels in a set ask for different borders: training has no such sums."""
    if len(known.inner):
        token, label = known.inner[0].tolist()
        i = int(np.searchsorted(known.offsets, token, side="right")) - 1
        kind = types[label]
        place = f"sequence {i}, token {token - int(known.offsets[i])}"
        if np.isfinite(known.inner_scores[0]):
            raise ValueError(
                f"{place}: a soft label with different weights of 'B-{kind}' and 'I-{kind}' cannot be trained on: give "
                "them the same weight, or a set"
            )
        raise ValueError(
            f"{place}: a set that contains 'I-{kind}' and tags without I- cannot be trained on, because a border "
            f"depends on the label: add 'B-{kind}' to the set, or give None"
        )


def _border(parts: list[tuple[str, Any]], before: Any, first: bool, outside: Any, runs: bool) -> int:
    """What tags, each a prefix and a type, say of the border in front of a token, given those of the one before."""
    if first:
        return BORDER
    if not parts:  # what comes after a single token, or after an end, begins
        return BORDER if before and all(_closes(p, outside, runs) for p in before) else ANY
    says = {_border_of(part, before, outside, runs) for part in parts}
    if INNER in says and all(part[0] and part[0] in _INSIDE for part in parts):  # then the others do not fit
        return INNER
    return says.pop() if len(says) == 1 else ANY


def _closes(part: tuple[str, Any], outside: Any, runs: bool) -> bool:
    return part[0] in ("E", "L", "S", "U") or (part[1] == outside and part[0] == "" and not runs)


def _border_of(part: tuple[str, Any], before: Any, outside: Any, runs: bool) -> int:
    prefix, kind = part
    if prefix and prefix in _BEGIN:
        return BORDER
    if kind == outside and not prefix and not runs:
        return BORDER
    if not before:
        return INNER if prefix else ANY
    goes_on = {other == kind and not _closes((p, other), outside, runs) for p, other in before}
    if len(goes_on) > 1:
        return INNER if prefix else ANY
    return INNER if goes_on.pop() else BORDER


def write_tags(segments: NDArray[np.int64], types: Sequence[Any], outside: Any, chunks: bool) -> list[Any]:
    """Tags of one sequence: B-X and I-X, or bare types where there are no chunks."""
    out: list[Any] = []
    for start, end, j in segments.tolist():
        kind = types[j]
        if not chunks or kind == outside:
            out += [kind] * (end - start)
        else:
            out += [f"B-{kind}", *[f"I-{kind}"] * (end - start - 1)]
    return out


def rewritten(y: Sequence[Any], outside: Any, runs: bool, chunks: bool) -> list[list[Any]]:
    """Known tags of any scheme, as :func:`write_tags` writes their segments.

    >>> rewritten([["B-X", "E-X", "S-X", "O"]], "O", False, True)
    [['B-X', 'I-X', 'B-X', 'O']]
    """
    if not any(map(len, y)):
        return [[] for _ in y]
    types = found_types(y, outside)
    offsets = np.cumsum([0, *map(len, y)])
    known = read_tags(y, types, offsets, outside, runs)
    return [write_tags(rows, types, outside, chunks) for rows in known.by_sequence()]


def cut_long(known: Known, longest: NDArray[np.int64], cut: bool, types: Sequence[Any]) -> Known:
    """Checks segments against the longest that each label may have [L]; too long ones are cut, if asked for."""
    start, end, label = known.segments().T
    size = end - start
    wrong = np.flatnonzero(size > longest[label])
    if not len(wrong):
        return known
    if not cut:
        worst = int(wrong[np.argmax(size[wrong])])
        i = int(np.searchsorted(known.offsets, start[worst], side="right")) - 1
        most = int(longest[label[worst]])
        advice = f"max_length={int(size[worst])}" if most == longest.max() else "outside_runs=True"
        raise ValueError(
            f"sequence {i}, position {int(start[worst] - known.offsets[i])}: the longest segment, of "
            f"{types[label[worst]]!r}, has {counted(int(size[worst]), 'token')}, more than 'max_length'="
            f"{most}: set {advice}, or too_long='cut'"
        )
    borders = known.borders.copy()
    for k in wrong.tolist():
        borders[start[k] : end[k] : longest[label[k]]] = BORDER
    return replace(known, borders=borders)


def check_fits(known: Known, longest: NDArray[np.int64]) -> None:
    """Checks that each sequence has a segmentation that fits; ``longest``: tokens that each label may have [L]."""
    start, end = known.blocks().T
    size, first = end - start, known.labels[start]
    if not len(start):
        return
    one = np.minimum.reduceat(known.labels, start) == np.maximum.reduceat(known.labels, start)
    # room for each label, for each hint, and where nothing is known
    rooms = np.concatenate([longest, np.where(known.hints > -np.inf, longest, 0).max(axis=1), [longest.max()]])
    room = rooms[np.where(first >= 0, first, np.where(first == -1, len(rooms) - 1, len(longest) - 2 - first))]
    for k in np.flatnonzero(~one | (size > room)).tolist():
        fits = np.ones(len(longest), bool)
        for label in known.labels[start[k] : end[k]].tolist():
            if label != -1:
                fits &= np.arange(len(longest)) == label if label >= 0 else known.hints[-2 - label] > -np.inf
        most = int(longest[fits].max(initial=0))
        if size[k] <= most:
            continue
        i = int(np.searchsorted(known.offsets, start[k], side="right")) - 1
        place, tokens = f"sequence {i}, position {int(start[k] - known.offsets[i])}", counted(int(size[k]), "token")
        if most <= 1 < longest.max():
            raise ValueError(f"{place}: no label fits all that is known of the segment of {tokens}")
        raise ValueError(
            f"{place}: what is known asks for a segment of at least {tokens}, more than 'max_length'={most}: "
            f"set max_length={int(size[k])}"
        )
