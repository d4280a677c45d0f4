"""Writes requests into the audit log: ASGI middleware, inside ``Limits``.

- A request that acts (anything but GET, HEAD, OPTIONS) of a known caller has an entry ``asked`` on the disk before it is passed
  on: where the log cannot be written nothing is done. How it ended follows, on the disk before the answer leaves.
- A refusal (401, 403) has one entry, and so has a download; of more than a few in a second only the number is kept, so that nobody
  without a token can push the log out by asking.
- Reading has one where its route asks for the scope memory or admin, or says something of it (``audit.note``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import anyio.to_thread
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from relive.errors import ReliveError
from relive.server.audit import Audit
from relive.server.authentication import Authenticator, Caller
from relive.server.errors import answer_to
from relive.server.rate_limits import Buckets

__all__ = ["AuditMiddleware"]

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_ANYBODY: Final = "unknown"
_ANYBODYS: Final = (1.0, 20)  # entries in a second, at once


class AuditMiddleware:
    """The middleware: ``app.add_middleware(Trail, gate=gate, audit=audit)``, before ``Limits`` is added."""

    def __init__(self, app: ASGIApp, *, gate: Authenticator, audit: Audit) -> None:
        self._app, self._gate, self._audit = app, gate, audit
        self._anybody = Buckets()
        self._unwritten = 0

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Pass the request on; answer it with an error if it acts and the log cannot be written."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        noted: dict[str, Any] = {}
        scope["relive.audit"] = noted
        caller = await self._gate.ask(scope)
        entry: dict[str, Any] = {
            "who": caller.who if isinstance(caller, Caller) else _ANYBODY,
            "address": (scope.get("client") or ("unknown", 0))[0],
            "what": f"{scope['method']} {scope['path']}",
        }
        is_act = isinstance(caller, Caller) and scope["method"] not in _READS
        if is_act:
            try:
                await self._record(**entry, outcome="asked", is_durable=True)
            except ReliveError as error:
                await answer_to(error)(scope, receive, send)
                return
        await _Request(self._end, entry, noted, is_act=is_act).run(self._app, scope, receive, send)

    async def _end(self, entry: dict[str, Any], noted: dict[str, Any], status: int, *, is_act: bool) -> None:
        is_refusal = status in (401, 403)
        if not (is_refusal or noted or is_act):
            return
        # Who has no token asks as often as they like, also for downloads.
        is_anybody = entry["who"] == _ANYBODY
        if (is_refusal or is_anybody) and self._anybody.acquire(noted.get("who", ""), *_ANYBODYS):
            self._unwritten += 1
            return
        unwritten, self._unwritten = self._unwritten, 0
        said = {name: noted[name] for name in ("who", "target", "task") if name in noted}
        outcome = "refused" if is_refusal else "done" if status < 400 else "failed"
        facts: dict[str, Any] = {"outcome": outcome, "status": status, "unwritten": unwritten}
        try:
            await self._record(**(entry | said | facts), is_durable=is_act and not is_refusal)
        except ReliveError:
            self._unwritten += unwritten
            raise

    async def _record(self, **facts: Any) -> None:
        await anyio.to_thread.run_sync(partial(self._audit.record, **facts))


class _Request:
    """One request on its way; its end is told once, before the answer leaves."""

    def __init__(
        self,
        end: Callable[..., Awaitable[None]],
        entry: dict[str, Any],
        noted: dict[str, Any],
        *,
        is_act: bool,
    ) -> None:
        self._tell = partial(end, entry, noted, is_act=is_act)
        self._is_told = False
        self._failure: ReliveError | None = None

    async def run(self, app: ASGIApp, scope: AsgiScope, receive: Receive, send: Send) -> None:
        async def answered(message: Message) -> None:
            if message["type"] == "http.response.start":
                await self._end(message["status"])
            # Else the answer would say that all is well; ours comes when the application has ended. An error raised from
            # here would find the application's own handlers thinking that the answer has begun.
            if self._failure is None:
                await send(message)

        try:
            await app(scope, receive, answered)
        except Exception:
            await self._end(500)
            raise
        if self._failure is not None:
            await answer_to(self._failure)(scope, receive, send)

    async def _end(self, status: int) -> None:
        if self._is_told:
            return
        self._is_told = True
        try:
            await self._tell(status)
        except ReliveError as error:
            self._failure = error
