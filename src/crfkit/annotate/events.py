"""Rules of the events in a project file: a file that somebody else made is judged before anything is done with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from crfkit.annotate.documents import Document
from crfkit.annotate.formats import NAMES
from crfkit.base.fields import Rule, anything, flag, integer, list_of, number, one_of, optional, record, text


def _insert(value: Any, field: str) -> list[Any]:
    place, more = list_of(anything, 2, 2)(value, field)
    return [_NUMBER(place, f"{field}[0]"), text(more, f"{field}[1]")]


_NUMBER = integer(0, 2**53)
_PAIR = list_of(_NUMBER, 2, 2)
_SPAN = record({"start": _NUMBER, "end": _NUMBER, "label": optional(text)}, {"everywhere": flag})
_SAID = {"spans": list_of(_SPAN), "judged": list_of(_PAIR), "whole": flag, "skip": flag, "confirm": flag}
_POINT = optional(list_of(number(), 2))
_ASKED = {"seconds": number(0), "keys": _NUMBER, "corrections": _NUMBER, "tokens": _NUMBER, "kind": text}
_ASKED |= {"asked": list_of(_PAIR)}
_ASKED |= {"stood": record({}, {"entropy": _POINT, "accuracy": _POINT})}
_TIME = record({}, {"sentence": number(0), "token": number(0), "correction": number(0), "fitted": flag})
_TEMPLATE = record({"text": text, "dialect": text, "padding": anything})
_SETTINGS = record(
    {},
    {
        "random_share": number(0),
        "overlap": number(0),
        "context": integer(0, 20),
        "show_random": flag,
        "time": _TIME,
        "c2": number(0),
        "template": _TEMPLATE,
    },
)
_SOURCE = record(
    {},
    {
        **dict.fromkeys(("file", "encoding", "dialect", "scheme", "lead", "raw", "tail", "txt"), text),
        **dict.fromkeys(("unit", "at", "column"), _NUMBER),
        **dict.fromkeys(("notes", "by_line", "ignored"), flag),
        **dict.fromkeys(("columns", "table"), record({})),
        **dict.fromkeys(("inserts", "tail_inserts"), list_of(_insert)),
        "format": one_of(*NAMES),
        "skip": list_of(_NUMBER),
        "controls": list_of(text, 2, 2),
    },
)
_DOCUMENT = record(
    {
        "text": text,
        "tokens": list_of(_PAIR),
        "columns": optional(list_of(list_of(text))),
        "labels": optional(list_of(optional(text))),
        "source": _SOURCE,
    }
)
#: By kind, what an event holds.
_RULES: dict[str, Rule] = {
    "project": record(
        {"task": one_of("spans", "tokens"), "labels": list_of(text)}, {"settings": _SETTINGS, "id": text}
    ),
    "documents": record({"documents": list_of(_DOCUMENT)}),
    "answer": record({"sequence": _NUMBER, "spans": anything}, {**_SAID, **_ASKED}),
    "draft": record({"sequence": _NUMBER, "spans": anything}, {**_SAID, "kind": text, "asked": list_of(_PAIR)}),
    "edit": record({"sequence": _NUMBER, "spans": anything}, _SAID),
    "settle": record({"sequence": _NUMBER, "spans": anything}, _SAID),
    "undo": record({"of": _NUMBER}),
    "redo": record({"of": _NUMBER}),
    "settings": _SETTINGS,
}


def judged(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    """What an event holds, held against the rules of its kind; a ValueError names the field."""
    found: dict[str, Any] = _RULES.get(kind, record({}))(payload, "")
    return found


def judge_document(document: Document, before: Document | None, has_label: Callable[[str], bool]) -> None:
    """Raises if tokens are not in the text one after another, or do not have one label and row of columns each."""
    if before is not None and ("file" in before.source) != ("file" in document.source):
        raise ValueError("'source.file' is missing in some documents")
    _judge_source(document.source, {} if before is None else before.source)
    done = 0
    for start, end in document.tokens:
        if not done <= start < end <= len(document.text):
            raise ValueError(f"there is no token from {start} to {end} in a text of {len(document.text)} characters")
        done = end
    for name, rows in (("labels", document.labels), ("columns", document.columns)):
        if rows is not None and len(rows) != len(document.tokens):
            raise ValueError(f"{len(rows)} {name} of {len(document.tokens)} tokens")
    for label in set(document.labels or ()):
        if label is not None and not has_label(label):
            raise ValueError(f"a document has the label {label[:60]!r}, which the project does not have")


def _judge_source(source: dict[str, Any], before: dict[str, Any]) -> None:
    """Raises if it cannot be told how to write the file again; the first document of a unit has its text."""
    if "file" not in source:
        return
    first = (source["file"], source.get("unit")) != (before.get("file"), before.get("unit"))
    for name in ("format", "unit", *(("raw",) if first else ())):
        if name not in source:
            raise ValueError(f"'source.{name}' is missing")
    try:
        "".encode(source.get("encoding", "utf-8"))
    except LookupError:
        raise ValueError(f"there is no encoding {source['encoding'][:60]!r}") from None


def judge_said(payload: dict[str, Any], documents: Sequence[Document], names: Sequence[str]) -> None:
    """Raises if an answer is about a sentence, tokens or labels that are not there."""
    sequence, spans = payload["sequence"], payload["spans"]
    if sequence >= len(documents):
        raise ValueError(f"'sequence' is {sequence}, but there are {len(documents)} documents")
    length = len(documents[sequence].tokens)
    ranges = [*payload.get("judged", ()), *payload.get("asked", ())]
    for start, end in [*((x["start"], x["end"]) for x in spans), *ranges]:
        if not start < end <= length:
            raise ValueError(f"there are no tokens {start} to {end} in document {sequence}, which has {length}")
    for label in {x["label"] for x in spans} - {None}:
        if label not in names:
            raise ValueError(f"there is no label {label[:60]!r}")
