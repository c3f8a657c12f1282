"""JSON, one record per line or a list of them: as doccano, Prodigy and Label Studio write and read it.

A record that is rewritten keeps its other fields, their order and spacing: only the list of spans is replaced, and
in it the spans that stay are the same characters.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from crfkit.annotate.documents import Document
from crfkit.annotate.formats.parts import (
    BOM,
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
    spans_of,
    warn_left_out,
)
from crfkit.base.numbers import whole_number
from crfkit.data import DataError

_DECODER = json.JSONDecoder(parse_int=whole_number)
_BLANK = re.compile(r"[ \t\r\n]*")
_LONG = re.compile(r"\d{1000}")
#: In records with a part that is not known yet; other tools keep it as they found it.
_UNKNOWN = "unknown"


def _skip(raw: str, at: int) -> int:
    match = _BLANK.match(raw, at)
    assert match is not None
    return match.end()


def _value(raw: str, at: int) -> tuple[Any, int]:
    """The value that begins here, and where it ends."""
    try:
        return _DECODER.raw_decode(raw, at)
    except json.JSONDecodeError:
        raise
    except ValueError as e:  # of a number
        found = _LONG.search(raw, at)
        raise json.JSONDecodeError(str(e), raw, found.start() if found else at) from None


def _members(raw: str, at: int) -> list[tuple[str | int, int, int]]:
    """Name or number, begin and end of each member of the object or list that begins here."""
    close = {"{": "}", "[": "]"}[raw[at]]
    out: list[tuple[str | int, int, int]] = []
    at = _skip(raw, at + 1)
    while raw[at] != close:
        name: str | int = len(out)
        if close == "}":
            name, at = _DECODER.raw_decode(raw, at)
            at = _skip(raw, _skip(raw, at) + 1)
        begin = at
        _, at = _DECODER.raw_decode(raw, at)
        out.append((name, begin, at))
        at = _skip(raw, at)
        if raw[at] == ",":
            at = _skip(raw, at + 1)
    return out


def _locate(raw: str, path: Sequence[str | int]) -> tuple[int, int] | None:
    """Where the value at a path lies; the last of members with the same name."""
    begin, end = _skip(raw, 0), len(raw.rstrip(" \t\r\n"))
    for step in path:
        if raw[begin] not in "{[":
            return None
        found = [(a, b) for name, a, b in _members(raw, begin) if name == step]
        if not found:
            return None
        begin, end = found[-1]
    return begin, end


class _Style:
    """How a record is written: spaces after commas and colons, escapes for what is not ASCII."""

    def __init__(self, raw: str) -> None:
        members = _members(raw, _skip(raw, 0))
        colon = re.match(r'\s*{\s*"(?:[^"\\]|\\.)*"\s*:( ?)', raw)
        self.colon = ":" if colon and not colon[1] else ": "
        end = members[0][2]
        self.comma = f",{self.colon[1:]}" if len(members) < 2 else ", " if raw[end : end + 2] == ", " else ","
        self.ascii = raw.isascii() and "\\u" in raw

    def dump(self, value: Any) -> str:
        """JSON of a value in this style."""
        return json.dumps(value, ensure_ascii=self.ascii, separators=(self.comma, self.colon))


def _with_value(raw: str, path: Sequence[str | int], value: str, style: _Style) -> str:
    """The record with another value, JSON, at a path; the last step is added if it is missing."""
    place = _locate(raw, path)
    if place is not None:
        return raw[: place[0]] + value + raw[place[1] :]
    parent = _locate(raw, path[:-1])
    assert parent is not None
    members = _members(raw, parent[0])
    end = members[-1][2] if members else parent[0] + 1
    comma = style.comma if members else ""
    return f"{raw[:end]}{comma}{json.dumps(path[-1])}{style.colon}{value}{raw[end:]}"


@dataclass(frozen=True)
class _Found:
    """What a record says.

    Attributes
    ----------
    text : str
    path : list
        Where the list of spans is, or belongs.
    spans : list of Span, or None
        None for entries of the list that are not spans of labels.
    known : bool
        Whether tokens outside the spans are known to be outside.
    tokens : list of (int, int), or None
    several : list of Span
        Spans that have further labels, which cannot be shown; they are None in ``spans``.
    """

    text: str
    path: list[str | int]
    spans: list[Span | None]
    known: bool
    tokens: list[tuple[int, int]] | None = None
    several: list[Span] = field(default_factory=list)


def _listed(value: Any, name: str, place: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise DataError(f"{place}: {name!r} must be a list, got {type(value).__name__}")
    return value


def _get_text(record: dict[str, Any], name: str, place: str) -> str:
    text = record.get(name)
    if not isinstance(text, str):
        raise DataError(f"{place}: the record has no field {name!r} with text; it has {', '.join(map(repr, record))}")
    return text


def _doccano(record: dict[str, Any], place: str) -> _Found:
    text = _get_text(record, "text", place)
    name = next((x for x in ("label", "labels", "entities") if x in record), "label")
    spans: list[Span | None] = []
    for x in _listed(record.get(name), name, place):
        if isinstance(x, dict):
            spans.append(check_span(x.get("start_offset"), x.get("end_offset"), x.get("label"), text, place))
        elif isinstance(x, list) and len(x) == 3:
            start, end, label = x
            spans.append(check_span(start, end, label, text, place))
        else:
            raise DataError(f"{place}: a span must be [start, end, label], got {x!r}")
    return _Found(text, [name], spans, bool(spans))


def _prodigy(record: dict[str, Any], place: str) -> _Found:
    text = _get_text(record, "text", place)
    spans: list[Span | None] = []
    for x in _listed(record.get("spans"), "spans", place):
        if not isinstance(x, dict):
            raise DataError(f"{place}: a span must be an object with start, end and label, got {x!r}")
        spans.append(check_span(x.get("start"), x.get("end"), x.get("label"), text, place))
    answer = record.get("answer")
    if answer not in (None, "accept"):
        spans = [None] * len(spans)
    tokens: list[tuple[int, int]] = []
    if record.get("tokens"):
        for x in _listed(record["tokens"], "tokens", place):
            span = check_span(
                *((x.get("start"), x.get("end")) if isinstance(x, dict) else (None, None)), "-", text, place
            )
            if tokens and span.start < tokens[-1][1]:
                raise DataError(f"{place}: the token at {span.start} begins before the one before it ends")
            if text[span.start : span.end].strip():
                tokens.append((span.start, span.end))
    return _Found(text, ["spans"], spans, answer == "accept" or any(spans), tokens or None)


def _label_studio(record: dict[str, Any], place: str) -> _Found:
    data = record.get("data")
    if not isinstance(data, dict):
        raise DataError(f"{place}: the record has no object 'data'")
    key = (
        "text"
        if isinstance(data.get("text"), str)
        else next((k for k, v in data.items() if isinstance(v, str)), "text")
    )
    text = _get_text(data, key, place)
    for k, annotation in enumerate(_listed(record.get("annotations"), "annotations", place)):
        if not isinstance(annotation, dict) or annotation.get("was_cancelled"):
            continue
        spans: list[Span | None] = []
        several: list[Span] = []
        for x in _listed(annotation.get("result"), "result", place):
            found = x.get("value") if isinstance(x, dict) and x.get("type") == "labels" else None
            value = found if isinstance(found, dict) else {}
            labels = value.get("labels")
            if labels:
                rows = labels if isinstance(labels, list) else [labels]
                read = [check_span(value.get("start"), value.get("end"), label, text, place) for label in rows]
                spans.append(read[0] if len(read) == 1 else None)
                several += read[1:]
            else:
                spans.append(None)
        return _Found(text, ["annotations", k, "result"], spans, True, several=several)
    return _Found(text, ["annotations"], [], False)


def _doccano_span(span: Span, found: _Found, record: dict[str, Any], _: Sequence[str]) -> Any:
    listed = record.get(str(found.path[0])) or []
    if found.path == ["entities"] or any(isinstance(x, dict) for x in listed):
        ids = [x["id"] for x in listed if isinstance(x, dict) and isinstance(x.get("id"), int)]
        number = max(ids, default=0) + 1 + span.start
        return {"id": number, "label": span.label, "start_offset": span.start, "end_offset": span.end}
    return list(span)


def _prodigy_span(span: Span, found: _Found, record: dict[str, Any], _: Sequence[str] = ()) -> Any:
    out: dict[str, Any] = {"start": span.start, "end": span.end}
    listed = record.get("tokens") or []
    first = bisect_left(listed, span.start, key=lambda x: x["start"])
    last = bisect_right(listed, span.end, key=lambda x: x["end"]) - 1
    if first <= last:
        out |= {"token_start": listed[first].get("id", first), "token_end": listed[last].get("id", last)}
    return {**out, "label": span.label}


#: What Label Studio calls the control of the labels and that of the text, unless a file says otherwise.
_CONTROLS = ("label", "text")


def _results(record: dict[str, Any], *kinds: str) -> Iterator[dict[str, Any]]:
    """The results of Label Studio in a record that have labels."""
    for listed in map(record.get, kinds):
        for given in listed if isinstance(listed, list) else ():
            result = given.get("result") if isinstance(given, dict) else None
            for x in result if isinstance(result, list) else ():
                if isinstance(x, dict) and x.get("type") == "labels":
                    yield x


def _controls(records: Iterable[dict[str, Any]]) -> list[str] | None:
    """The names of the controls in the first record of Label Studio that has some."""
    for record in records:
        for x in _results(record, "annotations", "predictions"):
            control, text = x.get("from_name"), x.get("to_name")
            if isinstance(control, str) and isinstance(text, str):
                return [control, text]
    return None


def _label_studio_span(span: Span, found: _Found, record: dict[str, Any], names: Sequence[str] = _CONTROLS) -> Any:
    first = next(_results(record, "annotations"), {})
    value = {"start": span.start, "end": span.end, "text": found.text[span.start : span.end], "labels": [span.label]}
    return {
        "id": f"crfkit-{span.start}-{span.end}",
        "from_name": first.get("from_name", names[0]),
        "to_name": first.get("to_name", names[1]),
        "type": "labels",
        "value": value,
    }


@dataclass(frozen=True)
class _Dialect:
    """A tool's records: how to read one, how to write a span, which fields tell that it is this tool's."""

    read: Callable[[dict[str, Any], str], _Found]
    span: Callable[[Span, _Found, dict[str, Any], Sequence[str]], Any]
    fields: tuple[str, ...]


_DIALECTS = {
    "labelstudio": _Dialect(_label_studio, _label_studio_span, ("data",)),
    "prodigy": _Dialect(_prodigy, _prodigy_span, ("spans", "tokens", "_input_hash", "_task_hash", "answer")),
    "doccano": _Dialect(_doccano, _doccano_span, ("label", "labels", "entities", "text")),
}


def _read(dialect: str | None) -> Callable[[str, str, How], Parsed]:
    """A reader of a tool's records, or of any tool's."""

    def read(name: str, text: str, how: How) -> Parsed:
        places = _records(name, text)
        chosen = dialect or _tell(record for record, *_ in places)
        controls = _controls(record for record, *_ in places) if chosen == "labelstudio" else None
        units, done = [], 0
        left_out: list[tuple[str, Span]] = []
        for record, begin, end, line in places:
            place = f"{name}:{line}"
            read = _DIALECTS[chosen].read(record, place)
            found = _text(read, record, how, place)
            left_out += [(place, span) for span in (*(x for _, x in found.left_out), *read.several)]
            documents = found.documents
            if not documents:
                continue
            documents[0].source |= {"dialect": chosen, "by_line": how.by_line}
            documents[0].source |= {"ignored": True} if how.label == "none" else {}
            documents[0].source |= {"controls": controls} if controls else {}
            units.append(Unit(text[done:begin], text[begin:end], documents))
            done = end
        warn_left_out(left_out)
        return Parsed(units, text[done:])

    return read


def _tell(records: Any) -> str:
    """Whose records these are, by the first that has a field of one tool only."""
    for record in records:
        for name, dialect in _DIALECTS.items():
            if any(field in record for field in dialect.fields if field != "text"):
                return name
    return "doccano"


def _text(found: _Found, record: dict[str, Any], how: How, place: str) -> Text:
    gaps = []
    for x in _listed(record.get(_UNKNOWN), _UNKNOWN, place):
        start, end = x if isinstance(x, list) and len(x) == 2 else (None, None)
        gaps.append(check_span(start, end, "?", found.text, place)[:2])
    gaps += [span[:2] for span in found.several]
    ignored = how.label == "none"
    spans = [x if x is not None and not ignored else Span(0, 0, "") for x in found.spans]
    known = (found.known or _UNKNOWN in record) and not ignored
    return Text(found.text, spans, how, found.tokens, known, gaps)


def _records(name: str, text: str) -> list[tuple[dict[str, Any], int, int, int]]:
    """Records, where each begins and ends, and its line; of lines, or of one list."""
    start = _skip(text, len(BOM) if text.startswith(BOM) else 0)
    try:
        if text.startswith("[", start):
            _value(text, start)
            places = [(a, b) for _, a, b in _members(text, start)]
        else:
            places = []
            at = start
            while at < len(text):
                end = text.find("\n", at)
                end = len(text) if end < 0 else end
                begin = _skip(text, at)
                if begin < end:
                    try:
                        stop = begin + _value(text[begin:end], 0)[1]
                    except json.JSONDecodeError as e:
                        raise json.JSONDecodeError(e.msg, text, min(begin + e.pos, end - 1)) from None
                    places.append((begin, stop))
                    if text[stop:end].strip(" \t\r"):
                        raise json.JSONDecodeError("more than one value in a line", text, stop)
                at = end + 1
    except json.JSONDecodeError as e:
        line = text.count("\n", 0, e.pos) + 1
        raise DataError(f"{name}:{line}: not JSON: {e.msg} (column {e.colno})") from None
    except RecursionError:
        raise DataError(f"{name}: not JSON that can be read: nested too deeply") from None
    out, line, done = [], 1, 0
    for begin, end in places:
        line += text.count("\n", done, begin)
        done = begin
        record = _DECODER.raw_decode(text, begin)[0]
        if not isinstance(record, dict):
            raise DataError(f"{name}:{line}: a record must be an object, got {text[begin : min(end, begin + 60)]!r}")
        out.append((record, begin, end, line))
    return out


def _rewrite(raw: str, documents: list[Document], labels: list[Labels | None], task: str) -> str:
    source, text = documents[0].source, raw
    dialect = _DIALECTS[source["dialect"]]
    record = json.loads(raw)
    found = dialect.read(record, "")
    label = "none" if source.get("ignored") else None
    parsed = _text(found, record, How(task, label=label, by_line=source.get("by_line", False)), "")
    rows = final(documents, labels)
    new = spans_of(documents, rows, task)
    wanted = set(new)
    style = _Style(raw)
    place = _locate(raw, found.path)
    listed = _members(raw, place[0]) if place and raw[place[0]] == "[" and found.path != ["annotations"] else []
    if source["dialect"] == "prodigy" and record.get("answer") not in (None, "accept"):
        listed = []  # spans that were rejected
        raw = _with_value(raw, ["answer"], '"accept"', style)
    if label == "none":
        listed = []
    kept, covered = [], set()
    for (_, a, b), stays, stands_for in zip(listed, parsed.stays(wanted), parsed.placed, strict=bool(listed)):
        if stays:
            kept.append(text[a:b])
            covered.update(stands_for)
    controls = source.get("controls", _CONTROLS)
    fresh = [style.dump(dialect.span(x, found, record, controls)) for x in new if x not in covered]
    value = f"[{style.comma.join([*kept, *fresh])}]"
    if found.path == ["annotations"]:
        others = [text[a:b] for _, a, b in _members(text, place[0])] if place and text[place[0]] == "[" else []
        first = f'{{"result"{style.colon}{value}}}'
        value = f"[{style.comma.join([*others, first])}]"
    raw = _with_value(raw, found.path, value, style)
    gaps = gaps_of(documents, rows) if task == "spans" else []
    if gaps or _UNKNOWN in record or not (new or found.known):
        raw = _with_value(raw, [_UNKNOWN], style.dump(gaps), style)
    return raw


def _write(dialect: str) -> Callable[[Sequence[Document], Sequence[Labels | None], str], str]:
    def write(documents: Sequence[Document], labels: Sequence[Labels | None], task: str) -> str:
        lines = []
        for number, (doc, row) in enumerate(zip(documents, final(documents, labels), strict=True), 1):
            alone = Document(doc.text, doc.tokens)
            spans = spans_of([alone], [row], task)
            gaps = gaps_of([alone], [row]) if task == "spans" else []
            record = _fresh(dialect, number, doc, spans, row is not None, gaps)
            if gaps or (row is not None and not spans):
                record[_UNKNOWN] = gaps
            lines.append(json.dumps(record, ensure_ascii=False) + "\n")
        return "".join(lines)

    return write


def _fresh(
    dialect: str, number: int, doc: Document, spans: list[Span], known: bool, gaps: list[list[int]]
) -> dict[str, Any]:
    """A record of a sentence; other tools see whether it has been labelled."""
    found = _Found(doc.text, [], [], known)
    if dialect == "doccano":
        return {"id": number, "text": doc.text, "label": [list(x) for x in spans]}
    if dialect == "prodigy":
        tokens = [
            {"text": doc.text[a:b], "start": a, "end": b, "id": k, "ws": doc.text[b : b + 1] == " "}
            for k, (a, b) in enumerate(doc.tokens)
        ]
        record: dict[str, Any] = {"text": doc.text, "tokens": tokens}
        record["spans"] = [_prodigy_span(x, found, record) for x in spans]
        return record | ({"answer": "accept"} if known and not gaps else {})
    results = [_label_studio_span(x, found, {}) for x in spans]
    return {"id": number, "data": {"text": doc.text}, "annotations": [{"result": results}] if known else []}


def _format(name: str, title: str) -> Format:
    return Format(name, title, ".jsonl", "application/jsonl", _read(name), _rewrite, _write(name))


DOCCANO = _format("doccano", "JSONL (doccano)")
PRODIGY = _format("prodigy", "JSONL (Prodigy)")
LABEL_STUDIO = _format("labelstudio", "JSONL (Label Studio)")
#: Any tool's, told by its fields.
JSONL = Format("jsonl", "JSONL", ".jsonl", "application/jsonl", _read(None), _rewrite, _write("doccano"))
