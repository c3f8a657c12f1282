"""Column files and CoNLL-U: one token per line, a blank line between sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from crfkit.annotate.documents import Document
from crfkit.annotate.formats.parts import (
    BOM,
    UNKNOWN,
    Format,
    How,
    Labels,
    Parsed,
    Unit,
    final,
    from_bio,
    is_chunk_label,
    lines_of,
    scheme_of,
    to_bio,
)
from crfkit.base.messages import counted
from crfkit.data import DataError
from crfkit.data.readers import CONLLU_COLUMNS

_DOCUMENT = "-DOCSTART-"


def _cells(line: str, tabs: bool) -> list[tuple[int, int]]:
    """Where the cells of a line lie, without its end."""
    body = line.removesuffix("\n").removesuffix("\r")
    if not tabs:
        return [m.span() for m in re.finditer(r"[^ \t]+", body)]
    ends = [i for i, c in enumerate(body) if c == "\t"] + [len(body)]
    return list(zip([0, *(end + 1 for end in ends[:-1])], ends, strict=True))


def _read_columns(name: str, text: str, how: How) -> Parsed:
    lines = lines_of(text)
    blocks, tabs, n = _blocks(name, lines, how)
    at = _label_column(name, [row for _, block in blocks for _, row in block], n, how)
    ignored = at is not None and how.label == "none"
    known = [[_known(row[at]) for _, row in block] for _, block in blocks] if at is not None else []
    settings: dict[str, Any] = {"tabs": tabs, "label": at}
    if at is not None and how.task == "spans":
        settings["scheme"] = scheme_of(known)
    units: list[Unit] = []
    done = 0
    for k, (first, block) in enumerate(blocks):
        last = block[-1][0]
        words = [row[0] for _, row in block]
        more = [[x for c, x in enumerate(row) if c not in (0, at)] for _, row in block]
        labels = None if at is None else to_bio(known[k]) if how.task == "spans" else known[k]
        if ignored or (labels is not None and all(x is None for x in labels)):
            labels = None
        raw = "".join(lines[first : last + 1])
        doc = _joined(words, [" "] * len(words), more if more[0] else None, labels, {"columns": settings})
        doc.source["skip"] = sorted(set(range(last - first + 1)) - {i - first for i, _ in block})  # comments
        if at is None:
            doc.source["grows"] = True
        units.append(Unit("".join(lines[done:first]), raw, [doc]))
        done = last + 1
    return Parsed(units, "".join(lines[done:]))


def _blocks(name: str, lines: list[str], how: How) -> tuple[list[tuple[int, list[Any]]], bool, int]:
    """Sentences as first line and rows (line, cells); whether cells lie between tabs; how many there are."""
    blocks: list[tuple[int, list[Any]]] = []
    tabs: bool | None = None
    n = 0
    open_ = False
    for i, line in enumerate(lines):
        body = line.removeprefix(BOM) if i == 0 else line
        if not body.strip(" \t\r\n"):
            open_ = False
            continue
        if how.comment and body.startswith(how.comment):
            continue
        if tabs is None:
            tabs = "\t" in body
        row = [line[a:b] for a, b in _cells(line, tabs)]
        row[0] = row[0].removeprefix(BOM) if i == 0 else row[0]
        if row[0] == _DOCUMENT:
            open_ = False
            continue
        n = n or len(row)
        if len(row) != n:
            raise DataError(f"{name}:{i + 1}: {counted(len(row), 'column')}, but the lines before have {n}")
        if not row[0].strip():
            raise DataError(f"{name}:{i + 1}: the first column, that of the words, is empty")
        if not open_:
            blocks.append((i, []))
        blocks[-1][1].append((i, row))
        open_ = True
    return blocks, bool(tabs), n


def _known(cell: str) -> str | None:
    return None if cell in (UNKNOWN, "_", "") else cell


def _label_column(name: str, rows: list[list[str]], n: int, how: How) -> int | None:
    """The column of the labels, also of those that are to be ignored; None if there is none."""
    if not rows:
        return None
    given = how.label not in (None, "none")
    if how.label is not None and given:
        if not re.fullmatch(r"-?\d{1,18}", how.label) or not -n <= int(how.label) < n or int(how.label) % n == 0:
            raise DataError(
                f"{name}: there is no label column {how.label}: the file has {counted(n, 'column')}, "
                f"of which the first are the words"
            )
        at = int(how.label) % n
    else:
        at = n - 1
    values = {x for row in rows if (x := _known(row[at])) is not None}
    if how.task == "spans":
        right = all(is_chunk_label(x) for x in values)
    else:
        right = (not how.labels and how.label is None) or values <= set(how.labels)
    if not given:
        return at if right and n > 1 else None
    if not right and how.task == "spans":
        wrong = next(x for x in sorted(values) if not is_chunk_label(x))
        raise DataError(f"{name}: {wrong!r} in column {at} is not a span label such as B-PER (see --task tokens)")
    return at


def _joined(
    words: list[str],
    after: list[str],
    columns: list[list[str]] | None,
    labels: list[str | None] | None,
    source: dict[str, Any],
) -> Document:
    """A document of words, with what follows each but the last."""
    tokens, text = [], ""
    for word, gap in zip(words, after, strict=True):
        tokens.append((len(text), len(text) + len(word)))
        text += word + gap
    return Document(text[: tokens[-1][1]], tokens, columns, labels, source)


def _rewrite_columns(raw: str, documents: list[Document], labels: list[Labels | None], task: str) -> str:
    (doc,) = documents
    (row,) = final(documents, labels)
    settings, skip = doc.source["columns"], set(doc.source.get("skip", ()))
    row = row or [None] * len(doc.tokens)
    if task == "spans":
        row = from_bio(row, settings.get("scheme", "bio"))
    out, t = [], 0
    for i, line in enumerate(lines_of(raw)):
        if i in skip:
            out.append(line)
            continue
        cells = _cells(line, settings["tabs"])
        name, at = row[t] or UNKNOWN, settings["label"]
        t += 1
        if at is None:
            end = cells[-1][1]
            out.append(f"{line[:end]}{chr(9) if settings['tabs'] else ' '}{name}{line[end:]}")
        else:
            a, b = cells[at]
            same = row[t - 1] is None and _known(line[a:b]) is None
            out.append(line if same else line[:a] + name + line[b:])
    return "".join(out)


def _write_columns(documents: Sequence[Document], labels: Sequence[Labels | None], task: str) -> str:
    out = []
    width = max((len(doc.columns[0]) for doc in documents if doc.columns), default=0)
    for doc, row in zip(documents, final(documents, labels), strict=True):
        for t, word in enumerate(doc.words):
            more = doc.columns[t] if doc.columns else []
            cells = [_one_cell(word), *more, *["_"] * (width - len(more)), (row[t] if row else None) or UNKNOWN]
            out.append("\t".join(cells) + "\n")
        out.append("\n")
    return "".join(out)


def _one_cell(word: str) -> str:
    return re.sub(r"\s", "_", word)


def _read_conllu(name: str, text: str, how: How) -> Parsed:
    ignored = how.label == "none"
    column = 3 if how.label is None or ignored else _conllu_column(name, how.label)
    lines = lines_of(text)
    units: list[Unit] = []
    done, i = 0, 0
    while i < len(lines):
        first, rows = i, []
        labels: list[str | None]
        source: dict[str, Any]
        while i < len(lines) and lines[i].strip(" \t\r\n").removeprefix(BOM):
            line = lines[i].removeprefix(BOM)
            if not line.startswith("#"):
                cells = line.rstrip("\r\n").split("\t")
                if len(cells) != 10:
                    raise DataError(f"{name}:{i + 1}: {counted(len(cells), 'column')}, but CoNLL-U has 10")
                if cells[0].isdigit():
                    rows.append(cells)
                elif not re.fullmatch(r"\d+[-.]\d+", cells[0]):
                    raise DataError(f"{name}:{i + 1}: the first column must be a number, got {cells[0]!r}")
            i += 1
        if rows:
            after = ["" if "SpaceAfter=No" in row[9].split("|") else " " for row in rows]
            if how.task == "spans":
                found = [_entity(row[9]) for row in rows]
                labels, source = to_bio(found), {"scheme": scheme_of([found])}
            else:
                labels, source = [_known(row[column]) for row in rows], {"column": column}
            none = ignored or all(x is None for x in labels)
            doc = _joined([row[1] for row in rows], after, None, None if none else labels, source)
            units.append(Unit("".join(lines[done:first]), "".join(lines[first:i]), [doc]))
            done = i
        i += 1
    return Parsed(units, "".join(lines[done:]))


def _conllu_column(name: str, label: str) -> int:
    if label not in CONLLU_COLUMNS or label in ("id", "form"):
        raise DataError(f"{name}: --label: CoNLL-U has no column {label!r}, it has {', '.join(CONLLU_COLUMNS[2:])}")
    return CONLLU_COLUMNS.index(label)


def _entity(misc: str) -> str | None:
    """The label of a span in the column MISC."""
    for part in misc.split("|"):
        if part.startswith("NER=") and is_chunk_label(part[4:]):
            return part[4:]
    return None


def _with_entity(misc: str, label: str | None) -> str:
    parts = [x for x in misc.split("|") if not x.startswith("NER=") and x not in ("_", "")]
    if label:  # attributes are in alphabetical order
        parts.insert(next((k for k, x in enumerate(parts) if x.lower() > "ner="), len(parts)), f"NER={label}")
    return "|".join(parts) or "_"


def _rewrite_conllu(raw: str, documents: list[Document], labels: list[Labels | None], task: str) -> str:
    (doc,) = documents
    (row,) = final(documents, labels)
    row = row or [None] * len(doc.tokens)
    if task == "spans":
        row = from_bio(row, doc.source["scheme"])
    column = doc.source.get("column", 9)
    out, t = [], 0
    for line in lines_of(raw):
        body = line.rstrip("\r\n")
        cells = body.split("\t")
        if line.removeprefix(BOM).startswith("#") or not cells[0].removeprefix(BOM).isdigit():
            out.append(line)
            continue
        old = _entity(cells[9]) if task == "spans" else _known(cells[column])
        if row[t] != old:
            cells[column] = _with_entity(cells[9], row[t]) if task == "spans" else row[t] or "_"
        t += 1
        out.append("\t".join(cells) + line[len(body) :])
    return "".join(out)


def _write_conllu(documents: Sequence[Document], labels: Sequence[Labels | None], task: str) -> str:
    out = []
    for doc, row in zip(documents, final(documents, labels), strict=True):
        text = re.sub(r"\s+", " ", doc.text)
        out.append(f"# text = {text}\n")
        for t, word in enumerate(doc.words):
            label = row[t] if row else None
            joined = t + 1 < len(doc.tokens) and doc.tokens[t + 1][0] == doc.tokens[t][1]
            misc = "SpaceAfter=No" if joined else "_"
            upos = label or "_" if task == "tokens" else "_"
            cells = [str(t + 1), _one_cell(word), "_", upos, *["_"] * 5]
            out.append("\t".join([*cells, _with_entity(misc, label) if task == "spans" else misc]) + "\n")
        out.append("\n")
    return "".join(out)


COLUMNS = Format(
    "columns", "Columns (one token per line)", ".txt", "text/plain", _read_columns, _rewrite_columns, _write_columns
)
CONLLU = Format("conllu", "CoNLL-U", ".conllu", "text/plain", _read_conllu, _rewrite_conllu, _write_conllu)
