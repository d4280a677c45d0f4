"""The inspector of a living Node.js process of a branch: opened by SIGUSR1, spoken to in the Chrome DevTools Protocol.

https://nodejs.org/api/inspector.html, https://chromedevtools.github.io/devtools-protocol/v8/. The port is one of the branch's own
network, so nothing of the host sees it. The process is hostile input: what it says is bounded in size and time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import PurePath
from typing import Any, Protocol
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection, connect

from relive.errors import RestoreFailed, UsageError
from relive.kernel import procfs
from relive.kernel.namespaces import in_network_of
from relive.kernel.sockdiag import listening_ports

__all__ = [
    "Conversation",
    "Inspector",
    "InspectorGone",
    "InspectorLate",
    "is_node",
    "named_port",
    "opened_inspector",
]

_NAMES = frozenset({"node", "nodejs"})
_USUAL_PORT = 9229
_PORT = re.compile(r"--inspect(?:-brk|-wait|-port)?=(?:.*:)?(\d+)$")
_LIST_MOST = 1 << 20  # [bytes] of the list of targets
_MESSAGE_MOST = 64 << 20  # [bytes]
_POLL = 0.01  # [s]
_ENDS = "NodeRuntime.waitingForDisconnect"  # it has ended, but for its inspector, which waits for its client
_CAUGHT = signal.SIGUSR1


class InspectorLate(Exception):
    """It did not answer in time."""


class InspectorGone(Exception):
    """Its connection ended: the process has, or is about to."""


def is_node(pid: int) -> bool:
    """A process runs Node.js."""
    with contextlib.suppress(OSError):
        if PurePath(os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")).name in _NAMES:
            return True
    return any(PurePath(one.path).name.startswith("libnode.so") for one in procfs.read_maps(pid))


class Conversation(Protocol):
    """With a thread of a process in the Chrome DevTools Protocol; ``events``: what it told unasked, (method, params)."""

    events: list[tuple[str, dict[str, Any]]]

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command; raises InspectorLate, InspectorGone, ValueError where it is refused."""

    def send(self, method: str, **params: Any) -> int:
        """Give a command whose result nobody awaits; its number."""

    def await_event(self, method: str, ends: Callable[[], bool]) -> dict[str, Any] | None:
        """The params of an event that comes, or has come; None once ``ends`` says so."""


@dataclass(slots=True)
class Inspector:
    """A conversation with one process.

    Args:
        until: monotonic seconds; what lasts longer raises InspectorLate.

    Attributes:
        events: what it told unasked, (method, params), oldest first.
    """

    connection: ClientConnection
    until: float
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _number: int = 0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command.

        Raises:
            InspectorLate, InspectorGone. ValueError: it refuses the command, or answers with no JSON.
        """
        number = self.send(method, **params)
        while True:
            told = self.take(self.until)
            if told is not None and told.get("id") == number:
                break
        if "error" in told:
            raise ValueError(str(told["error"].get("message", "")))
        result: dict[str, Any] = told["result"]
        return result

    def send(self, method: str, **params: Any) -> int:
        """Give a command whose result nobody awaits; its number. Raises InspectorGone."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        with _told_as_gone():
            self.connection.send(json.dumps(message))
        return self._number

    def await_event(self, method: str, ends: Callable[[], bool]) -> dict[str, Any] | None:
        """The params of an event that comes, or has come; None once ``ends`` says so. Raises as ``ask``."""
        while True:
            found = next((params for name, params in self.events if name == method), None)
            if found is not None or ends():
                return found
            if self.take(min(self.until, time.monotonic() + _POLL)) is None and time.monotonic() > self.until:
                raise InspectorLate

    def take(self, until: float) -> dict[str, Any] | None:
        """A message; events are put aside. None: none came until then, which raises InspectorLate at the very end."""
        try:
            with _told_as_gone():
                told = json.loads(self.connection.recv(timeout=max(0.0, until - time.monotonic())))
        except TimeoutError:
            if until >= self.until:
                raise InspectorLate from None
            return None
        if told.get("method") == _ENDS:
            raise InspectorGone
        if "method" in told:
            self.events.append((told["method"], told.get("params", {})))
        return dict(told)


@contextlib.contextmanager
def opened_inspector(pid: int, until: float) -> Iterator[Inspector]:
    """Have a process open its inspector, and speak to it.

    Raises:
        UsageError: it has none. InspectorLate, InspectorGone. RestoreFailed: what listens there is no inspector.
    """
    address = _opened(pid, until)
    parts = urlsplit(address)
    sock = _connected(pid, parts.port or _USUAL_PORT, until)
    try:
        connection = connect(
            address,
            sock=sock,
            max_size=_MESSAGE_MOST,
            compression=None,
            proxy=None,
            open_timeout=max(_POLL, until - time.monotonic()),
            close_timeout=_POLL,
            ping_interval=None,
        )
    except TimeoutError as error:
        raise InspectorLate from error
    except (OSError, WebSocketException) as error:
        raise _no_inspector(pid, f"it does not speak as one: {error}") from error
    with connection:
        yield Inspector(connection, until)


def named_port(words: list[str]) -> int:
    """The port of the inspector that the options of Node.js name, or the usual one."""
    found = [match[1] for word in words if (match := _PORT.match(word)) is not None]
    return int(found[-1]) if found else _USUAL_PORT


def _opened(pid: int, until: float) -> str:
    """The address (ws://) of the inspector."""
    if not _catches(pid):
        raise UsageError(
            f"process {procfs.innermost_pid(pid)} opens no inspector",
            cause="it does not catch SIGUSR1, as with --disable-sigusr1",
            remedy="`relive inspect REF` shows its descriptors and memory",
        )
    options = [*procfs.command_of(pid), *procfs.environment_of(pid).get("NODE_OPTIONS", "").split()]
    usual, before = named_port(options), listening_ports(pid)
    os.kill(pid, _CAUGHT)
    if procfs.is_stopped(pid):
        os.kill(pid, signal.SIGCONT)
    while time.monotonic() < until:
        ports = listening_ports(pid)
        for port in [*sorted(ports - before), *({usual} & before)]:
            address = _address(pid, port, until)
            if address is not None:
                return address
        if not procfs.exists(pid):
            raise InspectorGone
        time.sleep(_POLL)
    raise InspectorLate


def _catches(pid: int) -> bool:
    caught = int(procfs.status_field(pid, "SigCgt") or "0", 16)
    return bool(caught >> (_CAUGHT - 1) & 1)


def _address(pid: int, port: int, until: float) -> str | None:
    """What the inspector at a port says that it is reached by; None: it is none, or none yet."""
    client = HTTPConnection("127.0.0.1", port)
    try:
        client.sock = _connected(pid, port, until)
        client.request("GET", "/json/list")
        targets = json.loads(client.getresponse().read(_LIST_MOST))
        found = urlsplit(targets[0]["webSocketDebuggerUrl"])
    except TimeoutError:
        raise InspectorLate from None
    except (OSError, HTTPException, ValueError, LookupError, TypeError, AttributeError):
        return None
    finally:
        client.close()
    return f"ws://127.0.0.1:{port}{found.path}"


def _connected(pid: int, port: int, until: float) -> socket.socket:
    left = max(_POLL, until - time.monotonic())
    try:
        return in_network_of(pid, lambda: socket.create_connection(("127.0.0.1", port), timeout=left))
    except FileNotFoundError as error:  # its namespaces: it has ended
        raise InspectorGone from error


def _no_inspector(pid: int, cause: str) -> RestoreFailed:
    return RestoreFailed(
        f"the inspector of process {procfs.innermost_pid(pid)} of the branch cannot be asked",
        cause=cause,
        remedy="`relive restore` brings the commit back to look at it by hand",
    )


@contextlib.contextmanager
def _told_as_gone() -> Iterator[None]:
    try:
        yield
    except (ConnectionClosed, ConnectionError) as error:
        raise InspectorGone from error
