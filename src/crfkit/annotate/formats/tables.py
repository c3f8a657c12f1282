"""CSV: one token per row, or one text per row."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from crfkit.annotate.documents import Document
from crfkit.annotate.formats.columns import _joined as joined
from crfkit.annotate.formats.parts import (
    BOM,
    UNKNOWN,
    Format,
    How,
    Labels,
    Parsed,
    Span,
    Text,
    Unit,
    check_span,
    final,
    from_bio,
    gaps_of,
    is_chunk_label,
    scheme_of,
    spans_of,
    to_bio,
    warn_left_out,
)
from crfkit.base.messages import counted
from crfkit.data import DataError

_WORD = ("token", "word", "form", "tokens", "words")
_TEXT = ("text", "sentence", "content", "document")
_SENTENCE = ("sentence_id", "sentence #", "sentence", "sent_id", "sent", "sentence_number")
_LABEL = ("label", "labels", "tag", "tags", "ner", "ner_tag", "bio", "iob")
_TOKEN_LABEL = (*_LABEL, "pos", "upos", "pos_tag")
_NO_LIST = (ValueError, TypeError, KeyError, RecursionError)
_SPANS = ("spans", "entities", "label", "labels", "annotations")


class _Row(NamedTuple):
    """Where a row and its cells lie in the text; the line it begins at."""

    start: int
    end: int
    line: int
    cells: list[tuple[int, int]]


def _rows(name: str, text: str, separator: str) -> Iterator[_Row]:
    """Rows with the places of their cells; a quoted cell may hold separators, doubled quotes and line ends."""
    cell = re.compile(rf'"(?:[^"]|"")*"(?=[{separator}\r\n]|\Z)|[^{separator}\r\n]*')
    at, line = len(BOM) if text.startswith(BOM) else 0, 1
    while at < len(text):
        start, first, cells = at, line, []
        while True:
            match = cell.match(text, at)
            assert match is not None
            if match[0].startswith('"') and (len(match[0]) < 2 or not match[0].endswith('"')):
                raise DataError(f"{name}:{line}: a quote is not closed, or text follows it")
            cells.append(match.span())
            line += match[0].count("\n")
            at = match.end()
            if at >= len(text) or text[at] != separator:
                break
            at += 1
        end = at
        if text.startswith("\r\n", at):
            at += 2
        elif at < len(text):
            at += 1
        line += 1
        yield _Row(start, end, first, cells)


def _value(text: str, cell: tuple[int, int]) -> str:
    raw = text[slice(*cell)]
    return raw[1:-1].replace('""', '"') if raw.startswith('"') else raw


def _quoted(value: str, separator: str) -> str:
    if not re.search(rf'[{separator}"\r\n]', value) and value == value.strip():
        return value
    return '"' + value.replace('"', '""') + '"'


class _Table(NamedTuple):
    """A table and what its columns are."""

    name: str
    text: str
    separator: str
    head: _Row
    rows: list[_Row]

    @property
    def header(self) -> list[str]:
        """Names of the columns."""
        return self.values(self.head)

    def find(self, names: Sequence[str], but: Sequence[int | None] = ()) -> int | None:
        """The first column of such a name."""
        low = [x.strip().lower() for x in self.header]
        return next((low.index(x) for x in names if x in low and low.index(x) not in but), None)

    def free(self, names: Sequence[str]) -> str:
        """The first of these names that no column has."""
        low = {x.strip().lower() for x in self.header}
        more = (f"{names[0]}-{k}" for k in itertools.count(2))
        return next(x for x in itertools.chain(names, more) if x not in low)

    def values(self, row: _Row) -> list[str]:
        """The cells of a row."""
        return [_value(self.text, cell) for cell in row.cells]


def _table(name: str, text: str) -> _Table:
    head = text.removeprefix(BOM).partition("\n")[0]
    separator = max(",;\t", key=head.count)
    rows = _rows(name, text, separator)
    first = next(rows, None)
    if first is None:
        raise DataError(f"{name}: the file holds no row")
    table, n = _Table(name, text, separator, first, []), len(first.cells)
    for row in rows:
        if len(row.cells) != n and text[row.start : row.end].strip():
            raise DataError(f"{name}:{row.line}: {counted(len(row.cells), 'cell')}, but the header has {n}")
        table.rows.append(row)
    return table


def names_columns(text: str) -> bool:
    """Whether the first line of a file is a header that this format can read."""
    head = re.split(r"[,;\t]", text.removeprefix(BOM).partition("\n")[0].strip().lower())
    return not {*_WORD, *_TEXT}.isdisjoint(x.strip('" ') for x in head)


def _read(name: str, text: str, how: How) -> Parsed:
    table = _table(name, text)
    word = table.find(_WORD)
    if word is not None:
        return _read_tokens(table, word, how)
    column = table.find(_TEXT)
    if column is None:
        raise DataError(
            f"{name}:1: the header names no column of words ({', '.join(_WORD[:3])}) or texts ({', '.join(_TEXT)}), "
            f"it has {', '.join(table.header)}; for one token per line without a header, give -f columns"
        )
    return _read_texts(table, column, how)


def _label_column(table: _Table, names: Sequence[str], how: How, but: Sequence[int | None]) -> int | None:
    if how.label in (None, "none"):
        return table.find(names, but)
    found = table.find([how.label.lower()])
    if found is None:
        raise DataError(f"{table.name}:1: --label: there is no column {how.label!r}, only {', '.join(table.header)}")
    return found


def _read_tokens(table: _Table, word: int, how: How) -> Parsed:
    text = table.text
    sentence = table.find(_SENTENCE, [word])
    at = _label_column(table, _LABEL if how.task == "spans" else _TOKEN_LABEL, how, [word, sentence])
    groups: list[list[_Row]] = []
    number, open_ = "", False
    for row in table.rows:
        values = table.values(row)
        if not text[row.start : row.end].strip() or not any(values):
            open_ = False
            continue
        if not values[word].strip():
            raise DataError(f"{table.name}:{row.line}: the column {table.header[word]!r} is empty")
        if sentence is not None and values[sentence] not in ("", number):
            number, open_ = values[sentence], False
        if not open_:
            groups.append([])
        groups[-1].append(row)
        open_ = True
    known: list[list[str | None]] = [
        [None if at is None else _known(_value(text, row.cells[at])) for row in group] for group in groups
    ]
    ignored = how.label == "none"
    seen = {x for row in known for x in row if x is not None}
    if how.task == "spans":
        wrong = {x for x in seen if not is_chunk_label(x)}
    else:
        wrong = seen - set(how.labels) if ignored else set()
    if wrong and ignored:  # a column of something else
        at, known = None, [[None] * len(group) for group in groups]
    elif wrong:
        raise DataError(f"{table.name}: {min(wrong)!r} is not a span label such as B-PER (see --task tokens)")
    settings = {"separator": table.separator, "label": at, "scheme": scheme_of(known), "rows": True}
    others = [k for k in range(len(table.header)) if k not in (word, sentence, at)]
    pieces = []
    for group, row_labels in zip(groups, known, strict=True):
        words = [table.values(row)[word] for row in group]
        more = [[table.values(row)[k] for k in others] for row in group] if others else None
        labels = to_bio(row_labels) if how.task == "spans" else row_labels
        none = ignored or all(x is None for x in labels)
        doc = joined(words, [" "] * len(words), more, None if none else labels, {"table": settings})
        pieces.append((group[0].start, group[-1].end, [doc]))
    return _parsed(table, pieces, None if at is not None else table.free(_LABEL))


def _known(value: str) -> str | None:
    return None if value in ("", UNKNOWN, "_") else value


def _parsed(table: _Table, pieces: list[tuple[int, int, list[Document]]], grows: str | None) -> Parsed:
    """The pieces of the table that hold sentences, and what lies between.

    If the table has no column of labels, one of the name ``grows`` is added when there are some: also to the header and
    to rows without words.
    """
    others = iter([table.head, *(row for row in table.rows if table.text[row.start : row.end].strip())])
    row = next(others, None)
    units: list[Unit] = []
    done = 0
    for start, end, documents in [*pieces, (len(table.text), len(table.text), [])]:
        inserts = []
        while row is not None and row.start < start:
            inserts.append([row.end - done, f"{table.separator}{grows if row is table.head else ''}"])
            row = next(others, None)
        while row is not None and row.end <= end and documents:
            row = next(others, None)
        source = documents[0].source if documents else units[-1].documents[-1].source if units else {}
        if grows and inserts:
            source["inserts" if documents else "tail_inserts"] = inserts
        if documents:
            source |= {"grows": True} if grows else {}
            units.append(Unit(table.text[done:start], table.text[start:end], documents))
            done = end
    return Parsed(units, table.text[done:])


def _read_texts(table: _Table, column: int, how: How) -> Parsed:
    at = _label_column(table, _SPANS, how, [column])
    ignored = how.label == "none"
    if ignored and at is not None and not _holds_spans(table, at):
        at = None
    settings = {"separator": table.separator, "label": at, "rows": False, "column": column}
    pieces = []
    left_out: list[tuple[str, Span]] = []
    for row in table.rows:
        values = table.values(row)
        if len(values) != len(table.head.cells):
            continue
        place = f"{table.name}:{row.line}"
        found = _text(values[column], "" if at is None or ignored else values[at], how, place)
        left_out += [(place, span) for _, span in found.left_out]
        if found.documents:
            found.documents[0].source |= {"table": settings, "by_line": how.by_line}
            pieces.append((row.start, row.end, found.documents))
    warn_left_out(left_out)
    return _parsed(table, pieces, None if at is not None else table.free(_SPANS))


def _holds_spans(table: _Table, at: int) -> bool:
    """Whether all cells of a column are lists of spans, or empty."""
    try:
        for row in table.rows:
            if len(row.cells) == len(table.head.cells):
                _listed(_value(table.text, row.cells[at]))
    except _NO_LIST:
        return False
    return True


def _listed(cell: str) -> list[tuple[Any, Any, Any]]:
    return [_three(x) for x in json.loads(cell)] if cell.strip() else []


def _text(text: str, cell: str, how: How, place: str) -> Text:
    try:
        parts = _listed(cell)
    except _NO_LIST:
        raise DataError(
            f'{place}: the spans must be a list such as [[0, 4, "PER"]], got {cell.strip()[:60]!r}'
        ) from None
    spans = [check_span(a, b, label, text, place) for a, b, label in parts if label is not None]
    gaps = [check_span(a, b, "?", text, place)[:2] for a, b, label in parts if label is None]
    return Text(text, spans, how, known=bool(cell.strip()), gaps=gaps)


def _three(x: Any) -> tuple[Any, Any, Any]:
    if isinstance(x, dict):
        return x["start"], x["end"], x["label"]
    a, b, label = x
    return a, b, label


def _rewrite(raw: str, documents: list[Document], labels: list[Labels | None], task: str) -> str:
    settings = documents[0].source["table"]
    separator, at = settings["separator"], settings["label"]
    rows = final(documents, labels)
    names = _cells(documents, rows, task, settings)
    out, done, t = [], 0, 0
    for row in _rows("", raw, separator):
        a, b = (row.end, row.end) if at is None else row.cells[at]
        lead = separator if at is None else ""
        kept = at is not None and _known(_value(raw, (a, b))) is None
        same = kept and names[t] in ("", UNKNOWN)
        out += [raw[done:a], raw[a:b] if same else lead + _quoted(names[t], separator)]
        done, t = b, t + 1
    return "".join([*out, raw[done:]])


def _cells(documents: list[Document], rows: list[Labels | None], task: str, settings: dict[str, Any]) -> list[str]:
    """What stands in the column of labels, row by row."""
    if not settings["rows"]:
        if all(row is None for row in rows):
            return [""]
        found = [list(x) for x in spans_of(documents, rows, task)]
        gaps = [[a, b, None] for a, b in gaps_of(documents, rows)] if task == "spans" else []
        return [json.dumps(sorted(found + gaps, key=lambda x: x[0]), ensure_ascii=False)]
    (row,) = rows
    row = row or [None] * len(documents[0].tokens)
    if task == "spans":
        row = from_bio(row, settings["scheme"])
    return [x or UNKNOWN for x in row]


def _write_tokens(documents: Sequence[Document], labels: Sequence[Labels | None], task: str) -> str:
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["sentence", "token", "label"])
    for k, (doc, row) in enumerate(zip(documents, final(documents, labels), strict=True), 1):
        table.writerows([k, word, (row[t] if row else None) or UNKNOWN] for t, word in enumerate(doc.words))
    return out.getvalue()


def _write_texts(documents: Sequence[Document], labels: Sequence[Labels | None], task: str) -> str:
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["text", "spans"])
    for doc, row in zip(documents, final(documents, labels), strict=True):
        alone = Document(doc.text, doc.tokens)
        table.writerow([doc.text, *_cells([alone], [row], task, {"rows": False})])
    return out.getvalue()


TOKENS = Format("csv", "CSV (one token per row)", ".csv", "text/csv", _read, _rewrite, _write_tokens)
TEXTS = Format("csv-text", "CSV (one sentence per row)", ".csv", "text/csv", _read, _rewrite, _write_texts)
