"""Raw text, and brat's standoff: a text and beside it a file of annotations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from crfkit.annotate.documents import Document
from crfkit.annotate.formats.parts import (
    Format,
    How,
    Labels,
    Parsed,
    Span,
    Text,
    Unit,
    check_span,
    final,
    gaps_of,
    line_end,
    lines_of,
    spans_of,
    warn_left_out,
)
from crfkit.data import DataError

#: A note of ours: which characters are not known. brat keeps such notes as they are.
_NOTE = "crfkit-unknown"
_SPAN = re.compile(r"(\S+) (\d{1,18}) (\d{1,18})((?:;\d{1,18} \d{1,18})*)")


class _Line(NamedTuple):
    """A line of annotations: its name, and the span if it is one that can be shown, else its pieces."""

    raw: str
    name: str
    span: Span | None
    pieces: list[Span]


def _annotations(name: str, notes: str, text: str) -> list[_Line]:
    out = []
    for i, line in enumerate(lines_of(notes), 1):
        cells = line.rstrip("\r\n").split("\t")
        pieces: list[Span] = []
        if line.startswith("T"):
            match = _SPAN.fullmatch(cells[1]) if len(cells) > 1 else None
            if match is None:
                raise DataError(f"{name}:{i}: an annotation must be 'T1<tab>TYPE START END<tab>TEXT', got {line!r}")
            borders = re.findall(r"(\d+) (\d+)", cells[1].partition(" ")[2])
            pieces = [check_span(int(a), int(b), match[1], text, f"{name}:{i}") for a, b in borders]
        alone = len(pieces) == 1  # those in several pieces stay as they are
        out.append(_Line(line, cells[0], pieces[0] if alone else None, [] if alone else pieces))
    return out


def _gaps(lines: Sequence[_Line]) -> list[tuple[int, int]]:
    for line in lines:
        cells = line.raw.rstrip("\r\n").split("\t")
        if len(cells) == 3 and cells[1].startswith(_NOTE):
            return [(int(a), int(b)) for a, b in re.findall(r"(\d{1,18})-(\d{1,18})", cells[2])]
    return []


def read_pair(name: str, text: str, notes: str | None, how: How) -> Parsed:
    """Sentences of a text with its annotations, if there are any."""
    file = name.removesuffix(".txt") + ".ann"
    lines = _annotations(file, notes or "", text)
    found = _text(text, lines, how)
    warn_left_out([(f"{file}:{k + 1}", span) for k, span in sorted(found.left_out)])
    apart = [(k, line.pieces) for k, line in enumerate(lines, 1) if line.pieces]
    spans = [(f"{file}:{k}", Span(p[0].start, p[-1].end, p[0].label)) for k, p in apart]
    warn_left_out(spans, "is in several pieces")
    if not found.documents:
        return Parsed([], "")
    found.documents[0].source |= {"txt": text, "notes": notes is not None, "by_line": how.by_line}
    return Parsed([Unit("", notes or "", found.documents)], "")


def _text(text: str, lines: Sequence[_Line], how: How) -> Text:
    spans = [line.span or Span(0, 0, "") for line in lines]
    gaps = [*_gaps(lines), *(piece[:2] for line in lines for piece in line.pieces)]
    return Text(text, spans, how, known=any(line.span for line in lines), gaps=gaps)


def rewrite(raw: str, documents: list[Document], labels: list[Labels | None], task: str) -> str:
    """Annotations with these labels; lines that still hold stay, and others that name none that goes."""
    source = documents[0].source
    text = source["txt"]
    lines = _annotations("", raw, text)
    parsed = _text(text, lines, How(task, by_line=source.get("by_line", False)))
    rows = final(documents, labels)
    new = spans_of(documents, rows, task)
    wanted = set(new)
    gone, covered = set(), set()
    for line, stays, stands_for in zip(lines, parsed.stays(wanted), parsed.placed, strict=True):
        if stays:
            covered.update(stands_for)
        else:
            gone.add(line.name)
    out = [line.raw for line in lines if line.name not in gone and not _names(line, gone) and _NOTE not in line.raw]
    end = line_end(raw)
    if out and not out[-1].endswith("\n"):
        out[-1] += end
    numbers = [int(m[1]) for line in lines if (m := re.match(r"T(\d{1,18})", line.name))]
    number = max(numbers, default=0)
    for span in (x for x in new if x not in covered):
        number += 1
        shown = re.sub(r"[\r\n]", " ", text[span.start : span.end])
        out.append(f"T{number}\t{span.label} {span.start} {span.end}\t{shown}{end}")
    gaps = gaps_of(documents, rows) if task == "spans" else []
    first = next((line.partition("\t")[0] for line in out if line.startswith("T")), None)
    if gaps and first:  # a note must be about something
        out.append(f"#{_free(lines)}\t{_NOTE} {first}\t{' '.join(f'{a}-{b}' for a, b in gaps)}{end}")
    return "".join(out)


def _names(line: _Line, gone: set[str]) -> bool:
    """Whether a line is about an annotation that is no more."""
    if line.name.startswith("T") or not gone:
        return False
    parts = re.split(r"[\t ]", line.raw.rstrip("\r\n"))[1:]
    return any(part.rpartition(":")[2] in gone for part in parts)


def _free(lines: Sequence[_Line]) -> int:
    numbers = [int(m[1]) for line in lines if (m := re.match(r"#(\d{1,18})", line.name))]
    return max(numbers, default=0) + 1


def _read_text(name: str, text: str, how: How) -> Parsed:
    return read_pair(name, text, None, how)


def write_text(documents: Sequence[Document]) -> tuple[str, list[Document]]:
    """One text of all sentences, a line for each, and the sentences as parts of it."""
    parts: list[str] = []
    moved, at = [], 0
    for doc in documents:
        shown = re.sub(r"[\r\n]", " ", doc.text)
        moved.append(Document(shown, doc.tokens, source={"at": at}))
        parts.append(f"{shown}\n")
        at += len(shown) + 1
    return "".join(parts), moved


def _write(documents: Sequence[Document], labels: Sequence[Labels | None], task: str) -> str:
    """The annotations only; the text is :func:`write_text`'s."""
    text, moved = write_text(documents)
    moved[0].source["txt"] = text
    return rewrite("", moved, final(documents, labels), task)


TEXT = Format("text", "Text", ".txt", "text/plain", _read_text, rewrite, _write)
BRAT = Format("brat", "brat standoff (.txt and .ann)", ".ann", "text/plain", _read_text, rewrite, _write)
