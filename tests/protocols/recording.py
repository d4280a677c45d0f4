"""A TCP pipe between a real client and a real server that keeps what they say, as ``Dialogue`` values.

It stands in for the recorder of a capsule's border. It lives in a thread with an event loop of its own, so that clients of any kind
can be run in the test's thread::

    with recording(("127.0.0.1", 5432)) as pipe:
        talk_to(pipe.port)
    dialogues = pipe.dialogues  # all connections have ended, or are marked "lost"

What one end does is done to the other: a half-close, a reset (with SO_LINGER 0), a refused connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import socket
import struct
import threading
import time
from collections.abc import Iterator

from relive.recording.dialogues import Dialogue, DialoguePiece, DirectionEnd, Way

__all__ = ["Pipe", "recording"]

_MOST = 1 << 16  # [bytes] of one piece
_LINGER_NOT = struct.pack("ii", 1, 0)  # struct linger: on, 0 s: closing sends RST


class Pipe:
    """What is recorded of the connections to one server.

    Attributes:
        to: the server; port: where clients of the pipe connect, at 127.0.0.1.
        dialogues: one for each connection, in the order in which they were opened. They grow while the pipe is open; ``settle``
            waits until all that were opened have ended.
    """

    def __init__(self, to: tuple[str, int]) -> None:
        self.to = to
        self.port = 0
        self.dialogues: list[Dialogue] = []
        self._seqs = itertools.count(1)
        self._open = 0
        self._changed = threading.Condition()
        self._carrying: set[asyncio.Task[None]] = set()

    def settle(self, limit: float = 30.0) -> list[Dialogue]:
        """Wait until every connection has ended in both directions; the dialogues."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._open == 0, limit), "connections are still open"
        return self.dialogues

    async def serve(self, ready: threading.Event, ended: asyncio.Event) -> None:
        """Carry connections until ``ended``; those that are open then are broken."""
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await ended.wait()
        server.close()
        for task in list(self._carrying):
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        with self._changed:
            self._open += 1
            began = time.monotonic_ns()
            origin = writer.get_extra_info("peername")[:2]
            number = len(self.dialogues) + 1
            dialogue = Dialogue(number, self.to, origin, began, next(self._seqs))
            self.dialogues.append(dialogue)
        try:
            await self._between(dialogue, reader, writer)
        finally:
            for way in Way:
                self._end(dialogue, way, "lost")
            self._carrying.discard(task)
            with self._changed:
                self._open -= 1
                self._changed.notify_all()

    async def _between(
        self, dialogue: Dialogue, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            there, back = await asyncio.open_connection(*self.to)
        except OSError as error:
            dialogue.error = errno.errorcode.get(error.errno or 0, "ECONNREFUSED")
            _break(writer)
            return
        dialogue.connect_ns = time.monotonic_ns() - dialogue.opened_mono_ns
        up = self._pump(dialogue, Way.UP, reader, back)
        down = self._pump(dialogue, Way.DOWN, there, writer)
        try:
            await asyncio.gather(up, down)
        finally:
            for one in (writer, back):
                one.close()
                with contextlib.suppress(OSError):
                    await one.wait_closed()

    async def _pump(
        self, dialogue: Dialogue, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        place = 0
        try:
            while data := await reader.read(_MOST):
                dialogue.pieces.append(DialoguePiece(way, place, data, time.monotonic_ns(), next(self._seqs)))
                place += len(data)
                with contextlib.suppress(ConnectionError):  # that end will tell of itself
                    writer.write(data)
                    await writer.drain()
        except ConnectionError:
            self._end(dialogue, way, "reset")
            _break(writer)
            return
        self._end(dialogue, way, "closed")
        with contextlib.suppress(OSError):
            writer.write_eof()

    def _end(self, dialogue: Dialogue, way: Way, how: str) -> None:
        if way in dialogue.endings:
            return
        total = sum(len(piece.data) for piece in dialogue.of(way))
        dialogue.endings[way] = DirectionEnd(how, total, 0, time.monotonic_ns(), next(self._seqs))


def _break(writer: asyncio.StreamWriter) -> None:
    """Close with RST."""
    connection = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
    writer.transport.abort()


@contextlib.contextmanager
def recording(to: tuple[str, int]) -> Iterator[Pipe]:
    """A pipe to a server; at the end all of its connections are over, and its thread too."""
    pipe = Pipe(to)
    loop = asyncio.new_event_loop()
    ready, ended = threading.Event(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(pipe.serve(ready, ended),))
    thread.start()
    try:
        assert ready.wait(30), "the pipe does not listen"
        yield pipe
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()
