"""The server: the page's files, the JSON interface, the gate in front of both."""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Callable, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from crfkit.annotate.api import Api, answer
from crfkit.annotate.security import Gate, Hosts, Tokens

_PAGE = Path(__file__).parent / "page"


class Server:
    """Serves a session until a signal ends it.

    Parameters
    ----------
    session : Session
    host, port :
        Where to listen; port 0 takes a free one.
    allow_hosts : iterable of str
        Further Host headers to answer to, such as that of a proxy.
    search : bool
        Whether to take one of the next ports if this one is taken.
    """

    def __init__(
        self,
        session: Any,
        host: str = "127.0.0.1",
        port: int = 8765,
        allow_hosts: Iterable[str] = (),
        search: bool = False,
    ) -> None:
        self.session = session
        self.socket = listen(host, port, search)
        self.port = int(self.socket.getsockname()[1])
        self.host = host
        self.tokens = Tokens(session.annotators())
        # Cookies are shared by all ports of a host, and two projects may be open at once.
        self.cookie = f"crfkit-{self.port}"
        hosts = Hosts(host, self.port, allow_hosts)
        self.app = Gate(self._application(), self.tokens, hosts, self.cookie)
        config = uvicorn.Config(
            self.app,
            log_level="warning",
            access_log=False,  # it would hold tokens
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=5,
        )
        self._server = uvicorn.Server(config)

    def address(self, annotator: str) -> str:
        """The address that makes its reader this annotator."""
        return f"{self.base}/?token={self.tokens[annotator]}"

    @property
    def base(self) -> str:
        """The address of the page."""
        shown = {"0.0.0.0": socket.gethostname(), "": socket.gethostname(), "::": socket.gethostname()}.get(
            self.host, self.host
        )
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{self.port}"

    def run(self) -> int:
        """Serves; the number of the signal that ended it."""
        caught = 0

        def note(number: int, frame: Any) -> None:
            nonlocal caught
            caught = caught or number
            self._server.should_exit = True  # it may come before uvicorn listens to signals

        # uvicorn puts its own in place of these while it runs, and sends the signal again when it has ended
        with _handlers(note), suppress(KeyboardInterrupt):
            self._server.run(sockets=[self.socket])
        return caught

    def stop(self) -> None:
        """Lets :meth:`run` end, from another thread."""
        self._server.should_exit = True

    @property
    def started(self) -> bool:
        """Whether it answers."""
        return self._server.started

    def _application(self) -> Starlette:
        async def index(request: Request) -> Response:
            token = request.query_params.get("token")
            if token is None:
                return FileResponse(_PAGE / "index.html")
            if self.tokens.annotator(token) is None:
                return Response("crfkit: this address is from an earlier start; the terminal shows the new one.\n", 401)
            response = RedirectResponse("/", 303)
            response.set_cookie(self.cookie, token, httponly=True, samesite="strict", path="/")
            return response

        async def fault(request: Request, e: Exception) -> Response:
            status = e.status_code if isinstance(e, HTTPException) else 500
            said = {404: "there is nothing at this address", 405: "this address does not take this method"}
            return answer({"error": said.get(status, "the request failed")}, status)

        routes = [
            Route("/", index, methods=["GET"]),
            Mount("/page", StaticFiles(directory=_PAGE, check_dir=False)),
            *Api(self.session, self.address).routes(),
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: fault})


@contextmanager
def _handlers(note: Callable[[int, Any], None]) -> Any:
    """Puts a handler in place of those of Ctrl-C and SIGTERM; signals that are ignored (nohup) stay so."""
    old = {}
    with suppress(ValueError):  # not in the main thread
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                old[number] = signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def listen(host: str, port: int, search: bool) -> socket.socket:
    """A socket at the port, or at one of the next 50 if ``search``."""
    try:
        family = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)[0][0]
    except socket.gaierror as e:
        raise OSError(errno.EADDRNOTAVAIL, f"there is no host {host!r}: {e.strerror}") from None
    for tried in range(port, min(port + (50 if search else 1), 65536)):
        found = socket.socket(family, socket.SOCK_STREAM)
        if os.name == "posix":  # a port that was just left is free; on Windows this would take one that is in use
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, tried))
            found.listen(128)
        except OSError as e:
            found.close()
            if e.errno != errno.EADDRINUSE:
                raise OSError(e.errno, f"cannot listen at {host}:{tried}: {e.strerror}") from None
            continue
        return found
    raise OSError(errno.EADDRINUSE, f"port {port} of {host} is taken: give another with --port")
