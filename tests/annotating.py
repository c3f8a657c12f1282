"""A project served in this process, and a browser that looks at it."""

from __future__ import annotations

import runpy
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crfkit.annotate.documents import Document
from crfkit.annotate.project import Project
from crfkit.annotate.server import Server
from crfkit.annotate.session import Session
from crfkit.data import load_corpus

ROOT = Path(__file__).parents[1]
Span = tuple[int, int, str]


def chromium() -> str:
    """The browser to test with."""
    return str(runpy.run_path(str(ROOT / "tools" / "find_chromium.py"))["find"]())


def document(words: Sequence[str], between: str = " ") -> Document:
    """A sentence of these words."""
    tokens, place = [], 0
    for word in words:
        tokens.append((place, place + len(word)))
        place += len(word) + len(between)
    return Document(between.join(words), tokens)


def spans_of(labels: Sequence[str]) -> list[Span]:
    """The chunks of BIO labels."""
    out: list[list[Any]] = []
    for t, label in enumerate(labels):
        if label.startswith("B-"):
            out.append([t, t + 1, label[2:]])
        elif label.startswith("I-"):
            out[-1][1] = t + 1
    return [(a, b, c) for a, b, c in out]


def sample(n: int) -> tuple[list[Document], list[list[Span]]]:
    """Sentences of the embedded sample, and what is in them."""
    X, y = load_corpus("ingredients", "train")
    words = [[token if isinstance(token, str) else token[0] for token in row] for row in X[:n]]
    return [document(row) for row in words], [spans_of(row) for row in y[:n]]


class Site:
    """A project, its session and its server, in a thread."""

    def __init__(self, path: Path, documents: Sequence[Document], *, names: Sequence[str], **project: Any) -> None:
        self.path = path
        self.names = names
        Project.create(path, documents, **project).close()
        self.port = 0
        self.start()

    def start(self) -> None:
        """Serves; after the first time at the same port."""
        self.session = Session(Project.open(self.path), n_jobs=1)
        for name in self.names:
            self.session.add_annotator(name)
        self.server = Server(self.session, port=self.port)
        self.port = self.server.port
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        deadline = time.monotonic() + 30
        while not self.server.started:
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.01)

    def stop(self) -> None:
        """Ends server and session."""
        self.server.stop()
        self.thread.join(30)
        self.session.close()

    def said(self, i: int, annotator: str = "anna") -> set[Span]:
        """What people said of a sentence."""
        row = self.session.sequence(annotator, i)
        return {(s["start"], s["end"], s["label"]) for s in row["spans"] if s["by"] == "person" and s["label"]}

    def answers(self) -> list[dict[str, Any]]:
        """The answers that hold, in their order."""
        return [e.payload for e in self.session.project.said() if e.kind == "answer"]


@contextmanager
def site(
    folder: Path,
    documents: Sequence[Document],
    labels: Sequence[str] = ("PER", "ORG", "LOC"),
    task: str = "spans",
    names: Sequence[str] = ("anna",),
) -> Iterator[Site]:
    """Serves a new project."""
    served = Site(folder / "notes.crfkit-project", documents, names=names, task=task, labels=labels)
    try:
        yield served
    finally:
        served.stop()
