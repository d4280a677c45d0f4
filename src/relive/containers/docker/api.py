"""Docker's API, over its unix socket: ``DOCKER_HOST`` where that begins with ``unix://``, else ``/var/run/docker.sock``."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from relive.errors import HostIncapable, ToolMissing

__all__ = ["API", "get", "open_stream", "socket_path"]

API = "/v1.41"  # of Docker 20.10; later engines still speak it
_DEFAULT = "/var/run/docker.sock"
_LIMIT = 30.0  # [s]
_NOT_FOUND = 404


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, limit: float | None) -> None:
        super().__init__("docker", timeout=limit)
        self._path = path

    def connect(self) -> None:
        """To the socket, not to a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def socket_path() -> str:
    """Where its engine listens; raises HostIncapable for one that is reached otherwise: CRIU needs its processes here."""
    host = os.environ.get("DOCKER_HOST") or f"unix://{_DEFAULT}"
    if not host.startswith("unix://"):
        raise HostIncapable(
            "the engine of Docker is on another host",
            cause=f"DOCKER_HOST is {host}",
            remedy="run Relive where the containers run, with DOCKER_HOST unset or unix://PATH",
        )
    return host.removeprefix("unix://")


def get(*path: str, **query: str) -> Any:
    """What it answers, parsed; None where it says that there is no such thing.

    Raises:
        ToolMissing: nobody answers.
        HostIncapable: it answers with another error.
    """
    connection, answer = _ask(_LIMIT, path, query)
    try:
        if answer.status == _NOT_FOUND:
            return None
        return json.loads(_checked(answer).read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise HostIncapable("Docker's answer cannot be read", cause=str(error)) from error
    finally:
        connection.close()


def open_stream(*path: str, **query: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    """An answer that goes on; the caller closes the connection. Raises as ``get``."""
    connection, answer = _ask(None, path, query)
    try:
        return connection, _checked(answer)
    except BaseException:
        connection.close()
        raise


def _ask(
    limit: float | None, path: tuple[str, ...], query: Mapping[str, str]
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    where = socket_path()
    connection = _Connection(where, limit)
    target = "/".join([API, *(quote(one, safe="") for one in path)])
    try:
        connection.request("GET", f"{target}?{urlencode(query)}" if query else target)
        return connection, connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise ToolMissing(
            "no engine of Docker answers",
            cause=f"{where}: {error}",
            remedy="start it, or say where its socket is with DOCKER_HOST=unix://PATH",
        ) from error


def _checked(answer: http.client.HTTPResponse) -> http.client.HTTPResponse:
    if answer.status >= 400:
        text = answer.read().decode(errors="replace").strip()
        raise HostIncapable(
            "Docker refuses",
            cause=f"{answer.status}: {text[:400]}",
            remedy="`docker info` and the engine's log may tell more",
        )
    return answer
