"""The agent's control socket: JSON objects, a line each, over a unix socket below the capsule's directory.

Requests: ``{"op": "commit"}``, in which ``RELIVE_STORE_KEY`` may hold the store keys, and ``capture`` the name of the capture (of
which only one is taken then), ``{"op": "status"}``, ``{"op": "stopping"}``
(the service's end is wanted). Answers: ``{"ok": {...}}`` or ``{"error": {kind, code, message, cause, remedy}}``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from relive import errors
from relive.errors import AgentUnreachable, ReliveError
from relive.kernel.unixpath import near

__all__ = ["ask_agent", "serve_control"]

_LINE_MOST = 1 << 20  # [bytes]
_START_LIMIT = 3.0  # [s] that an agent may take from its start until it listens
_START_POLL = 0.01  # [s]
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
        return {"error": {"kind": type(error).__name__, **error.as_json()}}
    except (ValueError, KeyError, TypeError) as error:
        return {
            "error": {
                "kind": "UsageError",
                "message": "the agent does not understand",
                "cause": str(error),
                "remedy": None,
            }
        }


def ask_agent(path: Path, request: dict[str, Any], *, limit: float) -> dict[str, Any]:
    """Send one command and wait for its answer, at most ``limit`` seconds.

    Raises:
        AgentUnreachable: nobody answers.
        ReliveError: what the agent answered.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(limit)
        try:
            _connect(channel, path, time.monotonic() + min(limit, _START_LIMIT))
            channel.sendall(json.dumps(request).encode() + b"\n")
            line = channel.makefile("rb").readline()
        except OSError as error:
            raise _unreachable(str(error)) from error
    if not line.endswith(b"\n"):
        raise _unreachable("it ended before its answer was whole")
    answer = json.loads(line)
    if "error" in answer:
        shape = answer["error"]
        kind = getattr(errors, shape["kind"], ReliveError)
        raise kind(shape["message"], cause=shape["cause"], remedy=shape["remedy"])
    result: dict[str, Any] = answer["ok"]
    return result


def _connect(channel: socket.socket, path: Path, deadline: float) -> None:
    with near(path) as name:
        while True:
            try:
                return channel.connect(name)
            except (FileNotFoundError, ConnectionRefusedError):
                # A new agent listens a moment after it has started; one that closed its capsule never will.
                if time.monotonic() > deadline or (path.parent / "closed").exists():
                    raise
                time.sleep(_START_POLL)


def _unreachable(cause: str) -> AgentUnreachable:
    return AgentUnreachable(
        "the capsule's agent does not answer",
        cause=cause,
        remedy="the service runs on; `relive ps` starts a new agent for it",
    )
