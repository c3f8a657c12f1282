"""A campaign with a simulated person, who knows the labels and answers through the JSON interface."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from crfkit.active.time_model import TimeModel
from crfkit.annotate.documents import AnnotateError
from crfkit.annotate.session import Session
from crfkit.metrics import spans as chunks_of

Json = dict[str, Any]
#: Asks an interface: method, path with parameters, what is sent; gives what comes back.
Call = Callable[[str, str, Json | None], Any]


class Step(NamedTuple):
    """A campaign after an answer; all but the question and the panel are sums so far.

    Attributes
    ----------
    answers : int
    seconds : float
        Of the person, by the time model.
    tokens, corrections, keys : int
        Tokens judged, tokens whose suggested label was wrong, keystrokes.
    question : dict
        What was answered.
    panel : dict
        What the page shows after it.
    """

    answers: int
    seconds: float
    tokens: int
    corrections: int
    keys: int
    question: Json
    panel: Json


class Person:
    """Somebody who knows the labels of all sentences, and answers as the page would.

    Asked about spans, the person judges these spans and any true spans that overlap them, in full; asked about a
    whole sentence, all of it. Seconds are those of the time model, without noise.

    Parameters
    ----------
    gold : sequence of label lists
        The true labels of all sentences: BIO for spans.
    spans : bool
        Whether labels are those of spans.
    time_model : TimeModel, optional
    """

    def __init__(self, gold: Sequence[Sequence[str]], spans: bool = True, time_model: TimeModel | None = None) -> None:
        self.gold = gold
        self.spans = spans
        self.time_model = time_model or TimeModel()

    def units(self, i: int) -> list[tuple[int, int, str]]:
        """The true spans of a sentence, or its tokens' labels."""
        row = list(self.gold[i])
        if self.spans:
            return [(s.start, s.end, s.kind) for s in chunks_of(row)]
        return [(t, t + 1, label) for t, label in enumerate(row)]

    def answer(self, question: Json) -> tuple[Json, int, int]:
        """The answer to a question, and the tokens judged and corrected in it."""
        i, length = question["sequence"], len(question["tokens"])
        true = self.units(i)
        suggested = self._suggested(question, length)
        if question["whole"] or not question["spans"]:
            judged = set(range(length))
            told, asked = set(true), None
        else:
            judged, told, asked = set(), set(), question["spans"]
            for span in asked:
                judged |= set(range(span["start"], span["end"]))
                for unit in true:
                    if unit[0] < span["end"] and span["start"] < unit[1]:
                        told.add(unit)
                        judged |= set(range(unit[0], unit[1]))
        wrong = sum(self._labels(true, length)[t] != suggested[t] for t in judged)
        spans = [{"start": a, "end": b, "label": name, "everywhere": False} for a, b, name in sorted(told)]
        answer = {
            "key": str(uuid.uuid4()),
            "question": question["id"],
            "sequence": i,
            "spans": spans,
            "judged": _ranges(judged),
            "whole": len(judged) == length,
            "skip": False,
            "seconds": self.time_model.seconds(len(judged), wrong),
            "keys": self._keys(question, asked, true),
            "corrections": wrong,
        }
        return answer, len(judged), wrong

    def _labels(self, units: Sequence[tuple[int, int, str | None]], length: int) -> list[str]:
        """Labels of tokens, out of spans."""
        out = ["O"] * length
        for a, b, name in units:
            for t in range(a, b):
                out[t] = str(name) if not self.spans else "O" if name is None else f"{'I' if t > a else 'B'}-{name}"
        return out

    def _suggested(self, question: Json, length: int) -> list[str]:
        """The labels that the page shows before the answer."""
        out = self._labels([(g["start"], g["end"], g["label"]) for g in question["guesses"]], length)
        for s in question["spans"]:
            part = self._labels([(0, s["end"] - s["start"], s["guess"]["label"])], s["end"] - s["start"])
            out[s["start"] : s["end"]] = part
        return out

    def _keys(self, question: Json, asked: list[Json] | None, true: list[tuple[int, int, str]]) -> int:
        """Keystrokes: one to accept; else one for the label, one for each token that a border moves, one to accept."""
        if asked is None:
            guesses = {(g["start"], g["end"], g["label"]) for g in question["guesses"]}
            new = [unit for unit in true if unit not in guesses]
            gone = [g for g in guesses if not any(g[0] < b and a < g[1] for a, b, _ in true)]
            return 1 + sum(1 + b - a for a, b, _ in new) + len(gone)
        keys, done = 0, set()
        for span in asked:
            met = [unit for unit in true if unit[0] < span["end"] and span["start"] < unit[1]]
            if met and met[0] in done:
                continue  # an answer before this one reached it
            done |= set(met)
            guess = span["guess"]["label"]
            keys += 1
            for k, (a, b, name) in enumerate(met):
                moved = abs(a - span["start"]) + abs(b - span["end"]) if k == 0 else b - a
                keys += moved + (name != guess)
            keys += not met and guess is not None
        return keys


def play(call: Call, person: Person, answers: int) -> Iterator[Step]:
    """Plays a campaign of this many answers, or until nothing is left to ask; gives the state after each.

    Examples
    --------
    >>> import tempfile
    >>> from crfkit.annotate.documents import Document
    >>> from crfkit.annotate.project import Project
    >>> documents = [Document("Anna left", [(0, 4), (5, 9)]), Document("Bob left", [(0, 3), (4, 8)])]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     session = Session(Project.create(f"{folder}/p.crfkit-project", documents, labels=["PER"]))
    ...     steps = list(play(in_process(session), Person([["B-PER", "O"]] * 2), 10))
    ...     session.close()
    >>> len(steps), steps[-1].tokens
    (2, 4)
    """
    question = call("GET", "/api/question", None)
    seconds, tokens, corrections, keys = 0.0, 0, 0, 0
    for n in range(1, answers + 1):
        if question["kind"] == "done":
            return
        answer, judged, wrong = person.answer(question)
        reply = call("POST", "/api/answer", answer)
        seconds, tokens = seconds + answer["seconds"], tokens + judged
        corrections, keys = corrections + wrong, keys + answer["keys"]
        yield Step(n, seconds, tokens, corrections, keys, question, reply["panel"])
        question = reply["next"]


def in_process(session: Session, annotator: str = "simulated") -> Call:
    """The interface of a session without a server."""

    def call(method: str, path: str, body: Json | None) -> Any:
        if (method, path) == ("GET", "/api/question"):
            return session.question(annotator)
        if (method, path) == ("POST", "/api/answer"):
            return session.answer(annotator, body or {})
        if (method, path) == ("GET", "/api/export/model"):
            return session.model_bytes()
        raise AnnotateError(f"{method} {path} is not played in process", 404)

    return call


def over_http(address: str) -> Call:
    """The interface of a server, by the address with a token that it printed."""
    parts = urllib.parse.urlsplit(address)
    (token,) = urllib.parse.parse_qs(parts.query)["token"]
    root = f"{parts.scheme}://{parts.netloc}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def call(method: str, path: str, body: Json | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(root + path, data, headers, method=method)
        try:
            with opener.open(request, timeout=60) as reply:
                found: bytes = reply.read()
                is_json = reply.headers.get_content_type() == "application/json"
        except urllib.error.HTTPError as e:
            raise AnnotateError(f"{method} {path}: {e.code} {e.read().decode(errors='replace')}", e.code) from None
        return json.loads(found) if is_json else found

    return call


def _ranges(tokens: set[int]) -> list[list[int]]:
    out: list[list[int]] = []
    for t in sorted(tokens):
        if out and out[-1][1] == t:
            out[-1][1] = t + 1
        else:
            out.append([t, t + 1])
    return out
