"""The agent's control socket: JSON objects, a line each, over a unix socket below the capsule's directory.

Requests: ``{"op": "commit"}``, in which ``RELIVE_STORE_KEY`` may hold the store keys, and ``capture`` the name of the capture (of
which only one is taken then), ``{"op": "status"}``, ``{"op": "stopping"}``
(the service's end is wanted). Answers: ``{"ok": {...}}`` or ``{"error": {code, message, cause, remedy}}``. Who asks is in
``client``.
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

__all__ = ["serve_control"]

_LINE_MOST = 1 << 20  # [bytes]
Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


async def serve_control(path: Path, handler: Handler) -> asyncio.AbstractServer:
    """Serve commands until the server is closed; only root can connect."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, ValueError):
                while line := await reader.readline():
                    writer.write(json.dumps(await _answer(handler, line)).encode() + b"\n")
                    await writer.drain()
        finally:
            writer.close()

    path.unlink(missing_ok=True)
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with near(path) as name:
        channel.bind(name)
    path.chmod(0o600)
    return await asyncio.start_unix_server(serve, sock=channel, limit=_LINE_MOST)


async def _answer(handler: Handler, line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
        return {"ok": await handler(request)}
    except ReliveError as error:
        return {"error": error.as_json()}
    except (ValueError, KeyError, TypeError) as error:
        return {"error": UsageError("the agent does not understand", cause=str(error)).as_json()}
