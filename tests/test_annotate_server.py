"""The annotation server over real HTTP: what it answers, what it refuses, and the command that starts it."""

from __future__ import annotations

import io
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from annotating import Site, sample, site
from command import CRFKIT, run
from hypothesis import given
from hypothesis import strategies as st

import crfkit
from crfkit.annotate import checks
from crfkit.annotate.documents import AnnotateError
from crfkit.annotate.project import Project
from crfkit.annotate.security import MOST_BYTES, Hosts, Tokens
from crfkit.annotate.server import Server, listen
from crfkit.cli.annotate import FileFormat

NAMES = ["QTY", "UNIT", "NAME"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    documents, _ = sample(60)
    with site(tmp_path_factory.mktemp("server"), documents, labels=NAMES, names=("anna", "ben")) as found:
        yield found


class Client(httpx.Client):
    """A browser of one annotator, as far as requests go."""

    def __init__(self, served: Site, annotator: str | None = "anna") -> None:
        self.base = served.server.base
        super().__init__(base_url=self.base, trust_env=False, timeout=60)
        if annotator is not None:
            self.cookies.set(served.server.cookie, served.server.tokens[annotator])

    def write(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return self.post(path, json=body, headers={"Origin": self.base, **headers})


@pytest.fixture
def anna(served: Site) -> Iterator[Client]:
    with Client(served) as client:
        yield client


def answer_to(question: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "key": str(uuid.uuid4()),
        "question": question["id"],
        "sequence": question["sequence"],
        "spans": [],
        "judged": [[0, 1]],
        "whole": False,
        "skip": False,
        "seconds": 2.5,
        "keys": 3,
        "corrections": 0,
        **more,
    }


def test_the_first_address_becomes_a_cookie(served: Site) -> None:
    reply = httpx.get(served.server.address("anna"), trust_env=False)
    assert (reply.status_code, reply.headers["location"]) == (303, "/")
    cookie = reply.headers["set-cookie"]
    assert re.fullmatch(rf"crfkit-{served.port}=[\w-]{{32}}; HttpOnly; Path=/; SameSite=strict", cookie)
    assert reply.headers["cache-control"] == "no-store"
    assert httpx.get(f"{served.server.base}/?token=wrong", trust_env=False).status_code == 401


def test_every_reply_is_guarded(anna: Client) -> None:
    for path in ("/", "/page/index.html", "/api/state", "/api/nothing", "/nothing"):
        headers = anna.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in headers
        assert headers["cache-control"] == ("no-store" if path.startswith("/api") else "no-cache")
        assert "access-control-allow-origin" not in headers


def test_the_pages_files_are_asked_for_again_by_their_tag(anna: Client) -> None:
    first = anna.get("/page/index.html")
    assert first.status_code == 200
    again = anna.get("/page/index.html", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304


def test_no_markup_of_the_page_holds_scripts_or_styles(anna: Client) -> None:
    page = anna.get("/").text
    assert "<script>" not in page
    assert not re.search(r"<style|\sstyle=|\son\w+=|https?://(?!www\.w3\.org)", page)


@pytest.mark.parametrize(
    "path", ["/page/../server.py", "/page/%2e%2e/server.py", "/page//etc/passwd", "/page/..%2fapi.py"]
)
def test_no_other_file_can_be_had(anna: Client, path: str) -> None:
    request = anna.build_request("GET", "/")
    request.url = request.url.copy_with(raw_path=path.encode())
    assert anna.send(request).status_code == 404


@pytest.mark.parametrize(
    "host",
    ["evil.org", "127.0.0.1", "127.0.0.1:1", "localhost.evil.org:{port}", "", "127.0.0.1:{port}.evil.org", "x" * 500],
)
def test_other_hosts_are_refused(served: Site, host: str) -> None:
    headers = {"Host": host.format(port=served.port), "Authorization": f"Bearer {served.server.tokens['anna']}"}
    reply = httpx.get(f"{served.server.base}/api/state", headers=headers, trust_env=False)
    assert reply.status_code == 421
    assert "does not answer for the host" in reply.json()["error"]


@pytest.mark.parametrize("host", ["localhost:{port}", "127.0.0.1:{port}", "LOCALHOST:{port}"])
def test_its_own_hosts_are_served(served: Site, host: str) -> None:
    headers = {"Host": host.format(port=served.port), "Authorization": f"Bearer {served.server.tokens['anna']}"}
    assert httpx.get(f"{served.server.base}/api/state", headers=headers, trust_env=False).status_code == 200


def test_all_addresses_are_served_by_number_and_by_the_machines_name() -> None:
    hosts = Hosts("0.0.0.0", 80, ["proxy.example"])
    assert all(map(hosts.allows, ["10.1.2.3:80", "[fe80::1]:80", f"{socket.gethostname()}:80", "proxy.example"]))
    assert not any(map(hosts.allows, ["10.1.2.3:81", "evil.org:80", "10.1.2.3.evil.org:80", "proxy.example:80"]))
    assert not Hosts("127.0.0.1", 80).allows("10.1.2.3:80")


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.org", "http://127.0.0.1", "http://127.0.0.1:1", "file://"]
)
def test_writes_of_other_origins_are_refused(anna: Client, served: Site, origin: str | None) -> None:
    before = len(served.session.project.store.events)
    headers = {} if origin is None else {"Origin": origin}
    reply = anna.post("/api/undo", json={}, headers=headers)
    assert reply.status_code == 403
    assert "Origin" in reply.json()["error"]
    assert len(served.session.project.store.events) == before


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_writes_of_other_kinds_are_refused(anna: Client, kind: str) -> None:
    reply = anna.post("/api/undo", content=b"{}", headers={"Origin": anna.base, "Content-Type": kind})
    assert reply.status_code == 415


def test_without_a_token_nothing_is_told(served: Site) -> None:
    with Client(served, None) as nobody:
        assert nobody.get("/").status_code == 200
        for path in ("state", "question", "panel", "browse", "sequence/0", "review", "agree", "model", "export"):
            reply = nobody.get(f"/api/{path}")
            assert reply.status_code == 401
            assert list(reply.json()) == ["error"]
            assert "Authorization: Bearer TOKEN" in reply.json()["error"]
        assert nobody.write("/api/undo", {}).status_code == 401
        nobody.cookies.set(f"crfkit-{served.port}", "wrong")
        assert nobody.get("/api/state").status_code == 401
        assert nobody.get("/api/state", headers={"Cookie": "=;;\x7f==,"}).status_code == 401
        assert nobody.get("/api/state", headers={"Authorization": "Bearer wrong"}).status_code == 401


def test_large_requests_are_refused_whether_they_say_so_or_not(anna: Client) -> None:
    large = b'{"key": "' + b"x" * MOST_BYTES + b'"}'
    headers = {"Origin": anna.base, "Content-Type": "application/json"}
    assert anna.post("/api/undo", content=large, headers=headers).status_code == 413
    parts = (large[k : k + 50_000] for k in range(0, len(large), 50_000))
    assert anna.post("/api/undo", content=parts, headers=headers).status_code == 413
    assert anna.get("/api/state").status_code == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "not JSON"),
        (b'{"key": NaN}', "not JSON: NaN"),
        (b"[" * 200_000, "not JSON"),
        (b"\xff", "not JSON"),
        (b'{"key": ' + b"9" * 5000 + b"}", "not JSON: a number of 5000 digits"),
        (b"[]", "must be an object"),
        (b"{}", "'key' is missing"),
    ],
)
def test_what_is_not_an_answer_is_refused(anna: Client, body: bytes, message: str) -> None:
    headers = {"Origin": anna.base, "Content-Type": "application/json"}
    reply = anna.post("/api/answer", content=body, headers=headers)
    assert reply.status_code == 400
    assert message in reply.json()["error"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": "short"}, "'key' must be text of 8 to 100 characters"),
        ({"key": 12345678}, "'key' must be text"),
        ({"sequence": True}, "'sequence' must be a whole number"),
        ({"sequence": -1}, "'sequence' must be a whole number"),
        ({"sequence": 1.5}, "'sequence' must be a whole number"),
        ({"sequence": 10_000}, "'sequence' must be"),
        ({"spans": {}}, "'spans' must be a list"),
        ({"spans": [1]}, "'spans[0]' must be an object"),
        ({"spans": [{"start": 0, "end": 1}]}, "'spans[0].label' is missing"),
        ({"spans": [{"start": 0, "end": 1, "label": "QTY", "x": 1}]}, "there is no field 'spans[0].x'"),
        ({"spans": [{"start": 0, "end": 10_000, "label": "QTY"}]}, ""),
        ({"spans": [{"start": 1, "end": 1, "label": "QTY"}]}, ""),
        ({"spans": [{"start": 0, "end": 1, "label": "nothing"}]}, "no label"),
        ({"judged": [[1, 0]]}, "'judged[0]' must be a pair"),
        ({"judged": [[0]]}, "'judged[0]' must be a pair"),
        ({"whole": 1}, "'whole' must be true or false"),
        ({"seconds": "3"}, "'seconds' must be a number"),
        ({"seconds": -1}, "'seconds' must be a number from 0 to 1e+09"),
        ({"seconds": 2e9}, "'seconds' must be a number from 0 to 1e+09"),
        ({"keys": 2**53}, "'keys' must be a whole number from 0 to 1000000000"),
        ({"corrections": 2**53}, "'corrections' must be a whole number from 0 to 1000000000"),
        ({"more": 1}, "there is no field 'more'"),
        ({"question": "\ud800"}, "lone surrogates"),
    ],
)
def test_wrong_fields_are_named(anna: Client, served: Site, change: dict[str, Any], message: str) -> None:
    before = len(served.session.project.store.events)
    said = answer_to(anna.get("/api/question").json()) | change
    headers = {"Origin": anna.base, "Content-Type": "application/json"}
    reply = anna.post("/api/answer", content=json.dumps(said), headers=headers)
    assert 400 <= reply.status_code < 500
    assert message in reply.json()["error"]
    assert "\n" not in reply.json()["error"]
    assert len(served.session.project.store.events) == before


def test_a_question_is_answered_once(tmp_path: Path) -> None:
    documents, _ = sample(10)
    with site(tmp_path, documents, labels=NAMES) as served, Client(served) as anna:
        question = anna.get("/api/question").json()
        first = answer_to(question, judged=[], whole=True)
        event = anna.write("/api/answer", first).json()["event"]
        assert anna.write("/api/answer", first).json()["event"] == event
        for path in ("/api/answer", "/api/draft"):
            again = {"key": str(uuid.uuid4()), "question": question["id"], "sequence": question["sequence"]}
            reply = anna.write(path, {**again, "judged": [[0, 1]]})
            assert reply.status_code == 409
            assert "already been answered" in reply.json()["error"]
        assert anna.get("/api/panel").json()["questions"] == 1
        undone = anna.write("/api/undo", {"key": str(uuid.uuid4())}).json()["question"]
        assert undone["sequence"] == question["sequence"]
        assert anna.write("/api/answer", answer_to(undone)).status_code == 200


def test_requests_for_another_project_are_refused(tmp_path: Path) -> None:
    documents, _ = sample(10)
    with site(tmp_path, documents, labels=NAMES) as served, Client(served) as anna:
        mine = anna.get("/api/state").json()["project_id"]
        said = answer_to(anna.get("/api/question").json())
        for reply in (
            anna.write("/api/answer", said, **{"Crfkit-Project": "another"}),
            anna.get("/api/question", headers={"Crfkit-Project": "another"}),
        ):
            assert (reply.status_code, reply.json()["project_id"]) == (409, mine)
            assert "another project is served here" in reply.json()["error"]
        assert not served.answers()
        assert anna.write("/api/answer", said, **{"Crfkit-Project": mine}).status_code == 200
        served.stop()
        served.start()
        assert served.session.state("anna")["project_id"] == mine
    Project.create(tmp_path / "copy.crfkit-project", documents, labels=NAMES).close()
    copy = Project.open(tmp_path / "copy.crfkit-project")
    assert copy.identity != mine
    copy.close()


def test_settings_are_judged_by_the_state_they_lead_to(tmp_path: Path) -> None:
    documents, _ = sample(10)
    with site(tmp_path, documents, labels=NAMES) as served, Client(served) as anna:
        key = str(uuid.uuid4())
        assert anna.write("/api/settings", {"key": key, "time": {"sentence": 0}}).status_code == 200
        for time in ({"token": 0}, {"sentence": 0, "token": 0}):
            reply = anna.write("/api/settings", {"time": time})
            assert (reply.status_code, reply.json()["error"]) == (
                400,
                "'sentence' and 'token' of 'time' must not both be 0",
            )
        assert anna.write("/api/settings", {"time": {"sentence": 3, "token": 0, "correction": 0}}).status_code == 200
        share = anna.write("/api/settings", {"random_share": 1e-309})
        assert share.status_code == 200
        for _ in range(7):  # the first five get to know the text
            question = anna.get("/api/question").json()
            assert anna.write("/api/answer", answer_to(question, judged=[], whole=True)).status_code == 200
        served.stop()
        served.start()
        assert served.session.project.settings["time"] == {"sentence": 3.0, "token": 0.0, "correction": 0.0}


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("question?sequence=x", 400, "'sequence' must be a whole number"),
        ("question?sequence=-1", 400, "'sequence' must be a whole number"),
        ("question?sequence=10000", 404, "'sequence' must be"),
        ("question?more=1", 400, "there is no parameter 'more'"),
        ("browse?page=x", 400, "'page' must be a whole number"),
        (f"browse?search={'x' * 500}", 400, "'search' must be text"),
        ("explain?sequence=0", 400, "'token' is missing"),
        ("sequence/10000", 404, ""),
        ("sequence/x", 404, "nothing at this address"),
        ("export?format=xml", 400, "there is no format 'xml'"),
        ("nothing", 404, "nothing at this address"),
        ("answer", 405, "does not take this method"),
    ],
)
def test_wrong_reads_are_named(anna: Client, path: str, status: int, message: str) -> None:
    reply = anna.get(f"/api/{path}")
    assert reply.status_code == status
    assert message in reply.json()["error"]


WILD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(["key", "spans", "start", "x"]), x, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(["answer", "undo", "labels", "settings", "annotators", "sequence/0", "settle/0"]), WILD)
def test_no_body_brings_the_server_down(served: Site, path: str, body: Any) -> None:
    said = json.dumps(body).encode("utf-8", "surrogatepass")
    token = served.server.tokens["ben"]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    reply = httpx.post(f"{served.server.base}/api/{path}", content=said, headers=headers, trust_env=False, timeout=60)
    assert reply.status_code in (200, 400, 404, 409)
    assert reply.json()


def test_a_campaign_through_every_address(served: Site, anna: Client) -> None:
    state = anna.get("/api/state").json()
    assert state["annotator"] == "anna"
    assert [x["name"] for x in state["labels"]][:3] == NAMES
    question = anna.get("/api/question").json()
    assert anna.get("/api/question").json()["id"] == question["id"]  # a reload
    span = {"start": 0, "end": 1, "label": "QTY", "everywhere": False}
    reply = anna.write("/api/answer", answer_to(question, spans=[span])).json()
    assert reply["next"]["id"] != question["id"]
    assert reply["panel"]["questions"] >= 1
    i = question["sequence"]
    assert anna.write("/api/undo", {"key": str(uuid.uuid4())}).json()["question"]["sequence"] == i
    assert anna.write("/api/redo", {}).json()["event"] > reply["event"]
    edited = anna.write("/api/sequence/3", {"labels": [span], "key": str(uuid.uuid4())}).json()
    assert edited["sequence"]["sequence"] == 3
    more = {"labels": [span], "judged": [[0, 1]], "confirm": True, "key": str(uuid.uuid4())}
    assert anna.write("/api/sequence/4", more).status_code == 200
    with Client(served, "ben") as ben:
        assert ben.get("/api/state").json()["annotator"] == "ben"
        ben.write("/api/sequence/3", {"labels": [], "key": str(uuid.uuid4())})
    assert anna.get("/api/agree?page=0").json()["sentences"] >= 1
    assert anna.write("/api/settle/3", {"labels": [span], "key": str(uuid.uuid4())}).status_code == 200
    for path in ("panel", "browse?search=a&label=QTY", "sequence/3", "review", "model", "explain?sequence=0&token=0"):
        assert anna.get(f"/api/{path}").status_code == 200, path
    added = anna.write("/api/labels", {"add": {"name": "SIZE"}, "uuid": str(uuid.uuid4())}).json()
    assert added["labels"][-1]["name"] == "SIZE"
    assert anna.write("/api/settings", {"random_share": 0.2}).json()["settings"]["random_share"] == 0.2


def test_exports_are_files(served: Site, anna: Client, tmp_path: Path) -> None:
    for entry in anna.get("/api/state").json()["formats"]:
        for what in ("labels", "labels+guesses"):
            reply = anna.get("/api/export", params={"format": entry["name"], "what": what})
            assert reply.status_code == 200, reply.text
            assert reply.headers["content-disposition"].startswith("attachment; filename*=UTF-8''")
            if reply.headers["content-type"] == "application/zip":
                assert zipfile.ZipFile(io.BytesIO(reply.content)).testzip() is None
    anna.write("/api/sequence/0", {"labels": [{"start": 0, "end": 1, "label": "QTY"}], "key": str(uuid.uuid4())})
    (tmp_path / "model").write_bytes(anna.get("/api/export/model").content)
    assert crfkit.load(tmp_path / "model").predict([["2", "cups"]])


def test_a_double_click_counts_once(served: Site, anna: Client) -> None:
    said = answer_to(anna.get("/api/question").json())
    events: list[int] = []

    def click() -> None:
        with Client(served) as client:
            events.append(client.write("/api/answer", said).json()["event"])

    threads = [threading.Thread(target=click) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(events) == 4
    assert len(set(events)) == 1
    assert sum(e.key == said["key"] for e in served.session.project.store.events) == 1


def test_annotators_are_invited_one_by_one(served: Site, anna: Client) -> None:
    everyone = anna.get("/api/annotators").json()["annotators"]
    assert [x["name"] for x in everyone][:2] == ["anna", "ben"]
    assert all("address" in x for x in everyone)
    with Client(served, "ben") as ben:
        seen = {x["name"]: x.get("address") for x in ben.get("/api/annotators").json()["annotators"]}
        assert seen["anna"] is None
        assert seen["ben"]
        new = ben.write("/api/annotators", {"name": "Çelik"}).json()
    reply = httpx.get(new["address"], trust_env=False, follow_redirects=False)
    assert reply.status_code == 303
    assert anna.write("/api/annotators", {"name": "Çelik"}).status_code == 409
    assert anna.write("/api/annotators", {"name": "a,b"}).status_code == 400
    assert anna.write("/api/annotators", {"name": " "}).status_code == 400


def test_tokens_are_told_apart() -> None:
    tokens = Tokens(["a", "b"])
    assert tokens.annotator(tokens["a"]) == "a"
    assert tokens.annotator(tokens["b"]) == "b"
    assert tokens["a"] != tokens["b"] != Tokens(["b"])["b"]
    assert tokens.annotator("") is None
    assert tokens.annotator("é\ud800") is None
    assert tokens.annotator(tokens["c"]) == "c"


class Broken:
    """A session that fails in every way."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def annotators(self) -> list[str]:
        return ["anna"]

    def __getattr__(self, name: str) -> Any:
        def fail(*_: Any, **__: Any) -> Any:
            raise self.error

        return fail


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (AnnotateError("not now", 409), 409, "not now"),
        (
            OSError(28, "No space left"),
            507,
            "the project could not be read or saved: No space left",
        ),
        (RuntimeError("surprise"), 500, "crfkit failed: RuntimeError: surprise; the terminal shows where"),
    ],
)
def test_failures_are_one_line(capfd: Any, error: Exception, status: int, message: str) -> None:
    server = Server(Broken(error), port=0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    headers = {"Authorization": f"Bearer {server.tokens['anna']}"}
    reply = httpx.get(f"{server.base}/api/state", headers=headers, trust_env=False)
    server.stop()
    thread.join()
    assert (reply.status_code, reply.json()) == (status, {"error": message})
    assert ("Traceback" in capfd.readouterr().err) == (status == 500)


def test_a_port_that_is_taken_is_said_or_stepped_over() -> None:
    with listen("127.0.0.1", 0, False) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"port {port} of 127.0.0.1 is taken: give another with --port"):
            listen("127.0.0.1", port, False)
        with listen("127.0.0.1", port, True) as other:
            assert port < other.getsockname()[1] < port + 50
    with pytest.raises(OSError, match="there is no host"):
        listen("no.such.host.invalid", 0, False)


def test_rules_of_fields_name_the_place() -> None:
    rule = checks.record({"a": checks.several(checks.number(0, 1))}, b=checks.maybe(checks.flag))
    assert rule({"a": [0, 0.5], "b": None}, "") == {"a": [0.0, 0.5], "b": None}
    with pytest.raises(AnnotateError, match=r"'a\[1\]' must be a number from 0 to 1, got 2"):
        rule({"a": [1, 2]}, "")


# The command


def start(folder: Path, *arguments: Any, **more: Any) -> tuple[subprocess.Popen[str], str]:
    """The command, and the first address that it prints."""
    command = [*CRFKIT, "annotate", *map(str, arguments)]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://\S+", line)
    if found is None:
        process.kill()
        raise AssertionError(line + process.communicate()[1])
    return process, found[0]


def finish(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str]:
    """Ends it by a signal: exit code and messages."""
    process.send_signal(number)
    _, messages = process.communicate(timeout=60)
    return process.returncode, messages


def ask(address: str, path: str, body: Any = None) -> Any:
    root, _, token = address.partition("/?token=")
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    method = "GET" if body is None else "POST"
    reply = httpx.request(method, root + path, json=body, headers=headers, trust_env=False, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_renamed_labels_do_not_come_back(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Anna met Ben in Paris. Ben left.\n")
    same = ("notes.txt", "--labels", "PER,LOC,CITY", "--port", 0)
    process, address = start(tmp_path, *same)
    for change in ({"rename": {"from": "PER", "to": "PERSON"}}, {"merge": {"from": "CITY", "to": "LOC"}}):
        ask(address, "/api/labels", {"uuid": str(uuid.uuid4()), **change})
    finish(process)
    process, address = start(tmp_path, *same)
    assert [x["name"] for x in ask(address, "/api/state")["labels"]] == ["PERSON", "LOC"]
    _, messages = finish(process)
    assert "label PER is called PERSON now" in messages
    assert "label CITY is called LOC now" in messages


def test_the_command_serves_and_continues(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Anna met Ben in Paris. Ben left.\n")
    process, address = start(tmp_path, "notes.txt", "--labels", "PER,LOC", "--port", 0)
    question = ask(address, "/api/question")
    ask(address, "/api/answer", answer_to(question, spans=[{"start": 0, "end": 1, "label": "PER"}]))
    other = run("annotate", "notes.txt", code=1, cwd=tmp_path)
    assert other.stderr.startswith("crfkit: error: notes.crfkit-project")
    assert len(other.stderr.splitlines()) == 1
    code, messages = finish(process)
    assert code == 128 + signal.SIGTERM
    assert "read 2 sentences, 9 tokens (text)" in messages
    assert "all answers are in notes.crfkit-project" in messages
    (tmp_path / "notes.txt").write_text("Other text.\n")
    process, address = start(tmp_path, "notes.txt", "--labels", "PER,ORG", "--annotators", "anna,ben", "--port", 0)
    state = ask(address, "/api/state")
    assert state["annotator"] == "anna"
    assert [x["name"] for x in state["labels"]] == ["PER", "LOC", "ORG"]
    assert ask(address, "/api/panel")["questions"] == 1
    code, messages = finish(process, signal.SIGINT)
    assert code == 130
    assert "notes.txt has changed since notes.crfkit-project was made" in messages
    (tmp_path / "notes.jsonl").write_text('{"text": "Other text."}\n')
    other = run("annotate", "notes.jsonl", code=2, cwd=tmp_path)
    assert "notes.crfkit-project was made from notes.txt, not from notes.jsonl: give another --project" in other.stderr
    process, address = start(tmp_path, "notes.crfkit-project", "--port", 0)
    assert ask(address, "/api/state")["sentences"] == 2
    finish(process)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "give a file to label, or a project to continue"),
        (["nothing.txt"], 1, "No such file or directory: nothing.txt"),
        (["notes.txt", "--labels", "A,,B"], 2, "--labels must be different names"),
        (["notes.txt", "--labels", "A,A"], 2, "--labels must be different names"),
        (["notes.txt", "--labels", "O"], 1, "'O' stands for what lies outside"),
        (["notes.txt", "--port", "70000"], 2, "--port must be from 0 to 65535"),
        (["notes.txt", "--random-share", "1.5"], 2, "--random-share must be from 0 to 1"),
        (["notes.txt", "--template", "no"], 2, "--template: No such file or directory: no"),
        (["notes.txt", "--simulate", "gold.txt", "--answers", "0"], 2, "--answers must be >= 1, got 0"),
        (["gold.txt", "--simulate", "gold2.txt"], 1, "gold.txt: every word has a label; to ignore them"),
        (["notes.txt", "--c2", "-1"], 2, "--c2 must be >= 0"),
        (["notes.txt", "--labels", "A", "--template", "five"], 1, "the templates look at column 5"),
        (["bad.jsonl"], 1, "bad.jsonl:1: not JSON"),
        (["other.crfkit-project"], 1, "other.crfkit-project: "),
        (["notes.txt", "--simulate", "notes.txt"], 1, "sentence 1 has a token without a label"),
    ],
)
def test_the_command_says_what_is_wrong(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    (tmp_path / "notes.txt").write_text("Anna left.\n")
    (tmp_path / "bad.jsonl").write_text("{\n")
    for name in ("gold.txt", "gold2.txt"):
        (tmp_path / name).write_text("Anna\tB-PER\nleft\tO\n")
    (tmp_path / "five").write_text("U0:%x[0,5]\n")
    (tmp_path / "other.crfkit-project").write_text("not a project")
    out = run("annotate", *arguments, code=code, cwd=tmp_path)
    assert message in out.stderr
    assert (tmp_path / "other.crfkit-project").read_text() == "not a project"
    assert not list(tmp_path.glob("notes.crfkit-project*"))


def test_without_the_extra_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Anna left.\n")
    code = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'starlette' else find(name, *more)\n"
        "sys.argv = ['crfkit', 'annotate', 'notes.txt']\n"
        "from crfkit.cli import main; main()\n"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert out.returncode == 1
    assert out.stderr == "crfkit: error: 'crfkit annotate' needs starlette: pip install \"crfkit[annotate]\"\n"


def test_the_command_knows_the_formats() -> None:
    from crfkit.annotate.formats import NAMES as FORMATS

    assert [x.value for x in FileFormat] == ["auto", *FORMATS]


def test_simulations_show_where_the_files_differ(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Anna isn't here.\nBen left.\n")
    (tmp_path / "gold.txt").write_text("Anna\tB-PER\nisn't\tO\nhere\tO\n.\tO\n\nBen\tB-PER\nleft\tO\n.\tO\n")
    how = "--simulate", "gold.txt", "--answers", 1
    out = run("annotate", "notes.txt", *how, cwd=tmp_path, code=1)
    assert "gold.txt: sentence 1, token 2: \"isn't\", but notes.txt has 'is' (if every line" in out.stderr
    out = run("annotate", "notes.txt", "--lines", *how, cwd=tmp_path, code=1)
    assert "has 'is' (text is cut into tokens by crfkit" in out.stderr
    words = "Anna\nisn't\nhere\n.\n\nBen\nleft\n.\n"
    (tmp_path / "words.txt").write_text(words)
    run("annotate", "words.txt", "-f", "columns", "--label", "none", *how, cwd=tmp_path)
    (tmp_path / "words.txt").write_text(words + "\nMore\n")
    out = run("annotate", "words.txt", "-f", "columns", "--label", "none", *how, cwd=tmp_path, code=1)
    assert "sentence 3, token 1: its end, but words.txt has 'More'\n" in out.stderr


def test_a_simulated_person_answers_through_the_interface(tmp_path: Path) -> None:
    run("demo", "--write", tmp_path)
    out = run("annotate", "--simulate", "test.txt", "--answers", 25, "--json", "-t", "template.txt", cwd=tmp_path)
    rows = [json.loads(line) for line in out.stdout.splitlines()]
    assert [row["answers"] for row in rows] == [10, 20, 25]
    assert rows[-1]["f1"] > 0.5
    assert rows[-1]["seconds"] > rows[0]["seconds"] > 0
    how = "--simulate", "test.txt", "--random-share", 0.5, "--answers", 20
    first, second = (run("annotate", *how, "-j", jobs, cwd=tmp_path).stdout for jobs in (1, 2))
    assert re.search(r"whole pool: f1 0\.\d+, stated f1 0\.\d+ \(0\.\d+ to 0\.\d+\)\n$", first)
    assert first == second
    assert sorted(p.name for p in tmp_path.iterdir()) == ["raw.txt", "template.txt", "test.txt", "train.txt"]
