"""Writes requests into the audit log: ASGI middleware, inside ``Limits``.

- A request that acts (anything but GET, HEAD, OPTIONS) of a known caller has an entry ``asked`` on the disk before it is passed
  on: where the log cannot be written nothing is done. How it ended follows, on the disk before the answer leaves.
- A refusal (401, 403) has one entry; of more than a few in a second only the number is kept, so that nobody can push the log out by
  asking.
- Reading has one where its route asks for the scope memory or admin, or says something of it (``audit.note``).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import anyio.to_thread
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from relive.coordinator.audit import Audit
from relive.coordinator.errors import answer_to
from relive.coordinator.gate import Caller, Gate
from relive.coordinator.limits import Buckets
from relive.errors import ReliveError

__all__ = ["Trail"]

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_REFUSALS: Final = (1.0, 20)  # in a second, at once


class Trail:
    """The middleware: ``app.add_middleware(Trail, gate=gate, audit=audit)``, before ``Limits`` is added."""

    def __init__(self, app: ASGIApp, *, gate: Gate, audit: Audit) -> None:
        self._app, self._gate, self._audit = app, gate, audit
        self._refusals = Buckets()
        self._unwritten = 0

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Pass the request on; answer it with an error if it acts and the log cannot be written."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        noted: dict[str, Any] = {}
        scope["relive.audit"] = noted
        caller = await self._gate.ask(scope)
        is_act = scope["method"] not in _READS
        told: dict[str, Any] = {
            "who": caller.who if isinstance(caller, Caller) else "unknown",
            "address": (scope.get("client") or ("unknown", 0))[0],
            "what": f"{scope['method']} {scope['path']}",
        }
        is_ended = False

        async def end(status: int) -> None:
            nonlocal is_ended
            is_ended = True
            is_refusal = status in (401, 403)
            if not (is_refusal or noted or (is_act and isinstance(caller, Caller))):
                return
            if is_refusal and self._refusals.take("", *_REFUSALS):
                self._unwritten += 1
                return
            unwritten, self._unwritten = (self._unwritten, 0) if is_refusal else (0, self._unwritten)
            told.update((name, noted[name]) for name in ("who", "target", "task") if name in noted)
            await self._record(
                **told,
                outcome="refused" if is_refusal else "done" if status < 400 else "failed",
                status=status,
                unwritten=unwritten,
                is_durable=is_act and not is_refusal,
            )

        async def answered(message: Message) -> None:
            if message["type"] == "http.response.start" and not is_ended:
                await end(message["status"])
            await send(message)

        try:
            if is_act and isinstance(caller, Caller):
                await self._record(**told, outcome="asked", is_durable=True)
        except ReliveError as error:
            await answer_to(error)(scope, receive, send)
            return
        try:
            await self._app(scope, receive, answered)
        except Exception:
            if not is_ended:
                await end(500)
            raise

    async def _record(self, **facts: Any) -> None:
        await anyio.to_thread.run_sync(partial(self._audit.record, **facts))
