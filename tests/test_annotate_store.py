"""The project file: events are never lost, changed or counted twice; what cannot be read is left as it is."""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from crfkit.annotate.documents import AnnotateError, Document
from crfkit.annotate.project import Project
from crfkit.annotate.store import ProjectError, Store


def documents() -> list[Document]:
    return [Document("Anna left", [(0, 4), (5, 9)]), Document("Bob Ray left", [(0, 3), (4, 7), (8, 12)])]


def answer(i: int, *spans: tuple[int, int, str | None], **more: object) -> dict[str, object]:
    said = [{"start": a, "end": b, "label": label, "everywhere": False} for a, b, label in spans]
    return {"sequence": i, "spans": said, "judged": [], "whole": True, **more}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes.crfkit-project"


@pytest.fixture
def project(path: Path) -> Project:
    return Project.create(path, documents(), labels=["PER", "ORG"])


def test_everything_comes_back(path: Path, project: Project) -> None:
    assert project.append("answer", "ann", answer(0, (0, 1, "PER")), key="k1") == 3
    project.close()
    again = Project.open(path)
    assert [d.words for d in again.documents] == [["Anna", "left"], ["Bob", "Ray", "left"]]
    assert again.documents == documents()
    assert (again.name, again.task, again.names, again.annotators) == ("notes", "spans", ["PER", "ORG"], ["ann"])
    known = again.known(0)
    assert known is not None
    assert known.argmax(axis=1).tolist() == [1, 0]


def test_a_key_counts_once(project: Project) -> None:
    first = project.append("answer", "ann", answer(0), key="same")
    assert project.append("answer", "ann", answer(1), key="same") == first
    assert len(project.said()) == 1


def test_a_key_counts_once_from_many_threads(project: Project) -> None:
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(project.append("answer", "ann", answer(0), key="same")))
        for _ in range(20)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(found)) == 1
    assert len(project.said()) == 1


def test_events_cannot_be_changed(path: Path, project: Project) -> None:
    project.append("answer", "ann", answer(0))
    project.close()
    db = sqlite3.connect(path)
    for statement in ("DELETE FROM events", "UPDATE events SET payload = '{}'"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            db.execute(statement)
    db.close()


def test_the_log_is_safe(project: Project) -> None:
    assert project.store._db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert project.store._db.execute("PRAGMA synchronous").fetchone()[0] == 2


class TestRefused:
    def test_a_newer_version(self, path: Path, project: Project) -> None:
        project.close()
        db = sqlite3.connect(path)
        db.execute("PRAGMA user_version=99")
        db.close()
        before = path.read_bytes()
        with pytest.raises(ProjectError, match=r"newer crfkit.*99"):
            Project.open(path)
        assert path.read_bytes() == before

    @pytest.mark.parametrize("content", [b"", b"hello", b"SQLite format 3\0" + b"x" * 5000])
    def test_no_project(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        with pytest.raises(ProjectError, match="not a crfkit project"):
            Project.open(path)
        assert path.read_bytes() == content

    def test_another_database(self, path: Path) -> None:
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE mine (x)")
        db.commit()
        db.close()
        before = path.read_bytes()
        with pytest.raises(ProjectError, match="not a crfkit project"):
            Project.open(path)
        assert path.read_bytes() == before

    def test_missing(self, path: Path) -> None:
        with pytest.raises(ProjectError, match="no such project"):
            Project.open(path)
        assert not path.exists()

    def test_damage(self, path: Path) -> None:
        project = Project.create(path, [Document("x" * 300, [(0, 300)])] * 300, labels=["A"])
        for k in range(300):
            project.append("answer", "ann", answer(k))
        project.close()
        data = bytearray(path.read_bytes())
        messages = []
        for at in range(4096, len(data) - 600, 4096):
            broken = bytearray(data)
            broken[at : at + 600] = b"\xff" * 600
            other = path.with_name(f"broken{at}.crfkit-project")
            other.write_bytes(broken)
            try:
                Project.open(other).close()
            except ProjectError as e:
                messages.append(str(e))
            assert other.read_bytes() == bytes(broken)
        assert len(messages) > 3
        assert not any("\n" in text for text in messages)

    def test_a_truncated_file(self, path: Path, project: Project) -> None:
        project.close()
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2])
        with pytest.raises(ProjectError):
            Project.open(path)

    def test_events_that_make_no_sense(self, path: Path, project: Project) -> None:
        project.store.append("answer", "ann", {"sequence": 77, "spans": [{"everywhere": True}]})
        project.close()
        with pytest.raises(ProjectError, match="damaged"):
            Project.open(path)

    def test_a_number_of_thousands_of_digits(self, path: Path, project: Project) -> None:
        project.close()
        with sqlite3.connect(path) as db:
            payload = f'{{"of": {"9" * 5000}}}'
            db.execute("INSERT INTO events (time, kind, annotator, payload) VALUES (0, 'undo', 'ann', ?)", (payload,))
        db.close()
        with pytest.raises(ProjectError, match=r"event \d+: a number of 5000 digits is too long"):
            Project.open(path)

    def test_nothing_is_stored_that_could_not_be_read(self, path: Path, project: Project) -> None:
        before = len(project.store.events)
        bad: list[tuple[str, dict[str, Any]]] = [
            ("answer", answer(77)),
            ("answer", answer(0, (0, 3, "PER"))),
            ("edit", answer(0, (0, 1, "DATE"))),
            ("settings", {"context": 21}),
            ("settings", {"time": {"sentence": 0, "token": 0}}),
            ("labels", {"rename": {"from": "PER", "to": "ORG"}}),
            ("undo", {"of": 1}),
        ]
        for kind, payload in bad:
            with pytest.raises(AnnotateError):
                project.append(kind, "ann", payload)
        assert len(project.store.events) == before
        project.append("settings", "ann", {"time": {"sentence": 0}})
        with pytest.raises(ValueError, match="must not both be 0"):
            project.append("settings", "ann", {"time": {"token": 0}})
        project.close()
        assert Project.open(path).settings["time"] == {"sentence": 0}

    def test_settings_that_leave_no_time_are_ignored(self, path: Path, project: Project) -> None:
        """They were once stored."""
        project.store.append("settings", "ann", {"time": {"sentence": 0}})
        project.store.append("settings", "ann", {"time": {"token": 0}})
        project.append("answer", "ann", answer(0, (0, 1, "PER")))
        project.close()
        with pytest.warns(
            UserWarning, match=r"event 4 is ignored: 'sentence' and 'token' of 'time' must not both be 0"
        ):
            again = Project.open(path)
        assert again.settings["time"] == {"sentence": 0}
        assert len(again.said()) == 1

    def test_texts_that_cannot_be_written(self, path: Path, project: Project) -> None:
        document: dict[str, object] = {"text": "\ud800", "tokens": [], "columns": None, "labels": None, "source": {}}
        project.store.append("documents", "ann", {"documents": [document]})
        project.close()
        with pytest.raises(ProjectError, match="contains a lone surrogate"):
            Project.open(path)

    def test_two_at_a_time(self, path: Path, project: Project) -> None:
        code = f"from crfkit.annotate.project import Project; Project.open({str(path)!r})"
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "open in another crfkit" in found.stderr
        project.append("answer", "ann", answer(0))

    def test_an_existing_file_is_not_replaced(self, path: Path) -> None:
        path.write_text("mine")
        with pytest.raises(ProjectError, match="already exists"):
            Project.create(path, documents(), labels=["PER"])
        assert path.read_text() == "mine"
        assert os.listdir(path.parent) == [path.name]

    def test_labels_of_the_file_are_checked(self, path: Path) -> None:
        bad = [Document("Anna", [(0, 4)], labels=["PERSON"])]
        with pytest.raises(ValueError, match="B-TYPE"):
            Project.create(path, bad)
        assert not path.exists()


def _append_many(project: Project) -> None:
    for _ in range(100):
        project.append("answer", "ann", answer(1, note="x" * 2000))


def test_a_full_disk(path: Path, project: Project) -> None:
    """The file may not grow; what was there stays, and when there is room again things go on."""
    project.append("answer", "ann", answer(0))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = max(path.with_name(path.name + "-wal").stat().st_size, path.stat().st_size)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5000, limit[1]))
        with pytest.raises(ProjectError):
            _append_many(project)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    many = len(project.store.events)
    number = project.append("answer", "ann", answer(0), key="after")
    assert number == many + 1
    project.close()
    again = Project.open(path)
    assert [e.number for e in again.store] == list(range(1, many + 2))


_WRITER = """
import sys
from crfkit.annotate.store import Store
store = Store(sys.argv[1])
for n in range(100000):
    print(store.append("answer", "ann", {"sequence": 0, "spans": [], "n": n}, key=f"key-{n}"), flush=True)
"""


def test_killed_while_writing(path: Path, project: Project) -> None:
    project.close()
    for round_ in range(3):
        copy = path.with_name(f"copy{round_}.crfkit-project")
        shutil.copy(path, copy)
        with subprocess.Popen([sys.executable, "-c", _WRITER, str(copy)], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            said = [int(writer.stdout.readline()) for _ in range(20 * (round_ + 1))]
            writer.kill()
            said += [int(line) for line in writer.stdout.read().split("\n")[:-1]]
        store = Store(copy)
        assert [e.number for e in store][: max(said)] == list(range(1, max(said) + 1))
        store.close()


class TestUndo:
    def test_undo_and_redo(self, project: Project) -> None:
        a = project.append("answer", "ann", answer(0, (0, 1, "PER")))
        b = project.append("answer", "ann", answer(1, (0, 2, "PER")))
        assert project.undoable("ann") == b
        project.append("undo", "ann", {"of": b})
        assert (project.undoable("ann"), project.redoable("ann")) == (a, b)
        assert project.known(1) is None
        project.append("undo", "ann", {"of": a})
        project.append("redo", "ann", {"of": a})
        assert (project.undoable("ann"), project.redoable("ann")) == (a, b)
        project.append("answer", "ann", answer(1))
        assert project.redoable("ann") is None
        assert project.undoable("ben") is None

    def test_it_is_one_annotators(self, project: Project) -> None:
        project.append("answer", "ann", answer(0))
        project.append("answer", "ben", answer(1))
        assert project.undoable("ann") == 3

    def test_survives(self, path: Path, project: Project) -> None:
        number = project.append("answer", "ann", answer(0, (0, 1, "PER")))
        project.append("undo", "ann", {"of": number})
        project.close()
        again = Project.open(path)
        assert again.known(0) is None
        assert again.redoable("ann") == number


class TestLabels:
    def test_changes(self, project: Project) -> None:
        project.append("answer", "ann", answer(0, (0, 1, "PER")))
        for change in (
            {"add": {"name": "LOC", "color": 3, "key": "x"}},
            {"rename": {"from": "PER", "to": "PERSON"}},
            {"color": {"name": "PERSON", "color": 7}},
            {"key": {"name": "PERSON", "key": "p"}},
        ):
            project.append("labels", "ann", project.check_change(change))
        assert [label.plain() for label in project.labels] == [
            {"name": "PERSON", "color": 7, "key": "p"},
            {"name": "ORG", "color": 1, "key": "2"},
            {"name": "LOC", "color": 3, "key": "x"},
        ]
        assert project.said()[0].payload["spans"][0]["label"] == "PER"
        known = project.known(0)
        assert known is not None
        assert project.scheme().kind(int(known[0].argmax())) == "PERSON"
        project.append("answer", "ann", answer(1, (0, 2, "ORG")))
        project.append("labels", "ann", project.check_change({"merge": {"from": "PERSON", "to": "ORG"}}))
        assert project.names == ["ORG", "LOC"]
        known = project.known(0)
        assert known is not None
        assert project.scheme().kind(int(known[0].argmax())) == "ORG"
        project.append("labels", "ann", project.check_change({"add": {"name": "PER"}}))
        known = project.known(0)
        assert known is not None
        assert project.scheme().kind(int(known[0].argmax())) == "ORG"

    @pytest.mark.parametrize(
        "change",
        [
            {},
            {"add": "X"},
            {"add": {"name": "PER"}},
            {"add": {"name": "O"}},
            {"add": {"name": " X"}},
            {"add": {"name": "a b"}},
            {"add": {"name": "X", "color": 12}},
            {"add": {"name": "X"}, "rename": {"from": "PER", "to": "Y"}},
            {"rename": {"from": "NONE", "to": "X"}},
            {"rename": {"from": "PER", "to": "ORG"}},
            {"merge": {"from": "PER", "to": "PER"}},
            {"merge": {"from": "PER", "to": None}},
            {"key": {"name": "PER", "key": "ab"}},
            {"color": {"name": "PER", "color": "red"}},
        ],
    )
    def test_refused(self, project: Project, change: dict[str, object]) -> None:
        with pytest.raises(ValueError, match=r"label|color|key|'to'"):
            project.check_change(change)

    def test_labels_of_the_file(self, path: Path) -> None:
        rows = [Document("Anna left", [(0, 4), (5, 9)], labels=["B-PER", None])]
        project = Project.create(path, rows, labels=["ORG"])
        assert project.names == ["ORG", "PER"]
        known = project.known(0)
        assert known is not None
        assert known.sum(axis=1).tolist() == [1, 5]
        project.append("labels", "ann", project.check_change({"rename": {"from": "PER", "to": "P"}}))
        known = project.known(0)
        assert known is not None
        assert project.scheme().labels[int(known[0].argmax())] == "B-P"


def test_every_occurrence(path: Path) -> None:
    texts = ["Bob Ray left", "see Bob Ray", "Bob left", "Bob Ray"]
    rows = []
    for text in texts:
        ends = [0]
        for word in text.split():
            ends.append(ends[-1] + len(word) + 1)
        rows.append(Document(text, [(a, b - 1) for a, b in itertools.pairwise(ends)]))
    project = Project.create(path, rows, labels=["PER", "ORG"])
    said = answer(0, (0, 2, "PER"))
    said["spans"][0]["everywhere"] = True  # type: ignore[index]
    number = project.append("answer", "ann", said)
    assert project.occurrences(0, 0, 2) == 3
    assert project.occurrences(2, 0, 2) == 1
    assert project.touched(number) == [0, 1, 3]
    assert project.known(2) is None
    known = project.known(1)
    assert known is not None
    assert known[1:].argmax(axis=1).tolist() == [1, 2]
    assert known[0].sum() == 5
    project.append("answer", "ann", answer(3, (0, 2, "ORG")))  # said of this one
    known = project.known(3)
    assert known is not None
    assert known.argmax(axis=1).tolist() == [3, 4]
    project.append("undo", "ann", {"of": number})
    assert project.known(1) is None


def test_what_holds_follows_undo_and_redo(path: Path) -> None:
    project = Project.create(path, documents() * 2, labels=["PER"])
    numbers = [project.append("answer", who, answer(k)) for k, who in enumerate(["ann", "bo", "ann"])]
    skipped = project.append("answer", "bo", {**answer(3), "skip": True})
    project.append("edit", "ann", {"sequence": 0, "spans": [], "judged": [], "whole": True})

    def state(who: str | None) -> tuple[list[int], set[int], set[int], int, list[int]]:
        said = project.standing(who)
        assert said.events == project.said(who)
        numbers = [[e.number for e in events] for events in (said.events, said.last(2))]
        return numbers[0], said.sequences, said.answered, said.told, numbers[1]

    edit = skipped + 1
    assert state(None) == ([*numbers, skipped, edit], {0, 1, 2, 3}, {0, 1, 2}, 3, numbers[1:])
    assert state("bo") == ([numbers[1], skipped], {1, 3}, {1}, 1, [numbers[1]])
    project.append("undo", "ann", {"of": numbers[2]})
    assert state(None) == ([*numbers[:2], skipped, edit], {0, 1, 3}, {0, 1}, 2, numbers[:2])
    assert state("ann") == ([numbers[0], edit], {0}, {0}, 1, [numbers[0]])
    project.append("redo", "ann", {"of": numbers[2]})
    assert state("ann") == ([numbers[0], numbers[2], edit], {0, 2}, {0, 2}, 2, [numbers[0], numbers[2]])
    assert state("nobody") == ([], set(), set(), 0, [])
    project.close()
