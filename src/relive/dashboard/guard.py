"""Who may speak to the dashboard: an ASGI middleware in front of everything that Streamlit serves.

Whoever reaches the dashboard acts as root. So three things are asked of every request and web socket, before Streamlit sees it:

1. Its path begins with the *token*: a secret word that is part of the address, so that nobody else on this host can guess it.
   A cookie would do as well, but browsers send cookies to every port of a host, so also to services of published branches.
2. ``Host`` is a name by which the dashboard was started. A page of another site whose name was turned to this host says its own.
3. ``Origin``, where a browser sends it, is the dashboard's own: no page of another site opens its web socket.

What it answers may load nothing from anywhere else, is shown in no frame, and tells its address to nobody.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard"]

_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_NO_TOKEN = (
    "This is not the dashboard's address.\n"
    "Cause: the address has a secret part, since whoever reaches the dashboard acts as root on its host.\n"
    "Remedy: open the address that `relive dashboard` printed.\n"
)
_NOT_HERE = (
    "The dashboard is not known by this name.\n"
    "Cause: the request was for another host, or a page of another site made it.\n"
    "Remedy: open the address that `relive dashboard` printed.\n"
)


class Guard:
    """See the module.

    Args:
        token: without slashes; None: the address has no secret part.
        hosts: names and addresses, in lower case; None: every name is good.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, hosts: Collection[str] | None) -> None:
        self._app = app
        self._token = token.encode() if token is not None else None
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, _with_headers(send))
        elif scope["type"] == "http":
            await PlainTextResponse(refusal, status_code=403, headers=_HEADERS)(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})  # before it is accepted: status 403

    def _refusal(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._hosts is not None and _name(f"//{host}") not in self._hosts:
            return _NOT_HERE
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return _NOT_HERE
        first = scope["path"].split("/")[1:2] or [""]
        if self._token is not None and not hmac.compare_digest(first[0].encode(), self._token):
            return _NO_TOKEN
        return None


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: Any = MutableHeaders(scope=message)
            headers.update(_HEADERS)
        await send(message)

    return send_with_headers
