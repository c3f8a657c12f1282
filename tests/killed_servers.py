"""``python killed_servers.py FOLDER KILLS SEED``: kills servers while an annotator answers, and looks at the project.

Each server is a child of this process, which has imported everything already, and is killed (SIGKILL) at a random
moment. The annotator sends answers one after another; one that was not acknowledged is sent again, with its key, to the
next server. Prints how many answers were acknowledged, and how many kills came before, at and after an answer's way to
the disk.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import sys
import threading
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from annotating import sample

from crfkit.annotate.project import Project
from crfkit.annotate.server import Server
from crfkit.annotate.session import Session

LABELS = ["QTY", "UNIT", "NAME"]


def serve(path: Path, out: int, seconds: float, early: bool) -> None:
    """A server that kills itself some seconds after it began, or after its first question."""
    killer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
    killer.daemon = True
    if early:
        killer.start()
    session = Session(Project.open(path), n_jobs=1)
    session.add_annotator("anna")
    ask = session.question

    def question(*arguments: Any, **more: Any) -> Any:
        if not killer.is_alive() and not early:
            killer.start()
        return ask(*arguments, **more)

    session.question = question  # type: ignore[method-assign]
    server = Server(session, port=0)
    os.write(out, f"{server.address('anna')}\n".encode())
    server.run()


def call(connection: http.client.HTTPConnection, token: str, method: str, path: str, body: Any = None) -> Any:
    """A request and its reply."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    reply = connection.getresponse()
    data = reply.read()
    assert reply.status == 200, data
    return json.loads(data)


def answers(address: str, length: list[int], rng: random.Random, pending: Any, acknowledged: dict[str, int]) -> Any:
    """Answers until the server is gone; what it did not acknowledge."""
    parts = urlsplit(address)
    (token,) = parse_qs(parts.query)["token"]
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        call(connection, token, "GET", "/api/question")
        while True:
            if pending is None:
                pending = new_answer(call(connection, token, "GET", "/api/question"), length, rng)
            path, body = pending
            event = call(connection, token, "POST", path, body)["event"]
            assert acknowledged.setdefault(body["key"], event) == event
            pending = None
    except (OSError, http.client.HTTPException):
        return pending
    finally:
        connection.close()


def new_answer(question: Any, length: list[int], rng: random.Random) -> tuple[str, Any]:
    """An answer to the question, or an edit of any sentence."""
    key = str(uuid.UUID(int=rng.getrandbits(128)))
    if question["kind"] == "done" or rng.random() < 0.3:
        i = rng.randrange(len(length))
        return f"/api/sequence/{i}", {"labels": [{"start": 0, "end": 1, "label": rng.choice(LABELS)}], "key": key}
    said = [{"start": 0, "end": 1, "label": rng.choice([*LABELS, None])}]
    return "/api/answer", {"key": key, "sequence": question["sequence"], "spans": said, "judged": [[0, 1]]}


def main(folder: Path, kills: int, seed: int) -> None:
    """Kills, looks, goes on."""
    rng = random.Random(seed)
    path = folder / "notes.crfkit-project"
    documents, _ = sample(200)
    length = [len(d.tokens) for d in documents]
    Project.create(path, documents, labels=LABELS).close()
    acknowledged: dict[str, int] = {}
    pending: Any = None
    counts = {"kills": 0, "acknowledged": 0, "on disk without reply": 0, "not on disk": 0}
    for _ in range(kills):
        early = rng.random() < 0.2
        moment = rng.uniform(0.0, 1.0)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            serve(path, writing, moment, early)
            os._exit(1)
        os.close(writing)
        with open(reading, encoding="utf-8") as file:
            address = file.readline().strip()
        assert address or early, "the server did not start"
        if address:
            pending = answers(address, length, rng, pending, acknowledged)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)
        assert os.WTERMSIG(status) == signal.SIGKILL
        counts["kills"] += 1
        project = Project.open(path)
        stored = {e.key: e.number for e in project.store.events if e.kind in ("answer", "edit")}
        n = sum(e.kind in ("answer", "edit") for e in project.store.events)
        project.close()
        assert len(stored) == n, "an answer was counted twice"
        assert acknowledged.items() <= stored.items(), f"kill {counts['kills']}: an acknowledged answer is lost"
        open_key = pending[1]["key"] if pending else None
        assert stored.keys() - acknowledged.keys() <= {open_key}
        counts["on disk without reply" if open_key in stored else "not on disk"] += pending is not None
    counts["acknowledged"] = len(acknowledged)
    print(json.dumps(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
