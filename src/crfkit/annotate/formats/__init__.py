"""Formats of annotated text, in and out; what was not touched comes out byte for byte."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from crfkit.annotate.documents import AnnotateError, Document
from crfkit.annotate.formats import columns, records, standoff, tables
from crfkit.annotate.formats.parts import BOM, Format, How, Labels, Parsed, is_chunk_label
from crfkit.data import DataError
from crfkit.data.readers import open_source, read_chunks, source_name

__all__: list[str] = []

_ALL: dict[str, Format] = {
    f.name: f
    for f in (
        standoff.TEXT,
        columns.COLUMNS,
        columns.CONLLU,
        tables.TOKENS,
        tables.TEXTS,
        records.JSONL,
        records.DOCCANO,
        records.PRODIGY,
        records.LABEL_STUDIO,
        standoff.BRAT,
    )
}
#: Formats that a file can be read in.
NAMES = list(_ALL)
#: Formats that can be written, as the page shows them.
LIST = [
    {"name": "same", "title": "As imported", "suffix": "", "note": "your files with the new labels in them"},
    *(
        {"name": f.name, "title": f.title, "suffix": f.suffix, "note": f.suffix if f.name != "brat" else ".zip"}
        for f in _ALL.values()
        if f.name not in ("text", "jsonl")
    ),
]
_LONGEST = 1 << 30  # bytes of a line of JSON: an export may have one line
_SUFFIXES = {".conllu": "conllu", ".conll-u": "conllu", ".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl"}
_SUFFIXES |= {".ndjson": "jsonl", ".json": "jsonl", ".conll": "columns", ".iob": "columns", ".bio": "columns"}


class Export(NamedTuple):
    """A file to be given away: its name, media type and bytes."""

    name: str
    media: str
    data: bytes


def read_documents(
    paths: Iterable[str | Path],
    *,
    format: str = "auto",
    task: str = "spans",
    labels: Sequence[str] = (),
    label: str | None = None,
    comment: str = "",
    by_line: bool = False,
    encoding: str = "utf-8",
) -> list[Document]:
    r"""Sentences of files.

    Parameters
    ----------
    paths : iterable of paths
        Files; folders are searched for ``.txt`` files with or without brat's ``.ann`` beside them; "-" is standard
        input.
    format : str
        One of ``NAMES``, or "auto" to tell by name and content.
    task : {"spans", "tokens"}
    labels : sequence of str
        Labels that are known already; in a task of tokens, they tell a column of labels from others.
    label : str, optional
        The column of labels, by number or name; "none" to ignore the labels of the file. A column is then that of the
        labels, and no feature, if all its values are labels: chunk labels in a task of spans, else those in ``labels``.
    comment : str
        Lines of column files that begin with this are left out.
    by_line : bool
        Whether every line of a text is a sentence.
    encoding : str

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "notes.txt")
    ...     _ = path.write_text("Anna left. Ben stayed.")
    ...     [doc.words for doc in read_documents([str(path)])]
    [['Anna', 'left', '.'], ['Ben', 'stayed', '.']]
    """
    how = How(task, tuple(labels), label, comment, by_line)
    out: list[Document] = []
    seen: set[str] = set()
    for path in _files(paths, format):
        name = source_name(path)
        is_json = (_named(name) if format == "auto" else format) in ("jsonl", "doccano", "prodigy", "labelstudio")
        text = _decode(name, _bytes(path, is_json), encoding)
        notes = Path(path).with_suffix(".ann") if str(path) != "-" else None
        chosen = _ALL[format] if format != "auto" else _tell(name, text, notes, how)
        if chosen.name in ("text", "brat"):
            there = notes is not None and notes.exists() and format != "text" and label != "none"
            found = standoff.read_pair(name, text, _decode(str(notes), _bytes(notes), encoding) if there else None, how)
        else:
            found = chosen.read(name, text, how)
        if not found.units:
            raise DataError(f"{name}: the file holds no text to label")
        key = _free_name(PurePath(name).name, seen)
        out += _stamped(found, key, chosen.name, encoding)
    if not out:
        raise DataError("there is no file to label")
    return out


def write_documents(
    documents: Sequence[Document], labels: Sequence[Labels | None], *, format: str = "same", task: str = "spans"
) -> Export:
    """Sentences with their labels, as a file; several files come in a zip.

    Parameters
    ----------
    documents : sequence of Document
        As :func:`read_documents` gave them, all and in their order.
    labels : sequence of (sequence of str or None, or None)
        For each sentence its labels (BIO of spans), None where one is not known; None for a sentence that was not
        touched.
    format : str
        "same" for each file as it was, with the new labels in it, or one of ``NAMES``.
    task : {"spans", "tokens"}

    Examples
    --------
    >>> doc = Document("Anna left", [(0, 4), (5, 9)])
    >>> write_documents([doc], [["B-PER", "O"]], format="columns").data
    b'Anna\\tB-PER\\nleft\\tO\\n\\n'
    """
    if format != "same" and format not in _ALL:
        raise AnnotateError(f"there is no format {format!r}, only same, {', '.join(NAMES)}")
    if not documents:
        raise AnnotateError("there is nothing to write")
    if format == "same" and not all("file" in doc.source for doc in documents):
        format = "columns"  # they came from no file
    labels = [None if row is None or all(x is None for x in row) else row for row in labels]
    files = _same(documents, labels, task) if format == "same" else _other(documents, labels, _ALL[format], task)
    if len(files) == 1:
        ((name, data),) = files.items()
        media = _ALL[documents[0].source["format"] if format == "same" else format].media
        return Export(name, media, data)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return Export("annotations.zip", "application/zip", out.getvalue())


def originals(documents: Sequence[Document]) -> dict[str, bytes]:
    """The files that documents came from, as they were."""
    return _same(documents, [None] * len(documents), "spans")


def _same(documents: Sequence[Document], labels: Sequence[Labels | None], task: str) -> dict[str, bytes]:
    """Every file as it was, with new labels where there are any."""
    files: dict[str, bytes] = {}
    for docs, rows in _grouped(documents, labels, "file"):
        source = docs[0].source
        chosen, encoding = _ALL[source["format"]], source.get("encoding", "utf-8")
        grown = any(row is not None for row in rows)
        parts = []
        for part, answers in _grouped(docs, rows, "unit"):
            first = part[0].source
            lead = first.get("lead", "")
            if grown:
                lead = _with_inserts(lead, first.get("inserts", ()))
            changed = any(row is not None and list(row) != doc.labels for doc, row in zip(part, answers, strict=True))
            again = changed or (grown and first.get("grows"))
            parts += [lead, _rewritten(chosen, part, answers, task) if again else first["raw"]]
        last = docs[-1].source
        tail = last.get("tail", "")
        text = "".join([*parts, _with_inserts(tail, last.get("tail_inserts", ())) if grown else tail])
        name = source["file"]
        if "txt" in source:
            files[name] = source["txt"].encode(encoding)
            if text or source.get("notes"):
                files[str(PurePath(name).with_suffix(".ann"))] = text.encode(encoding)
        else:
            files[name] = text.encode(encoding)
    return files


def _rewritten(chosen: Format, part: list[Document], labels: list[Labels | None], task: str) -> str:
    """A unit of a file with new labels; what a project says of the file may be damaged."""
    try:
        return chosen.rewrite(part[0].source["raw"], part, labels, task)
    except (ArithmeticError, AttributeError, LookupError, TypeError) as e:
        name = part[0].source["file"]
        raise AnnotateError(f"what the project says of {name} is damaged ({type(e).__name__}: {e})") from e


def _with_inserts(text: str, inserts: Iterable[tuple[int, str]]) -> str:
    """A text with others put into it at some places."""
    for at, more in reversed(list(inserts)):
        text = text[:at] + more + text[at:]
    return text


def _other(
    documents: Sequence[Document], labels: Sequence[Labels | None], chosen: Format, task: str
) -> dict[str, bytes]:
    """One file in another format; the name is the first file's."""
    stem = PurePath(documents[0].source.get("file", "sentences")).stem
    data = chosen.write(documents, labels, task).encode()
    if chosen.name not in ("brat", "text"):
        return {f"{stem}{chosen.suffix}": data}
    text = standoff.write_text(documents)[0].encode()
    return {f"{stem}.txt": text} | ({f"{stem}.ann": data} if chosen.name == "brat" else {})


def _grouped(
    documents: Sequence[Document], labels: Sequence[Labels | None], key: str
) -> Iterable[tuple[list[Document], list[Labels | None]]]:
    """Runs of documents with the same file or unit."""
    if len(documents) != len(labels):
        raise ValueError(f"'labels' must have one entry for each of {len(documents)} sentences, got {len(labels)}")
    begin = 0
    for end in range(1, len(documents) + 1):
        if end == len(documents) or documents[end].source[key] != documents[begin].source[key]:
            yield list(documents[begin:end]), list(labels[begin:end])
            begin = end


def _stamped(found: Parsed, name: str, format: str, encoding: str) -> list[Document]:
    """Documents that know their file, their unit, and what lies around it."""
    out = []
    for number, unit in enumerate(found.units):
        for doc in unit.documents:
            doc.source |= {"file": name, "format": format, "unit": number}
            if encoding != "utf-8":
                doc.source["encoding"] = encoding
        unit.documents[0].source |= {"lead": unit.lead, "raw": unit.raw}
        out += unit.documents
    out[-1].source["tail"] = found.tail
    return out


def _files(paths: Iterable[str | Path], format: str) -> Iterable[str]:
    if format not in ("auto", *_ALL):
        raise ValueError(f"'format' must be auto, {', '.join(NAMES)}, got {format!r}")
    for path in map(str, paths):
        if path != "-" and Path(path).is_dir():
            inside = sorted(map(str, Path(path).glob("*.txt")))
            if not inside:
                raise DataError(f"{path}: the folder holds no .txt file")
            yield from inside
        elif path.endswith(".ann"):
            yield str(Path(path).with_suffix(".txt"))
        else:
            yield path


def _bytes(path: Any, is_json: bool = False) -> bytes:
    limit = {"longest": _LONGEST} if is_json else {}
    with open_source(str(path)) as file:
        pieces = read_chunks(str(path), file, 1 << 20, with_mark=True, **limit)
        return b"".join(piece for piece, _ in pieces)


def _decode(name: str, data: bytes, encoding: str) -> str:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise DataError(f"{name}:{line}: not text in {encoding}: {e.reason} (byte {e.start})") from None
    except LookupError:
        raise DataError(f"{name}: there is no encoding {encoding!r}") from None
    if text.encode(encoding) != data:
        raise DataError(f"{name}: cannot be written back as it is in {encoding}; convert it to UTF-8 first")
    if "\x00" in text:
        raise DataError(f"{name}:{text.count(chr(10), 0, text.index(chr(0))) + 1}: a null character; not a text file")
    return text


def _named(name: str) -> str | None:
    """The format that a file's name tells."""
    path = PurePath(name.removesuffix(".gz").removesuffix(".xz").removesuffix(".bz2"))
    return _SUFFIXES.get(path.suffix.lower())


def _tell(name: str, text: str, notes: Path | None, how: How) -> Format:
    """The format of a file, by its name, else by what it looks like."""
    named = _named(name)
    if named == "csv" and not tables.names_columns(text) and _looks_like_columns(text, how):
        named = "columns"
    if named is not None:
        return _ALL[named]
    if notes is not None and notes.exists():
        return _ALL["brat"]
    start = text.removeprefix(BOM).lstrip()
    if start.startswith("{"):
        return _ALL["jsonl"]
    return _ALL["columns"] if _looks_like_columns(text, how) else _ALL["text"]


def _looks_like_columns(text: str, how: How) -> bool:
    """Whether lines have the same number of cells, two at least, between tabs, or with labels at the end."""
    lines = [line for line in text.removeprefix(BOM).split("\n")[:10_000] if line.strip()]
    lines = [line for line in lines if not (how.comment and line.startswith(how.comment))]
    rows = [line.split("\t") if "\t" in lines[0] else line.split() for line in lines]
    rows = [row for row in rows if row[0] != "-DOCSTART-"]
    if len({len(row) for row in rows}) != 1 or len(rows[0]) < 2:
        return False
    last = {row[-1].strip() for row in rows} - {"?", "_"}
    return "\t" in lines[0] or (bool(last) and (all(map(is_chunk_label, last)) or last <= set(how.labels)))


def _free_name(name: str, taken: set[str]) -> str:
    """The name, with a number if another file has it."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{PurePath(name).stem}-{number}{PurePath(name).suffix}"
    taken.add(found)
    return found
