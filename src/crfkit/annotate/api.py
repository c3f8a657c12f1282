"""The JSON interface: each address is a method of the session, its fields checked."""

from __future__ import annotations

import json
import math
import sqlite3
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from crfkit.annotate import checks as c
from crfkit.annotate.documents import AnnotateError
from crfkit.annotate.security import MOST_BYTES
from crfkit.base.numbers import whole_number
from crfkit.data import DataError

Endpoint = Callable[[Request], Awaitable[Response]]

_SPAN = c.record({"start": c.whole(), "end": c.whole(), "label": c.maybe(c.text(least=1))}, everywhere=c.flag)
_KEY = c.text(100, least=8)
_WHICH = {"key": _KEY, "sequence": c.whole()}
_SAID: dict[str, Any] = {
    "question": c.text(),
    "spans": c.several(_SPAN),
    "judged": c.several(c.pair),
    "whole": c.flag,
}
DRAFT = c.record(_WHICH, **_SAID)
ANSWER = c.record(
    _WHICH,
    **_SAID,
    skip=c.flag,
    seconds=c.number(),
    keys=c.whole(0, 10**9),
    corrections=c.whole(0, 10**9),
)
SETTLE = c.record({"labels": c.several(_SPAN), "key": _KEY})
EDIT = c.record({"labels": c.several(_SPAN), "key": _KEY}, judged=c.several(c.pair), confirm=c.flag)
_NAME = c.text(60, least=1)
_MOVE = c.record({"from": _NAME, "to": _NAME})
LABELS = c.record(
    {"uuid": _KEY},
    add=c.record({"name": _NAME}, key=c.text(1), color=c.whole(0, 11)),
    rename=_MOVE,
    merge=_MOVE,
    color=c.record({"name": _NAME, "color": c.whole(0, 11)}),
    key=c.record({"name": _NAME, "key": c.text(1)}),
)
_TIME = c.number(0, 3600)
SETTINGS = c.record(
    key=_KEY,
    random_share=c.number(0, 1),
    show_random=c.flag,
    overlap=c.number(0, 1),
    context=c.whole(0, 20),
    time=c.record(token=_TIME, correction=_TIME, sentence=_TIME, fitted=c.flag),
)
#: The header that names the project which a request is for, by its ``project_id``.
PROJECT = "crfkit-project"
#: A click that is sent twice carries the same key twice.
CLICK = c.record(key=_KEY)
ANNOTATOR = c.record({"name": _NAME}, key=_KEY)


def answer(value: Any, status: int = 200) -> Response:
    """JSON; null for numbers that it has not."""
    try:
        body = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        body = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
    return Response(body.encode("utf-8", "backslashreplace"), status, media_type="application/json")


def _finite(x: Any) -> Any:
    if isinstance(x, dict):
        return {key: _finite(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [_finite(value) for value in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x


async def _body(request: Request) -> Any:
    """What a write says."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise AnnotateError(f"a request may have at most {MOST_BYTES} bytes", 413)
        parts.append(part)
    try:
        return json.loads(b"".join(parts) or b"{}", parse_constant=_no_constant, parse_int=whole_number)
    except (ValueError, RecursionError) as e:
        raise AnnotateError(f"the request is not JSON: {e}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _query(request: Request, **rules: c.Check) -> dict[str, Any]:
    """The parameters of a read, those that are given; whole numbers by their digits."""
    found: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name not in rules:
            raise AnnotateError(f"there is no parameter {name[:100]!r} here; parameters: {', '.join(rules) or 'none'}")
        if value == "":
            continue
        is_number = value.isascii() and value.isdigit() and len(value) < 17
        try:
            found[name] = rules[name](value, name)
        except AnnotateError:
            if not is_number:
                raise
            found[name] = rules[name](int(value), name)
    return found


def guarded(endpoint: Endpoint) -> Endpoint:
    """The same for annotators only, with errors as JSON of one line."""

    async def serve(request: Request) -> Response:
        if request.scope.get("annotator") is None:
            said = "open the address that crfkit printed: it holds the token, for scripts 'Authorization: Bearer TOKEN'"
            return answer({"error": said}, 401)
        try:
            return await endpoint(request)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as e:
            return answer({"error": _one_line(e)}, _status(e))

    return serve


def _status(e: Exception) -> int:
    if isinstance(e, AnnotateError):
        return e.status
    if isinstance(e, DataError):
        return 400
    return 507 if isinstance(e, OSError | sqlite3.Error) else 500


def _one_line(e: Exception) -> str:
    if isinstance(e, AnnotateError | DataError):
        return str(e)
    if isinstance(e, OSError | sqlite3.Error):
        return f"the project could not be read or saved: {getattr(e, 'strerror', None) or e}"
    print("".join(traceback.format_exception(e)), file=sys.stderr, flush=True)
    return f"crfkit failed: {type(e).__name__}: {e}; the terminal shows where"


class Api:
    """The addresses under ``/api``; ``invite`` gives the address for an annotator."""

    def __init__(self, session: Any, invite: Callable[[str], str]) -> None:
        self.session = session
        self.invite = invite

    def routes(self) -> list[Route]:
        """All of them."""
        s = self.session
        page = {"page": c.whole()}
        reads: dict[str, Endpoint] = {
            "state": self._read(s.state),
            "question": self._read(s.question, sequence=c.whole()),
            "panel": self._read(s.panel),
            "browse": self._read(
                s.browse,
                search=c.text(),
                label=c.text(),
                confidence=c.text(),
                by=c.text(),
                status=c.text(),
                **page,
            ),
            "review": self._read(s.review, **page),
            "agree": self._read(lambda _, **how: s.agree(**how), **page),
            "model": self._read(lambda _: s.model()),
            "explain": self._read(
                lambda _, sequence=None, token=None: s.explain(_given("sequence", sequence), _given("token", token)),
                sequence=c.whole(),
                token=c.whole(),
            ),
            "annotators": self._read(self._annotators),
            "export": self._export,
            "export/model": self._export_model,
        }
        writes: dict[str, Endpoint] = {
            "answer": self._write(s.answer, ANSWER),
            "draft": self._write(s.draft, DRAFT),
            "undo": self._write(lambda who, said: s.undo(who, **said), CLICK),
            "redo": self._write(lambda who, said: s.redo(who, **said), CLICK),
            "labels": self._write(s.change_labels, LABELS),
            "settings": self._write(s.settings, SETTINGS),
            "annotators": self._write(self._add_annotator, ANNOTATOR),
        }
        reads["sequence/{i:int}"] = self._sequence
        writes["sequence/{i:int}"] = self._change(s.edit, EDIT)
        writes["settle/{i:int}"] = self._change(s.settle, SETTLE)
        each = [("GET", name, call) for name, call in reads.items()]
        each += [("POST", name, call) for name, call in writes.items()]
        return [Route(f"/api/{name}", guarded(self._of_project(call)), methods=[method]) for method, name, call in each]

    def _of_project(self, endpoint: Endpoint) -> Endpoint:
        """The same, unless the request is for another project: a page may outlive the server that it came from."""

        async def serve(request: Request) -> Response:
            meant = request.headers.get(PROJECT)
            if meant is not None and meant != (mine := self.session.project.identity):
                said = "another project is served here now; reload the page to see it"
                return answer({"error": said, "project_id": mine}, 409)
            return await endpoint(request)

        return serve

    def _read(self, method: Callable[..., Any], **rules: c.Check) -> Endpoint:
        async def serve(request: Request) -> Response:
            how = _query(request, **rules)
            return await run_in_threadpool(lambda: answer(method(request.scope["annotator"], **how)))

        return serve

    def _write(self, method: Callable[[str, Any], Any], rule: c.Check) -> Endpoint:
        async def serve(request: Request) -> Response:
            said = rule(await _body(request), "")
            return await run_in_threadpool(lambda: answer(method(request.scope["annotator"], said)))

        return serve

    async def _sequence(self, request: Request) -> Response:
        who, i = request.scope["annotator"], request.path_params["i"]
        return await run_in_threadpool(lambda: answer(self.session.sequence(who, i)))

    def _change(self, method: Callable[..., Any], rule: c.Check) -> Endpoint:
        async def serve(request: Request) -> Response:
            said = rule(await _body(request), "")
            who, i = request.scope["annotator"], request.path_params["i"]
            return await run_in_threadpool(lambda: answer(method(who, i, **said)))

        return serve

    def _annotators(self, who: str) -> dict[str, Any]:
        """Names; the first annotator, who started the project, sees everyone's address."""
        names = self.session.annotators()
        mine = names[:1] == [who]
        return {"annotators": [{"name": x, **({"address": self.invite(x)} if mine or x == who else {})} for x in names]}

    def _add_annotator(self, who: str, said: dict[str, Any]) -> dict[str, Any]:
        name = said["name"].strip()
        if not name or not name.isprintable() or "," in name:
            raise AnnotateError("a name must have a visible character, and no comma")
        key = said.get("key")
        again = key is not None and self.session.project.store.find(key) is not None
        if name in self.session.annotators() and not again:
            raise AnnotateError(f"annotator {name!r} already exists", 409)
        self.session.add_annotator(name, key)
        return {"name": name, "address": self.invite(name)}

    async def _export(self, request: Request) -> Response:
        how = _query(request, format=c.text(), what=c.text())
        made = await run_in_threadpool(
            lambda: self.session.export(how.get("format", "same"), how.get("what", "labels"))
        )
        return _attachment(made.data, made.name, made.media)

    async def _export_model(self, request: Request) -> Response:
        data = await run_in_threadpool(self.session.model_bytes)
        return _attachment(data, "model.crfkit", "application/octet-stream")


def _given(name: str, value: int | None) -> int:
    if value is None:
        raise AnnotateError(f"the parameter {name!r} is missing")
    return value


def _attachment(data: bytes, name: str, media: str) -> Response:
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
    return Response(data, media_type=media, headers=headers)
