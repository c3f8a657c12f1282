"""Files of the annotation page: what it imports, in every format, and projects."""

from __future__ import annotations

import json
import random
import sqlite3
import struct
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from crfkit.annotate.documents import AnnotateError
from crfkit.annotate.formats import NAMES, originals, read_documents, write_documents
from crfkit.annotate.project import Project
from crfkit.data import DataError
from fuzzing.mutations import mutate_bytes, mutate_lines, mutate_tree, times

#: What a reader may raise.
ERRORS = (AnnotateError, DataError)
_RECORDS: dict[str, list[Any]] = {
    "doccano": [
        {"id": 1, "text": "Anna lives in Köln.", "label": [[0, 4, "PER"], [14, 18, "LOC"]]},
        {"id": 2, "text": "No 😀 name", "entities": [{"start_offset": 0, "end_offset": 2, "label": "X"}]},
    ],
    "prodigy": [
        {
            "text": "Anna left",
            "spans": [{"start": 0, "end": 4, "label": "PER", "token_start": 0, "token_end": 0}],
            "tokens": [
                {"text": "Anna", "start": 0, "end": 4, "id": 0},
                {"text": "left", "start": 5, "end": 9, "id": 1},
            ],
            "answer": "accept",
        }
    ],
    "labelstudio": [
        {
            "id": 7,
            "data": {"text": "Anna left"},
            "annotations": [
                {
                    "result": [
                        {
                            "from_name": "label",
                            "to_name": "text",
                            "type": "labels",
                            "value": {"start": 0, "end": 4, "text": "Anna", "labels": ["PER"]},
                        }
                    ]
                }
            ],
        }
    ],
}


def _lines(records: list[Any]) -> bytes:
    return b"".join(json.dumps(x, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n" for x in records)


#: Format and a good file; brat's text and notes lie on both sides of a null character.
GOOD: list[tuple[str, bytes]] = [
    *((name, _lines(records)) for name, records in _RECORDS.items()),
    ("jsonl", json.dumps(_RECORDS["labelstudio"], indent=1).encode()),
    ("csv", b"sentence,word,label\n1,Anna,B-PER\n1,left,O\n2,\"a,\"\"b\",O\n"),
    ("csv", b'text\tspans\r\nAnna left\t"[[0, 4, ""PER""]]"\r\n'),
    ("columns", b"Anna\tN\tB-PER\nleft\tV\tO\n\nBen\tN\t?\n"),
    ("conllu", b"1\tAnna\t_\tPROPN\t_\t_\t0\troot\t_\tEntity=B-PER\n2-3\tit's" + b"\t_" * 8 + b"\n2\tit" + b"\t_" * 8),
    ("brat", "Anna lives\nin Köln.\n\0T1\tPER 0 4\tAnna\nT2\tLOC 14 18\tKöln\n#1\tNote T1\tx\nE1\tPER:T1\n".encode()),
    ("text", b"Anna left. Ben\r\nstayed.\n"),
]  # fmt: skip


def seeds(_: Path) -> list[bytes]:
    """The number of the format comes first."""
    return [struct.pack("<I", NAMES.index(name)) + data for name, data in GOOD]


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Changes of records by their structure where there are records, else of lines, cells and bytes."""
    head, body = data[:4], data[4:]
    for _ in range(times(rng)):
        try:
            records = [json.loads(x) for x in body.splitlines() if x.strip()]
        except (ValueError, RecursionError):
            records = []
        if records and isinstance(records[0], dict) and rng.random() < 0.8:
            mutate_tree({"records": records}, rng)
            with suppress(RecursionError):
                body = _lines(records)
        else:
            body = rng.choice([mutate_bytes(body, rng), mutate_lines(body, rng, b"\t ,\0=|")])
    return head + body


def use(data: bytes, path: Path) -> None:
    """Reads a file, writes it as it was, with other labels, and in every format."""
    name = NAMES[struct.unpack("<I", data[:4])[0] % len(NAMES)]
    task = "tokens" if len(data) % 3 == 0 else "spans"
    text, _, notes = data[4:].partition(b"\0") if name == "brat" else (data[4:], b"", b"")
    file, beside = path.with_suffix(".txt"), path.with_suffix(".ann")
    file.write_bytes(text)
    beside.unlink(missing_ok=True)
    if name == "brat":
        beside.write_bytes(notes)
    documents = read_documents([file], format=name, task=task)
    again = originals(documents)
    assert again[file.name] == text, "the file does not come out as it went in"
    assert again.get(beside.name, b"") == notes, "the notes do not come out as they went in"
    first, rest = ("B-Z", "I-Z") if task == "spans" else ("Z", "Z")
    labels = [[first, *[rest] * (len(doc.tokens) - 1)] if k % 2 == 0 else None for k, doc in enumerate(documents)]
    for out in ("same", *NAMES):
        try:
            write_documents(documents, labels, format=out, task=task)
        except AnnotateError as e:
            raise AssertionError(f"what was read cannot be written: {e}") from e


# projects


def project_seeds(folder: Path) -> list[bytes]:
    """The events of projects, as JSON lines: a damaged database is SQLite's to find, what it holds is ours."""
    out = []
    for k, task in enumerate(("spans", "tokens")):
        file = folder / f"project{k}.txt"
        file.write_text("Anna left. Anna stayed.\n")
        path = folder / f"project{k}"
        path.unlink(missing_ok=True)
        project = Project.create(path, read_documents([file], task=task), task=task, labels=["PER", "LOC"])
        span = {"start": 0, "end": 1, "label": "PER", "everywhere": task == "spans"}
        project.append("answer", "a", {"sequence": 0, "spans": [span], "judged": [[0, 2]]}, key="k")
        project.append("edit", "b", {"sequence": 1, "spans": [{**span, "everywhere": False}], "whole": True})
        project.append("labels", "a", {"rename": {"from": "LOC", "to": "GPE"}})
        project.append("undo", "b", {"of": project.undoable("b")})
        project.append("redo", "b", {"of": project.redoable("b")})
        project.append("settings", "a", {"seed": 1})
        out.append(_lines([[float(e.number), e.kind, e.annotator, e.key, e.payload] for e in project.store]))
        project.close()
    return out


def mutate_project(data: bytes, rng: random.Random) -> bytes:
    """Changes of events by their structure."""
    events = [json.loads(x) for x in data.splitlines()]
    for _ in range(times(rng)):
        mutate_tree({"events": events}, rng)
    try:
        return _lines(events)
    except RecursionError:
        return data


def use_project(data: bytes, path: Path) -> None:
    """Puts events into a database, opens it as a project, and asks what is known."""
    path.unlink(missing_ok=True)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    _write_project(path, [json.loads(x) for x in data.splitlines()])
    with closing(Project.open(path)) as project:
        for i in range(len(project.documents)):
            project.counts(project.known(i))
            for annotator in project.annotators:
                project.known(i, annotator, direct=True)
        project.labelled()
        project.said()
        if all("file" in doc.source for doc in project.documents):
            originals(project.documents)
        write_documents(project.documents, [None] * len(project.documents), format="columns", task=project.task)


def _write_project(path: Path, events: list[Any]) -> None:
    from crfkit.annotate.store import _SCHEMA

    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in _SCHEMA:
            db.execute(statement)
        for row in events:
            if not isinstance(row, list) or len(row) != 5:
                continue
            values = [x if isinstance(x, (int, float, str, type(None))) else json.dumps(x) for x in row]
            values[4] = json.dumps(row[4])
            try:
                db.execute("INSERT INTO events (time, kind, annotator, key, payload) VALUES (?,?,?,?,?)", values)
            except (sqlite3.Error, OverflowError, UnicodeEncodeError):  # no event of a table can be so
                continue
