"""The project file: one table of events in SQLite, which only ever grows."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from crfkit.annotate.documents import AnnotateError
from crfkit.base.tensors import parse_json

#: Marks the file as ours ("crfa"), and says which version of the table it has.
APPLICATION = 0x63726661
VERSION = 1

_SCHEMA = (
    """CREATE TABLE events (
        number INTEGER PRIMARY KEY,
        time REAL NOT NULL,
        kind TEXT NOT NULL,
        annotator TEXT NOT NULL,
        key TEXT UNIQUE,
        payload TEXT NOT NULL
    )""",
    "CREATE TRIGGER no_change BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are never changed'); END",
    "CREATE TRIGGER no_loss BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END",
    f"PRAGMA application_id={APPLICATION}",
    f"PRAGMA user_version={VERSION}",
)


class ProjectError(AnnotateError):
    """A project file that cannot be read or written; nothing of it was changed."""

    def __init__(self, message: str, status: int = 500) -> None:
        super().__init__(message, status)


class Event(NamedTuple):
    """Something that happened: its number (from 1), the time in seconds since 1970, who did what."""

    number: int
    time: float
    kind: str
    annotator: str
    key: str | None
    payload: dict[str, Any]


class Store:
    """The events of a project file.

    An event is on disk before :meth:`append` returns (write-ahead log, ``synchronous=FULL``). One process at a time has
    the file; within it, any thread may append.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store.create(Path(folder) / "notes.crfkit-project", [("project", "", {"task": "spans"})])
    ...     numbers = [store.append("answer", "ann", {"sequence": 3}, key="k") for _ in range(2)]
    ...     kinds = [event.kind for event in store]
    ...     store.close()
    >>> numbers, kinds
    ([2, 2], ['project', 'answer'])
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        if not self.path.is_file():
            raise ProjectError(f"{self.path}: no such project file", 404)
        with _explained(self.path):
            self._db = _connect(self.path)
        try:
            with _explained(self.path):
                self._check()
                rows = self._db.execute("SELECT * FROM events ORDER BY number")
                self.events = [self._event(row, number) for number, row in enumerate(rows, 1)]
        except BaseException:
            self._db.close()
            raise
        self._numbers = {event.key: event.number for event in self.events if event.key is not None}

    @classmethod
    def create(cls, path: str | os.PathLike[str], events: Iterable[tuple[str, str, dict[str, Any]]]) -> Store:
        """A new file with its first events (kind, annotator, payload), whole or not at all."""
        path = Path(path)
        if path.exists():
            raise ProjectError(f"{path}: the file already exists", 409)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        part.unlink(missing_ok=True)
        try:
            with _explained(path):
                db = sqlite3.connect(part, isolation_level=None)
                try:
                    db.execute("PRAGMA synchronous=FULL")
                    db.execute("BEGIN")
                    for statement in _SCHEMA:
                        db.execute(statement)
                    now = time.time()
                    rows = ((now, kind, who, None, _text(payload)) for kind, who, payload in events)
                    db.executemany("INSERT INTO events (time, kind, annotator, key, payload) VALUES (?,?,?,?,?)", rows)
                    db.execute("COMMIT")
                finally:
                    db.close()
                os.link(part, path)  # fails if somebody else was faster
                _sync_folder(path.parent)
        except FileExistsError:
            raise ProjectError(f"{path}: the file already exists", 409) from None
        finally:
            part.unlink(missing_ok=True)
        return cls(path)

    def _check(self) -> None:
        found = str(self._db.execute("PRAGMA quick_check(1)").fetchone()[0])
        if found != "ok":
            raise ProjectError(f"{self.path}: the project file is damaged ({' '.join(found.split())})")

    def _event(self, row: tuple[Any, ...], number: int) -> Event:
        try:
            payload = parse_json(row[5], 1 << 23)  # one per token
            if not isinstance(payload, dict):
                raise ValueError("not a record")
            if row[0] != number:
                raise ValueError(f"event {number} is missing")
            if not (row[4] is None or isinstance(row[4], str)):
                raise ValueError("its key is not a string")
            return Event(number, float(row[1]), str(row[2]), str(row[3]), row[4], payload)
        except (ValueError, TypeError, RecursionError) as e:
            raise ProjectError(f"{self.path}: the project file is damaged (event {row[0]}: {e})") from None

    def append(self, kind: str, annotator: str, payload: dict[str, Any], *, key: str | None = None) -> int:
        """Adds an event, on disk before it returns; a key seen before gives the number of the first event.

        Returns
        -------
        int
            The event's number.
        """
        text = _text(payload)
        with self._lock:
            if key is not None and key in self._numbers:
                return self._numbers[key]
            now = time.time()
            with _explained(self.path):
                cursor = self._db.execute(
                    "INSERT INTO events (time, kind, annotator, key, payload) VALUES (?,?,?,?,?)",
                    (now, kind, annotator, key, text),
                )
            number = int(cursor.lastrowid or 0)
            self.events.append(Event(number, now, kind, annotator, key, json.loads(text)))
            if key is not None:
                self._numbers[key] = number
            return number

    def find(self, key: str) -> int | None:
        """The number of the event with this key, if there is one."""
        return self._numbers.get(key)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __getitem__(self, number: int) -> Event:
        return self.events[number - 1]

    def close(self) -> None:
        """Lets go of the file."""
        with self._lock:
            self._db.close()


def _text(payload: dict[str, Any]) -> str:
    return json.dumps(payload, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _connect(path: Path) -> sqlite3.Connection:
    """The database of a project, which nobody else has; raises before anything is written to what is no project."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1.0)
    try:
        db.execute("PRAGMA locking_mode=EXCLUSIVE")
        application, version = (
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        if application != APPLICATION:
            raise ProjectError(f"{path}: this is not a crfkit project", 400)
        if version > VERSION:
            raise ProjectError(
                f"{path}: the project was written by a newer crfkit (its version is {version}, this crfkit knows "
                f"{VERSION}): upgrade crfkit",
                409,
            )
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("BEGIN EXCLUSIVE")
        db.execute("COMMIT")
    except BaseException:
        db.close()
        raise
    return db


def _sync_folder(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # not possible everywhere
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Says in one line what SQLite and the system complain about."""
    try:
        yield
    except sqlite3.OperationalError as e:
        text = str(e)
        if "locked" in text or "busy" in text:
            raise ProjectError(f"{path}: the project is open in another crfkit", 409) from None
        if "full" in text:
            raise ProjectError(f"{path}: the disk is full; nothing was written", 507) from None
        if "readonly" in text or "unable to open" in text:
            raise ProjectError(f"{path}: the file cannot be written ({text})", 500) from None
        raise ProjectError(f"{path}: {text}") from None
    except sqlite3.DatabaseError as e:
        raise ProjectError(f"{path}: this is not a crfkit project, or it is damaged ({e})") from None
    except FileExistsError:
        raise
    except OSError as e:
        raise ProjectError(f"{path}: {e.strerror or e}", 507 if e.errno == 28 else 500) from None
