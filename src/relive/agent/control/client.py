"""Asking an agent over its control socket, which ``server`` specifies and serves."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relive.errors import AgentUnreachable, ReliveError
from relive.kernel.unixpath import near

__all__ = ["ask_agent"]

_START_LIMIT = 3.0  # [s] that an agent may take from its start until it listens
_START_POLL = 0.01  # [s]
_PROGRESS = b'{"progress": '


def ask_agent(
    path: Path,
    request: dict[str, Any],
    *,
    limit: float,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Send one command and wait for its answer, at most ``limit`` seconds.

    Args:
        on_progress: gets what the agent tells of work that goes on: ``what``, ``done`` and ``total``. With it, ``limit`` is for
            the time in which nothing moves.

    Raises:
        AgentUnreachable: nobody answers.
        ReliveError: what the agent answered.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(limit)
        try:
            _connect(channel, path, time.monotonic() + min(limit, _START_LIMIT))
            wanted = request if on_progress is None else request | {"progress": True}
            channel.sendall(json.dumps(wanted).encode() + b"\n")
            with channel.makefile("rb") as lines:
                line = lines.readline()
                while on_progress is not None and line.startswith(_PROGRESS) and line.endswith(b"\n"):
                    on_progress(json.loads(line)["progress"])
                    line = lines.readline()
        except OSError as error:
            raise _unreachable(str(error)) from error
    if not line.endswith(b"\n"):
        raise _unreachable("it ended before its answer was whole")
    answer = json.loads(line)
    if "error" in answer:
        raise ReliveError.from_json(answer["error"])
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
