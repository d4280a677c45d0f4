"""What the border of a capsule records, without one: a TCP pipe between a service and a server, and its recording.

Its connections' sequence numbers are read from its own ends with TCP_REPAIR.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relive.record.events import EventKind
from relive.record.log import RecordingWriter

_REPAIR, _QUEUE, _SEQUENCE = 19, 20, 21
_RECEIVE, _SEND = 1, 2
_MOST = 1 << 16


@dataclass(frozen=True)
class Noted:
    kind: EventKind
    connection: int
    data: bytes
    fields: dict[str, Any]
    at: tuple[int, int] = field(default_factory=lambda: (time.monotonic_ns(), time.time_ns()))


class Border:
    """Carries connections to one server.

    Attributes:
        port: where the service finds the server.
        events: what was seen so far.
    """

    def __init__(self, server: int) -> None:
        self.events: list[Noted] = []
        self.port = 0
        self._server = server
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._ready, self._ended = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._thread.start()
        assert self._ready.wait(30)

    @staticmethod
    def write_all(borders: list[Border], directory: Path) -> None:
        """Lay down one recording of all that several have seen so far."""
        writer = RecordingWriter(directory)
        seen = [(one, place) for place, border in enumerate(borders) for one in list(border.events)]
        for one, place in sorted(seen, key=lambda pair: pair[0].at):
            number = 1 + (one.connection - 1) * len(borders) + place
            writer.append(one.kind, number, 0, one.data, one.fields, one.at)
        writer.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        accepting = asyncio.create_task(self._accept(listener))
        self._ready.set()
        await self._ended.wait()
        for task in [accepting, *self._tasks]:
            task.cancel()
        await asyncio.gather(accepting, *self._tasks, return_exceptions=True)
        listener.close()

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            sock, _ = await self._loop.sock_accept(listener)
            task = asyncio.create_task(self._carry(sock))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, sock: socket.socket) -> None:
        number = next(self._numbers)
        up_base, down_base = _bases(sock)
        to, origin = sock.getsockname()[:2], sock.getpeername()[:2]
        opened = {"to": to, "origin": origin, "up_base": up_base, "down_base": down_base, "connect_ns": 1000}
        self.events.append(Noted(EventKind.DIALOGUE_OPENED, number, b"", opened))
        with socket.socket() as there, sock:
            there.setblocking(False)
            await self._loop.sock_connect(there, ("127.0.0.1", self._server))
            await asyncio.gather(
                self._pump(number, "up", sock, there), self._pump(number, "down", there, sock)
            )

    async def _pump(self, number: int, way: str, one: socket.socket, other: socket.socket) -> None:
        kind = EventKind.DIALOGUE_UP if way == "up" else EventKind.DIALOGUE_DOWN
        place, how = 0, "closed"
        try:
            while data := await self._loop.sock_recv(one, _MOST):
                self.events.append(Noted(kind, number, data, {"at": place}))
                place += len(data)
                await self._loop.sock_sendall(other, data)
        except ConnectionError:
            how = "reset"
        ended = {"way": way, "how": how, "bytes": place, "cut": 0}
        self.events.append(Noted(EventKind.DIALOGUE_ENDED, number, b"", ended))
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)


def _bases(sock: socket.socket) -> tuple[int, int]:
    """Sequence numbers of the first bytes of (what the peer sends, what this end sends)."""
    sock.setsockopt(socket.IPPROTO_TCP, _REPAIR, 1)
    found = []
    for queue in (_RECEIVE, _SEND):
        sock.setsockopt(socket.IPPROTO_TCP, _QUEUE, queue)
        found.append(sock.getsockopt(socket.IPPROTO_TCP, _SEQUENCE) & 0xFFFFFFFF)
    sock.setsockopt(socket.IPPROTO_TCP, _REPAIR, struct.pack("i", -1))
    unread = len(_peeked(sock))
    return (found[0] - unread) & 0xFFFFFFFF, found[1]


def _peeked(sock: socket.socket) -> bytes:
    try:
        return sock.recv(_MOST, socket.MSG_PEEK)
    except BlockingIOError:
        return b""


@contextlib.contextmanager
def border(server: int) -> Iterator[Border]:
    """A border to the server at a port of this host."""
    made = Border(server)
    try:
        yield made
    finally:
        made.close()
