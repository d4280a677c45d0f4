"""The agent's control socket: JSON objects, a line each, over a unix socket below the capsule's directory.

Requests: ``{"op": "commit"}``, in which ``RELIVE_STORE_KEY`` may hold the store keys, and ``capture`` the name of the capture (of
which only one is taken then), ``{"op": "status"}``, ``{"op": "stopping"}``
(the service's end is wanted). Answers: ``{"ok": {...}}`` or ``{"error": {code, message, cause, remedy}}``. Before the
answer of a request with ``"progress": true`` come lines ``{"progress": {what, done, total}}``, at most one a second, as long as
commits go on. Who asks is in ``client``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from relive.errors import ReliveError, UsageError
from relive.kernel.unixpath import near
from relive.model.advance import Advance

__all__ = ["serve_control"]

_LINE_MOST = 1 << 20  # [bytes]
_ADVANCE_EVERY = 1.0  # [s]
Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


async def serve_control(path: Path, handler: Handler, advance: Advance) -> asyncio.AbstractServer:
    """Serve commands until the server is closed; only root can connect.

    Args:
        advance: how far is what a request may wait for.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, ValueError):
                while line := await reader.readline():
                    answer = asyncio.ensure_future(_answer(handler, line))
                    if b'"progress"' in line:
                        # Who asked may be gone; what was asked for goes on, and is awaited so that it is not lost.
                        with contextlib.suppress(ConnectionError):
                            await _report_advance(writer, advance, answer)
                    writer.write(_encoded(await answer))
                    await writer.drain()
        finally:
            writer.close()

    path.unlink(missing_ok=True)
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with near(path) as name:
        channel.bind(name)
    path.chmod(0o600)
    return await asyncio.start_unix_server(serve, sock=channel, limit=_LINE_MOST)


async def _report_advance(
    writer: asyncio.StreamWriter, advance: Advance, answer: asyncio.Future[dict[str, Any]]
) -> None:
    """Until the answer is there, say how far it is; nothing is said while nothing moves, so that who waits can give up."""
    moves = advance.moves
    while not (await asyncio.wait([answer], timeout=_ADVANCE_EVERY))[0]:
        stage = advance.current
        if advance.moves != moves and stage is not None:
            moves = advance.moves
            progress = {"what": stage.what, "done": min(stage.done, stage.total), "total": stage.total}
            writer.write(_encoded({"progress": progress}))
            await writer.drain()


def _encoded(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


async def _answer(handler: Handler, line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
        return {"ok": await handler(request)}
    except ReliveError as error:
        return {"error": error.as_json()}
    except (ValueError, KeyError, TypeError) as error:
        return {"error": UsageError("the agent does not understand", cause=str(error)).as_json()}
