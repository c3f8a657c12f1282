"""What may go wrong while people annotate: kills, full disks, lost connections, many at once. No answer may be lost."""

from __future__ import annotations

import http.client
import json
import resource
import runpy
import signal
import sqlite3
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from annotating import sample, site
from command import run
from test_annotate_server import Client, answer_to, ask, finish, start

from crfkit.annotate.project import Project
from crfkit.annotate.store import VERSION

ROOT = Path(__file__).parents[1]
NAMES = ["QTY", "UNIT", "NAME"]


def kill_servers(folder: Path, kills: int, seed: int) -> dict[str, int]:
    command = [sys.executable, str(Path(__file__).parent / "killed_servers.py"), str(folder), str(kills), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_acknowledged_answers_outlive_a_kill(tmp_path: Path) -> None:
    counts = kill_servers(tmp_path, 8, 1)
    assert counts["kills"] == 8
    assert counts["acknowledged"] > 0


@pytest.mark.long
def test_acknowledged_answers_outlive_two_hundred_kills(tmp_path: Path) -> None:
    counts = kill_servers(tmp_path, 200, 2)
    assert counts["kills"] == 200
    assert counts["acknowledged"] > 200
    assert counts["on disk without reply"] > 0
    assert counts["not on disk"] > 0


@pytest.mark.parametrize(
    ("annotators", "answers", "sentences"),
    [(8, 6, 400), pytest.param(20, 500, 20_000, marks=pytest.mark.long)],
)
def test_many_annotators_at_once_lose_nothing(
    tmp_path: Path, data_folder: Path, annotators: int, answers: int, sentences: int
) -> None:
    load = runpy.run_path(str(ROOT / "benchmarks" / "annotate_load.py"))["load"]
    found = load(tmp_path, annotators, answers, 0.0, sentences)
    assert found["errors"] == []
    assert found["answers"] == annotators * answers
    assert found["lost"] == found["twice"] == 0


def test_a_full_disk_is_said_and_nothing_is_overwritten(tmp_path: Path) -> None:
    run("demo", "--write", tmp_path)
    limit = 150_000  # bytes that a file may have: stands for the end of the disk

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    arguments = ("raw.txt", "--lines", "--labels", ",".join(NAMES), "--port", 0)
    process, address = start(tmp_path, *arguments)
    finish(process)
    process, address = start(tmp_path, *arguments, preexec_fn=full)
    root, _, token = address.partition("/?token=")
    connection = http.client.HTTPConnection(root.removeprefix("http://"), timeout=60)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    acknowledged: list[str] = []
    refused = ""
    for _ in range(200):
        key = str(uuid.uuid4())
        said = {"labels": [{"start": 0, "end": 1, "label": "QTY"}], "key": key}
        connection.request("POST", "/api/sequence/0", json.dumps(said), headers)
        reply = connection.getresponse()
        body = json.loads(reply.read())
        if reply.status != 200:
            assert 500 <= reply.status < 600
            assert "\n" not in body["error"]
            assert "raw.crfkit-project" in body["error"] or "project" in body["error"]
            refused = key
            break
        acknowledged.append(key)
    connection.close()
    assert acknowledged
    assert refused
    assert ask(address, "/api/state")["sentences"] > 0  # it still answers
    code, messages = finish(process)
    assert code == 128 + signal.SIGTERM
    assert "Traceback" not in messages
    project = Project.open(tmp_path / "raw.crfkit-project")
    keys = [e.key for e in project.store.events if e.kind == "edit"]
    project.close()
    assert [key for key in keys if key != refused] == acknowledged


def test_a_reply_that_is_lost_can_be_asked_for_again(tmp_path: Path) -> None:
    documents, _ = sample(40)
    with site(tmp_path, documents, labels=NAMES) as served, Client(served) as anna:
        said = answer_to(anna.get("/api/question").json())
        connection = http.client.HTTPConnection("127.0.0.1", served.port)
        headers = {"Authorization": f"Bearer {served.server.tokens['anna']}", "Content-Type": "application/json"}
        connection.request("POST", "/api/answer", json.dumps(said), headers)
        connection.close()  # before the reply
        first = anna.write("/api/answer", said).json()
        again = anna.write("/api/answer", said).json()
        assert first["event"] == again["event"]
        assert first["next"]["id"] == again["next"]["id"]
        assert [x["sequence"] for x in served.answers()] == [said["sequence"]]
        key = str(uuid.uuid4())
        undone = [anna.write("/api/undo", {"key": key}).json()["event"] for _ in range(2)]
        assert undone[0] == undone[1]


def test_a_request_that_is_cut_off_changes_nothing(tmp_path: Path) -> None:
    documents, _ = sample(20)
    with site(tmp_path, documents, labels=NAMES) as served, Client(served) as anna:
        before = len(served.session.project.store.events)
        body = json.dumps(answer_to(anna.get("/api/question").json()))
        connection = http.client.HTTPConnection("127.0.0.1", served.port)
        connection.putrequest("POST", "/api/answer")
        for name, value in (
            ("Authorization", f"Bearer {served.server.tokens['anna']}"),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
        ):
            connection.putheader(name, value)
        connection.endheaders(body[: len(body) // 2].encode())
        connection.close()
        assert anna.get("/api/state").status_code == 200
        assert len(served.session.project.store.events) == before


def test_of_two_pages_at_once_one_answers(tmp_path: Path) -> None:
    documents, _ = sample(40)
    with site(tmp_path, documents, labels=NAMES) as served, Client(served) as one, Client(served) as two:
        questions = [page.get("/api/question").json() for page in (one, two)]
        assert questions[0]["id"] == questions[1]["id"]
        said = [answer_to(q) for q in questions]
        replies: list[Any] = [None, None]

        def answer(k: int) -> None:
            replies[k] = (one, two)[k].write("/api/answer", said[k])

        threads = [threading.Thread(target=answer, args=(k,)) for k in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(reply.status_code for reply in replies) == [200, 409]
        keys = {e.key for e in served.session.project.store.events}
        assert [x["key"] in keys for x in said] == [reply.status_code == 200 for reply in replies]
        labelled = one.get("/api/panel").json()["labelled"]
        assert labelled["sentences"] + labelled["partial"] == 1


def test_a_server_that_comes_back_goes_on(tmp_path: Path) -> None:
    documents, _ = sample(40)
    with site(tmp_path, documents, labels=NAMES) as served:
        with Client(served) as anna:
            anna.write("/api/answer", answer_to(anna.get("/api/question").json()))
        served.stop()
        served.start()
        with Client(served) as anna:
            assert anna.get("/api/panel").json()["questions"] == 1
            assert anna.get("/api/state").json()["undo"]


def project_file(folder: Path) -> Path:
    documents, _ = sample(20)
    path = folder / "notes.crfkit-project"
    Project.create(path, documents, labels=NAMES).close()
    return path


def test_a_project_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = project_file(tmp_path)
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version={VERSION + 1}")
    db.close()
    before = path.read_bytes()
    out = run("annotate", path.name, code=1, cwd=tmp_path)
    assert "notes.crfkit-project: the project was written by a newer crfkit" in out.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["cut", "zeros", "other", "empty"])
def test_a_damaged_project_is_left_alone(tmp_path: Path, damage: str) -> None:
    path = project_file(tmp_path)
    data = path.read_bytes()
    data = {
        "cut": data[: len(data) // 2],
        "zeros": data[:4096] + bytes(4096) + data[8192:],
        "other": b"PK" + data[2:],
        "empty": b"",
    }[damage]
    path.write_bytes(data)
    out = run("annotate", path.name, code=1, cwd=tmp_path)
    assert out.stderr.startswith("crfkit: error: notes.crfkit-project")
    assert len(out.stderr.splitlines()) == 1
    assert path.read_bytes() == data
