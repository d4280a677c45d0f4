"""The control socket: JSON lines between the proxy and the agent. The messages are specified in ``proxy.py``."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from relive.proxies.gate import Gate

__all__ = ["ControlHandler", "ControlHub", "ControlLink", "error_reply", "refuse_opening"]

MAX_LINKS = 4
_MAX_UNHEARD = 256
_MAX_LINE_BYTES = 16 * 1024 * 1024  # a commit tells of each connection of the service
_MAX_UNREAD_BYTES = 4 * 1024 * 1024
_PEER_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid


class ControlHandler(Protocol):
    """Who acts on an agent's messages."""

    def control_message(self, link: ControlLink, op: str, message: dict[str, Any]) -> dict[str, Any] | None:
        """Act on a message and return the reply (without ``id``), or None for none."""

    def control_lost(self, link: ControlLink, *, was_last: bool) -> None:
        """An agent's connection ended."""


class ControlHub:
    """All connections of agents."""

    def __init__(self, handler: ControlHandler) -> None:
        self.handler = handler
        self.links: list[ControlLink] = []
        self._unheard: deque[bytes] = deque(maxlen=_MAX_UNHEARD)

    def link(self) -> ControlLink:
        """A protocol for a new connection (for ``loop.create_unix_server``)."""
        return ControlLink(self)

    def broadcast(self, message: dict[str, Any]) -> None:
        """Send a message to every agent that is there; where nobody is, the next that comes hears it (of the last 256)."""
        line = _line(message)
        if not self.links:
            self._unheard.append(line)
        for link in list(self.links):
            link.send_line(line)

    def add(self, link: ControlLink) -> None:
        """An agent is there: tell it what none has heard."""
        self.links.append(link)
        while self._unheard:
            link.send_line(self._unheard.popleft())


class ControlLink(asyncio.Protocol):
    """One connection of an agent."""

    def __init__(self, hub: ControlHub) -> None:
        self._hub = hub
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Refuse strangers, and more connections than anyone needs."""
        link = cast(asyncio.Transport, transport)  # uvloop's is none by its bases
        sock = link.get_extra_info("socket")
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
        uid = _PEER_CREDENTIALS.unpack(raw)[1]
        if uid not in (0, os.geteuid()) or len(self._hub.links) >= MAX_LINKS:
            link.write(_line(error_reply("refused", f"at most {MAX_LINKS} agents of root or the same user")))
            link.close()
            return
        self._transport = link
        self._hub.add(self)

    def data_received(self, data: bytes) -> None:
        """Act on every whole line."""
        if self._transport is None:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._handle_line(line)
        if len(self._rest) > _MAX_LINE_BYTES:
            self.send_line(_line(error_reply("bad-message", "a line is too long")))
            self._transport.close()

    def connection_lost(self, _exc: Exception | None) -> None:
        """Let the proxy open what this agent had closed."""
        if self in self._hub.links:
            self._hub.links.remove(self)
            self._transport = None
            self._hub.handler.control_lost(self, was_last=not self._hub.links)

    def reply(self, message: dict[str, Any], reply: dict[str, Any]) -> None:
        """Answer a message later than at once."""
        if "id" in message:
            reply["id"] = message["id"]
        self.send_line(_line(reply))

    def send_line(self, line: bytes) -> None:
        """Send one line; an agent that reads none of it is dropped rather than waited for."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
            self._transport.abort()
            return
        self._transport.write(line)

    def _handle_line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = json.loads(line)
            op = message["op"]
            if not isinstance(op, str):
                raise TypeError("op is no text")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            self.send_line(_line(error_reply("bad-message", f"not a message: {error!r:.100}")))
            return
        reply = self._hub.handler.control_message(self, op, message)
        if reply is not None:
            self.reply(message, reply)


def refuse_opening(gate: Gate[Any], link: ControlLink, commit: object) -> dict[str, Any] | None:
    """The error that answers ``open``; None where the gate may be opened by this agent."""
    if not (commit is None or isinstance(commit, str)):
        return error_reply("bad-message", "commit is neither text nor null")
    if not gate.is_closed:
        return error_reply("gate-not-closed", "the gate is open; it may have opened by itself")
    if gate.owner is not link:
        return error_reply("not-yours", "another connection closed the gate")
    return None


def error_reply(code: str, text: str) -> dict[str, Any]:
    """An error in the one shape of all of Relive's JSON."""
    return {"op": "error", "error": {"code": code, "message": text, "cause": None, "remedy": None}}


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
