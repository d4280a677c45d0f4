"""The agent's line to the recording proxy: closing and opening its gate, and hearing what it saw.

The proxy listens, the agent connects and may come back after a restart; ``relive.proxies.ingress.proxy`` defines the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relive.checkpoint.request_gate import RequestGate
from relive.images.image_directory import ImageDirectory
from relive.kernel.unixpath import near
from relive.model.commit import Cursor, OpenRequest
from relive.recording.reader import Recording

__all__ = ["BothGates", "ProxyGate", "ProxyLink"]

_ANSWER_WITHIN = 5.0  # [s]
_SETTLES_WITHIN = 0.02  # [s] the service stands still meanwhile


class ProxyLink:
    """A connection to the proxy. All methods but those of ``ProxyGate`` belong to the event loop's thread."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_event: Callable[[dict[str, Any]], None],
    ) -> None:
        self._writer = writer
        self._on_event = on_event
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._counter = 0
        self.is_open = True
        self._task = asyncio.create_task(self._listen(reader))

    @classmethod
    async def connect(cls, path: Path, on_event: Callable[[dict[str, Any]], None]) -> ProxyLink:
        """Connect; ``on_event`` is called for everything that is not an answer. Raises OSError when nobody listens."""
        with near(path) as name:
            reader, writer = await asyncio.open_unix_connection(name, limit=1 << 24)
        return cls(reader, writer, on_event)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError, ValueError):  # ValueError: what is said is no line of JSON
            while line := await reader.readline():
                message = json.loads(line)
                reply = self._replies.pop(message.get("id", -1), None)
                if reply is None:
                    self._on_event(message)
                elif not reply.done():
                    reply.set_result(message)
        self.is_open = False
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(ConnectionError("the proxy has ended"))
        self._on_event({"op": "proxy-gone"})

    async def ask(self, op: str, limit: float = _ANSWER_WITHIN, /, **fields: object) -> dict[str, Any]:
        """Send a command that is answered within ``limit`` seconds. Raises ConnectionError or TimeoutError."""
        self._counter += 1
        number = self._counter
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._replies[number] = reply
        self.send(op, id=number, **fields)
        try:
            return await asyncio.wait_for(reply, limit)
        finally:
            self._replies.pop(number, None)

    def send(self, op: str, **fields: object) -> None:
        """Send a command that is not answered."""
        if self.is_open:
            self._writer.write(json.dumps({"op": op, **fields}).encode() + b"\n")

    @property
    def proxy_pid(self) -> int:
        """Host pid of the proxy, by the socket's credentials."""
        sock: socket.socket = self._writer.get_extra_info("socket")
        pid, _uid, _gid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return int(pid)

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


class ProxyGate:
    """The gate as ``checkpoint.dump`` wants it; its methods are called from another thread than the loop's."""

    def __init__(self, link: ProxyLink | None, loop: asyncio.AbstractEventLoop, recording: Path) -> None:
        self._link = link
        self._loop = loop
        self._recording = Recording(recording)

    def close(self) -> Cursor | None:
        """Let no byte through. A proxy that does not answer is no reason not to commit: then nothing is said of the recording."""
        answer = self._ask("close", _ANSWER_WITHIN)
        if answer is None or answer.get("op") != "closed":
            return None
        requests = [
            OpenRequest(request=one["request"], local_port=one["local_port"])
            for one in answer["connections"]
            if one.get("request") is not None and one.get("local_port")
        ]
        return Cursor(sequence=answer["cursor"], open_requests=requests)

    def settle(self, cursor: Cursor, *, at_once: bool = False) -> Cursor:
        """The proxy has read by now what the service had sent before it was stopped: see how far its recording is.

        ``at_once``: it gets the time for that first. Between two answers of its event loop it has read what there was.
        """
        if at_once and cursor.open_requests:
            for _ in range(2):
                self._ask("status", _SETTLES_WITHIN)
        head = self._recording.cursor()
        return cursor.model_copy(update={"settled": head.seq if head is not None else cursor.sequence})

    def open(
        self,
        capture: str | None,
        cursor: Cursor | None,
        images: ImageDirectory | None,  # noqa: ARG002
    ) -> Cursor | None:
        """Let bytes through again."""
        self._ask("open", _ANSWER_WITHIN, commit=capture)
        return cursor

    def _ask(self, op: str, limit: float, **fields: object) -> dict[str, Any] | None:
        if self._link is None or not self._link.is_open:
            return None
        future = asyncio.run_coroutine_threadsafe(self._link.ask(op, limit, **fields), self._loop)
        try:
            # Where the loop is busy the command is sent later, and not waited for.
            return future.result(limit)
        except (ConnectionError, TimeoutError):
            return None


class BothGates:
    """Both gates of a service: for what clients ask of it, and for what others answer it."""

    def __init__(self, inward: RequestGate, outward: ProxyGate) -> None:
        self._inward = inward
        self._outward = outward

    def close(self) -> Cursor | None:
        """Let no byte through. Where the outward recording stands is told by the event that ``open`` leaves in it."""
        self._outward.close()
        return self._inward.close()

    def settle(self, cursor: Cursor, *, at_once: bool = False) -> Cursor:
        """See ``ProxyGate``."""
        return self._inward.settle(cursor, at_once=at_once)

    def open(
        self,
        capture: str | None,
        cursor: Cursor | None,
        images: ImageDirectory | None,
    ) -> Cursor | None:
        """Let bytes through again, first those of others: where the requests stand may take a moment to be known."""
        self._outward.open(capture, None, images)
        return self._inward.open(capture, cursor, images)
