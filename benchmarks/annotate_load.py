"""Many annotators at once: ``python benchmarks/annotate_load.py`` serves CoNLL-2000 and answers it through HTTP.

Each annotator is a thread of a second process that knows the labels, and answers as fast as the server does, or after
``--think`` seconds. Says how long answers took (from sending one to having the next question) and checks that every one
is in the project, once.
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from crfkit.annotate.documents import Document
from crfkit.annotate.project import Project
from crfkit.annotate.server import Server
from crfkit.annotate.session import Session
from crfkit.annotate.simulation import Person
from crfkit.data import load_corpus


class Client:
    """An annotator's connection."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
        (token,) = parse_qs(parts.query)["token"]
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """A request and its reply; anything but 200 is an error."""
        self.connection.request(method, path, None if body is None else json.dumps(body), self.headers)
        reply = self.connection.getresponse()
        data = reply.read()
        if reply.status != 200:
            raise RuntimeError(f"{method} {path}: {reply.status} {data[:200]!r}")
        return json.loads(data)


def campaign(address: str, gold: list[list[str]], answers: int, think: float, out: list[Any]) -> None:
    """One annotator: seconds of each answer, its key and event."""
    client, person = Client(address), Person(gold)
    rng = np.random.default_rng(len(address))
    question = client.call("GET", "/api/question")
    for _ in range(answers):
        if question["kind"] == "done":
            break
        answer, *_ = person.answer(question)
        time.sleep(think * rng.exponential() if think else 0)
        began = time.perf_counter()
        reply = client.call("POST", "/api/answer", answer)
        out.append((time.perf_counter() - began, answer["key"], reply["event"]))
        question = reply["next"]


def clients(argument: str) -> None:
    """The second process: all annotators; prints what they saw."""
    with open(argument, encoding="utf-8") as file:
        job = json.load(file)
    seen: list[list[Any]] = [[] for _ in job["addresses"]]
    errors: list[str] = []

    def run(k: int) -> None:
        try:
            campaign(job["addresses"][k], job["gold"], job["answers"], job["think"], seen[k])
        except Exception as e:
            errors.append(f"{type(e).__name__}: {e}")

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(seen))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"seen": [x for row in seen for x in row], "errors": errors}))


def corpus(sentences: int) -> tuple[list[Document], list[list[str]]]:
    """Sentences of CoNLL-2000 with their chunks."""
    documents, gold = [], []
    for split in ("train", "test"):
        X, y = load_corpus("conll2000", split)
        for row, labels in zip(X, y, strict=True):
            tokens, place = [], 0
            for word, _ in row:
                tokens.append((place, place + len(word)))
                place += len(word) + 1
            documents.append(Document(" ".join(w for w, _ in row), tokens, [[pos] for _, pos in row]))
            gold.append(list(labels))
    return documents[:sentences], gold[:sentences]


def load(folder: Path, annotators: int, answers: int, think: float, sentences: int) -> dict[str, Any]:
    """Runs one campaign of all annotators; the figures."""
    documents, gold = corpus(sentences)
    names = [f"annotator-{k}" for k in range(annotators)]
    kinds = sorted({x[2:] for row in gold for x in row if x != "O"})
    session = Session(Project.create(folder / "load.crfkit-project", documents, labels=kinds))
    for name in names:
        session.add_annotator(name)
    server = Server(session, port=0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    job = {"addresses": [server.address(x) for x in names], "gold": gold, "answers": answers, "think": think}
    (folder / "job.json").write_text(json.dumps(job))
    began = time.perf_counter()
    command = [sys.executable, __file__, "--clients", str(folder / "job.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    wall = time.perf_counter() - began
    server.stop()
    thread.join()
    session.close()
    found = json.loads(done.stdout)
    seconds = np.array([x[0] for x in found["seen"]])
    project = Project.open(folder / "load.crfkit-project")
    stored = [e.key for e in project.store.events if e.kind == "answer"]
    project.close()
    acknowledged = [x[1] for x in found["seen"]]
    return {
        "annotators": annotators,
        "answers": len(seconds),
        "errors": found["errors"],
        "lost": len(set(acknowledged) - set(stored)),
        "twice": len(stored) - len(set(stored)),
        "median_ms": round(1000 * float(np.median(seconds)), 1),
        "p95_ms": round(1000 * float(np.quantile(seconds, 0.95)), 1),
        "max_ms": round(1000 * float(seconds.max()), 1),
        "answers_per_second": round(len(seconds) / wall, 1),
        "think": think,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--annotators", type=int, default=20)
    parser.add_argument("--answers", type=int, default=500, help="of each annotator")
    parser.add_argument("--think", type=float, default=0.0, help="mean seconds before an answer")
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--clients", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.clients:
        clients(args.clients)
        return
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(load(Path(folder), args.annotators, args.answers, args.think, args.sentences)))


if __name__ == "__main__":
    main()
