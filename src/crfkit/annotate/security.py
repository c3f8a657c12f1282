"""Who may ask the server for what: tokens, hosts, origins, sizes, and the headers of every answer."""

from __future__ import annotations

import hmac
import ipaddress
import json
import secrets
import socket
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Any

#: Bytes that a request may have; an answer about a sentence of 100,000 tokens is smaller.
MOST_BYTES = 1 << 20

#: No script, style, picture or connection from elsewhere, none within the page's text, and strings never become markup.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Tokens:
    """One secret per annotator, new at every start and never on disk."""

    def __init__(self, annotators: Iterable[str] = ()) -> None:
        self._of = {name: secrets.token_urlsafe(24) for name in annotators}

    def __getitem__(self, annotator: str) -> str:
        """The annotator's secret; made when first asked for."""
        return self._of.setdefault(annotator, secrets.token_urlsafe(24))

    def annotator(self, token: str) -> str | None:
        """Whose secret this is; every one is compared, each in the same time."""
        found = None
        for name, secret in list(self._of.items()):
            if hmac.compare_digest(secret.encode(), token.encode("utf-8", "surrogatepass")):
                found = name
        return found


class Hosts:
    """Names under which the server may be asked for; any other is a page that points its own name at this machine.

    On all addresses, a request by number is allowed as well: only names can be pointed elsewhere.
    """

    def __init__(self, host: str, port: int, more: Iterable[str] = ()) -> None:
        names = {"localhost", "127.0.0.1", "[::1]", _bracketed(host)}
        self._everywhere = host in ("0.0.0.0", "::", "")
        if self._everywhere:
            names |= {socket.gethostname(), socket.getfqdn()}
        self._port = port
        self._allowed = {f"{name}:{port}".lower() for name in names} | {name.lower() for name in more}

    def allows(self, host: str) -> bool:
        """Whether this is a Host header for us."""
        host = host.lower()
        if host in self._allowed:
            return True
        name, _, port = host.rpartition(":")
        return self._everywhere and port == str(self._port) and _is_number(name)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name[1:-1] if name.startswith("[") else name)
    except ValueError:
        return False
    return True


class Gate:
    """Lets a request pass to the application only if host, origin, kind and size are right.

    The annotator is in ``scope["annotator"]``, None without a valid token. A token comes in a cookie or, for scripts,
    in a header ``Authorization: Bearer``; then no Origin is asked for, because no other site's page can send one.
    """

    def __init__(self, app: Any, tokens: Tokens, hosts: Hosts, cookie: str) -> None:
        self.app = app
        self.tokens = tokens
        self.hosts = hosts
        self.cookie = cookie

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] != "http":
            return

        secret = scope["path"].startswith("/api") or scope["query_string"]

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                more = HEADERS | {"cache-control": "no-store" if secret else "no-cache"}
                message["headers"] = [
                    *message["headers"],
                    *((k.encode(), v.encode()) for k, v in more.items() if k.encode() not in own),
                ]
            await send(message)

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        fault = self._judge(scope, headers)
        if fault is not None:
            await _refuse(send_guarded, *fault)
            return
        await self.app(scope, receive, send_guarded)

    def _judge(self, scope: Any, headers: dict[str, str]) -> tuple[int, str] | None:
        """What is wrong with a request; None if nothing is."""
        host = headers.get("host", "")
        if not self.hosts.allows(host):
            return 421, f"this server does not answer for the host {host[:100]!r}; see --allow-host"
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        scope["annotator"] = self.tokens.annotator(bearer or _cookie(headers.get("cookie", ""), self.cookie))
        if scope["method"] in ("GET", "HEAD"):
            return None
        if not bearer and headers.get("origin") not in (f"http://{host}", f"https://{host}"):
            return 403, "a write needs the Origin of this server, or a token in the header Authorization"
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return 415, "a write needs Content-Type: application/json"
        if not headers.get("content-length", "0").isdigit() or int(headers.get("content-length", "0")) > MOST_BYTES:
            return 413, f"a request may have at most {MOST_BYTES} bytes"
        return None


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return found.value if found else ""


async def _refuse(send: Any, status: int, text: str) -> None:
    body = json.dumps({"error": text}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})
