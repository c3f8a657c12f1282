"""What the formats share: pieces of files, labels and spans, sentences of a text."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crfkit.annotate.documents import Document
from crfkit.base.messages import warn
from crfkit.data import DataError, tokenize
from crfkit.metrics import spans as chunks

Labels = Sequence[str | None]
#: Stands for a label that is not known, in formats with a label for every token.
UNKNOWN = "?"
BOM = "\ufeff"


class Span(NamedTuple):
    """Characters of a text and what they are."""

    start: int
    end: int
    label: str


class Unit(NamedTuple):
    """The smallest piece of a file that is rewritten when one of its sentences has changed.

    Attributes
    ----------
    lead : str
        What stands between the unit before and this one.
    raw : str
    documents : list of Document
    """

    lead: str
    raw: str
    documents: list[Document]


class Parsed(NamedTuple):
    """A file: units, and what follows the last."""

    units: list[Unit]
    tail: str


@dataclass(frozen=True)
class How:
    """How to read a file.

    Attributes
    ----------
    task : str
        "spans" or "tokens".
    labels : tuple of str
        Names that are known already.
    label : str, or None
        Column of the labels, "none" to ignore them; None to find out.
    comment : str
        Lines of a column file that begin with this are left out.
    by_line : bool
        Whether every line of a text is a sentence.
    """

    task: str = "spans"
    labels: tuple[str, ...] = ()
    label: str | None = None
    comment: str = ""
    by_line: bool = False


@dataclass(frozen=True)
class Format:
    """A format.

    Attributes
    ----------
    read : name, text, how -> Parsed
    rewrite : raw text of a unit, its documents, their labels, task -> its text with these labels
    write : documents, labels, task -> a file of this format, whatever the documents came from
    """

    name: str
    title: str
    suffix: str
    media: str
    read: Callable[[str, str, How], Parsed]
    rewrite: Callable[[str, list[Document], list[Labels | None], str], str]
    write: Callable[[Sequence[Document], Sequence[Labels | None], str], str]


def lines_of(text: str) -> list[str]:
    """Lines with their ends; only a line feed ends one."""
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def line_end(text: str) -> str:
    """How lines of a text end: as the first one does."""
    return "\r\n" if text.partition("\n")[0].endswith("\r") else "\n"


def to_bio(labels: Labels) -> list[str | None]:
    """Labels of any chunking scheme in BIO.

    >>> to_bio(["S-PER", None, "I-LOC", "I-LOC"])
    ['B-PER', None, 'B-LOC', 'I-LOC']
    """
    out: list[str | None] = [None if x is None else "O" for x in labels]
    for kind, a, b in chunks([x or "O" for x in labels]):
        out[a:b] = [f"B-{kind}", *[f"I-{kind}"] * (b - a - 1)]
    return out


def scheme_of(labels: Iterable[Labels]) -> str:
    """The scheme that labels of a file are in: bio, iob1, bioes or bilou."""
    tags: set[str] = set()  # those of labels that go on with no span of their type in lower case
    for row in labels:
        before = ""
        for label in row:
            tag, _, kind = (label or "O").partition("-")
            tags.add(tag if before == kind and kind else tag.lower())
            before = kind
    if tags & set("EeSs"):
        return "bioes"
    return "bilou" if tags & set("LlUu") else "iob1" if "i" in tags and "b" not in tags else "bio"


def from_bio(labels: Labels, scheme: str) -> list[str | None]:
    """Labels in BIO in another scheme.

    >>> from_bio(["B-PER", "O", "B-LOC", "I-LOC", "B-LOC"], "bioes")
    ['S-PER', 'O', 'B-LOC', 'E-LOC', 'S-LOC']
    >>> from_bio(["B-LOC", "I-LOC", "B-LOC"], "iob1")
    ['I-LOC', 'I-LOC', 'B-LOC']
    """
    if scheme == "bio":
        return list(labels)
    out: list[str | None] = [None if x is None else "O" for x in labels]
    last, alone = ("E", "S") if scheme == "bioes" else ("L", "U")
    end, kind_before = -1, ""
    for kind, a, b in chunks([x or "O" for x in labels]):
        if scheme == "iob1":
            first = "B" if end == a and kind_before == kind else "I"
            out[a:b] = [f"{first}-{kind}", *[f"I-{kind}"] * (b - a - 1)]
            end, kind_before = b, kind
        elif b - a == 1:
            out[a] = f"{alone}-{kind}"
        else:
            out[a:b] = [f"B-{kind}", *[f"I-{kind}"] * (b - a - 2), f"{last}-{kind}"]
    return out


def is_chunk_label(label: str) -> bool:
    """Whether a label is O or of the form B-X."""
    return label == "O" or (len(label) > 2 and label[1] == "-" and label[0] in "BIESLU")


def spans_of(documents: Sequence[Document], labels: Sequence[Labels | None], task: str) -> list[Span]:
    """Spans in the text that the documents are parts of; single tokens if labels are of tokens."""
    out = []
    for doc, row in zip(documents, labels, strict=True):
        at = doc.source.get("at", 0)
        if row is None:
            continue
        if task == "spans":
            found = [(a, b, kind) for kind, a, b in chunks([x or "O" for x in row])]
        else:
            found = [(t, t + 1, x) for t, x in enumerate(row) if x is not None]
        out += [Span(at + doc.tokens[a][0], at + doc.tokens[b - 1][1], kind) for a, b, kind in found]
    return out


def gaps_of(documents: Sequence[Document], labels: Sequence[Labels | None]) -> list[list[int]]:
    """Ranges of characters whose labels are not known."""
    out: list[list[int]] = []
    for doc, row in zip(documents, labels, strict=True):
        at = doc.source.get("at", 0)
        joined = False
        for t, (a, b) in enumerate(doc.tokens):
            unknown = row is None or row[t] is None
            if unknown and joined:
                out[-1][1] = at + b
            elif unknown:
                out.append([at + a, at + b])
            joined = unknown
    return out


def final(documents: Sequence[Document], labels: Sequence[Labels | None]) -> list[Labels | None]:
    """The labels to write: those of the file where nothing else is known."""
    return [doc.labels if row is None else row for doc, row in zip(documents, labels, strict=True)]


class Text:
    """The sentences of a text, and where given spans lie in them.

    Tokens are cut where a span begins or ends, and sentences joined where one would be cut.

    Parameters
    ----------
    text : str
    spans : sequence of Span
        White space at their ends is ignored; of those that overlap, the longest is taken.
    how : How
    tokens : sequence of (int, int), optional
        Tokens, if they are given.
    known : bool
        Whether tokens outside all spans are known to be outside.
    gaps : sequence of (int, int)
        Characters that are not known all the same.

    Attributes
    ----------
    documents : list of Document
    placed : list of lists of Span
        What stands for each given span in the documents; nothing for those that could not be taken.
    left_out : list of (int, Span)
        Those that could not be taken because they overlap others, with their number.
    """

    def __init__(
        self,
        text: str,
        spans: Sequence[Span],
        how: How,
        tokens: Sequence[tuple[int, int]] | None = None,
        known: bool = True,
        gaps: Sequence[Sequence[int]] = (),
    ) -> None:
        sentences = tokenize(f" {text[1:]}" if text.startswith(BOM) else text)
        starts = {s[0].start for s in sentences[1:]}
        if tokens is None:
            found: list[tuple[int, int]] = []
            for k, sentence in enumerate(sentences):
                found += [(t.start, t.end) for t in sentence]
                sentences[k] = []  # a token takes more memory than all that is kept of it
            tokens = _cut(found, spans)
        if how.by_line:
            starts = {k + 1 for k, c in enumerate(text) if c == "\n"}
        self.placed: list[list[Span]] = [[] for _ in spans]
        labels: list[str | None] = [None if not known else "O" if how.task == "spans" else None] * len(tokens)
        begins, ends = [a for a, _ in tokens], [b for _, b in tokens]
        for start, end in gaps:
            a, b = bisect_left(ends, start + 1), bisect_left(begins, end)
            labels[a:b] = [None] * (b - a)
        taken = [-1] * len(tokens)
        self._blockers: list[set[int]] = [set() for _ in spans]
        self.left_out: list[tuple[int, Span]] = []
        inner: set[int] = set()  # tokens that go on with a span
        for k in sorted(range(len(spans)), key=lambda k: (spans[k].start - spans[k].end, spans[k].start, k)):
            start, end, label = spans[k]
            a, b = bisect_left(ends, start + 1), bisect_left(begins, end)
            self._blockers[k] = set(taken[a:b]) - {-1}
            if a < b and self._blockers[k] and not any(spans[j] == spans[k] for j in self._blockers[k]):
                self.left_out.append((k, spans[k]))
            if a >= b or self._blockers[k]:
                continue
            taken[a:b] = [k] * (b - a)
            if how.task == "spans":
                labels[a:b] = [f"B-{label}", *[f"I-{label}"] * (b - a - 1)]
                self.placed[k] = [Span(begins[a], ends[b - 1], label)]
            else:
                labels[a:b] = [label] * (b - a)
                self.placed[k] = [Span(begins[t], ends[t], label) for t in range(a, b)]
            inner.update(range(a + 1, b))
        for _, (start, end, _) in self.left_out:  # their other words are not known to be outside
            for t in range(bisect_left(ends, start + 1), bisect_left(begins, end)):
                labels[t] = None if taken[t] < 0 else labels[t]
        firsts = _firsts(begins, ends, starts, inner)
        self.documents = [
            _sentence(text, tokens[a:b], labels[a:b]) for a, b in zip(firsts, [*firsts[1:], len(tokens)], strict=False)
        ]

    def stays(self, wanted: set[Span]) -> list[bool]:
        """For each given span whether it is still right; those that could not be taken stay with what they overlap."""
        stays = [all(x in wanted for x in placed) for placed in self.placed]
        return [
            stays[k] and (not blockers or any(stays[j] for j in blockers)) for k, blockers in enumerate(self._blockers)
        ]


def warn_left_out(found: Sequence[tuple[str, Span]], why: str = "overlaps another span") -> None:
    """Warns of spans that a file has and a project cannot have, each with its place."""
    if not found:
        return
    place, span = found[0]
    more = f" ({len(found) - 1} more such spans)" if len(found) > 1 else ""
    warn(
        f"{place}: {span.label!r} from {span.start} to {span.end} {why}: it is left out, and words of "
        f"it that have no other label count as not labelled{more}",
        UserWarning,
    )


def _sentence(text: str, tokens: Sequence[tuple[int, int]], labels: list[str | None]) -> Document:
    at, end = tokens[0][0], tokens[-1][1]
    moved = [(a - at, b - at) for a, b in tokens]
    known = None if all(x is None for x in labels) else labels
    return Document(text[at:end], moved, None, known, {"at": at})


def _firsts(begins: list[int], ends: list[int], starts: set[int], inner: set[int]) -> list[int]:
    """The first token of each sentence."""
    found = [0] if begins else []
    order = sorted(starts)
    for t in range(1, len(begins)):
        k = bisect_left(order, ends[t - 1])
        if t not in inner and k < len(order) and order[k] <= begins[t]:
            found.append(t)
    return found


def _cut(tokens: list[tuple[int, int]], spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Tokens, cut where spans begin and end."""
    borders = sorted({x for span in spans for x in (span.start, span.end)})
    if not borders:
        return tokens
    out = []
    for a, b in tokens:
        k = bisect_left(borders, a + 1)
        while k < len(borders) and borders[k] < b:
            out.append((a, borders[k]))
            a = borders[k]
            k += 1
        out.append((a, b))
    return out


def check_span(start: object, end: object, label: object, text: str, place: str) -> Span:
    """A span of a file, or an error that names its place."""
    if type(start) is not int or type(end) is not int:  # not bool
        raise DataError(f"{place}: a span must begin and end at whole numbers, got {start!r} and {end!r}")
    if not 0 <= start <= end <= len(text):
        raise DataError(f"{place}: there is no span {start} to {end}: the text has {len(text)} characters")
    if not isinstance(label, str) or not label:
        raise DataError(f"{place}: the label of a span must be text, got {label!r}")
    return Span(start, end, label)
