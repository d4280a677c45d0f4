"""A server whose connections are sessions of a protocol: it owns the sockets and does what the sessions want done.

It stands in for the stubs of a branch. It lives in a thread with an event loop of its own, at 127.0.0.1::

    with answering(Redis(), pool, to=("127.0.0.1", 6379), port=pipe.port) as port:
        talk_to(port)

Pauses are kept, or divided by ``speed``; those before what comes unasked end when the service says something.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Iterator

from relive.protocols.pool import Pool
from relive.protocols.session import Act, Close, Protocol, Reset, Send, Session

__all__ = ["answering", "bytes_of"]

_LINGER_NOT = struct.pack("ii", 1, 0)  # struct linger: on, 0 s: closing sends RST


def bytes_of(acts: list[Act]) -> bytes:
    """What acts send."""
    return b"".join(act.data for act in acts if isinstance(act, Send))


@contextlib.contextmanager
def answering(
    protocol: Protocol, pool: Pool, *, to: tuple[str, int], port: int = 0, speed: float = 1.0
) -> Iterator[int]:
    """The port where it listens; at the end all connections are over."""
    loop = asyncio.new_event_loop()
    server = _Server(protocol, pool, to, speed)
    ready, ended = threading.Event(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(server.serve(port, ready, ended),))
    thread.start()
    try:
        assert ready.wait(30), "the stub does not listen"
        yield server.port
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


class _Server:
    def __init__(self, protocol: Protocol, pool: Pool, to: tuple[str, int], speed: float) -> None:
        self._protocol, self._pool, self._to, self._speed = protocol, pool, to, speed
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def serve(self, port: int, ready: threading.Event, ended: asyncio.Event) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await ended.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        session = self._protocol.open(self._pool, next(self._numbers), to=self._to)
        acts: asyncio.Queue[Act | None] = asyncio.Queue()
        fed = asyncio.Event()
        _put(acts, session.begin())
        hearing = asyncio.create_task(self._hear(reader, session, acts, fed))
        try:
            await self._do(acts, writer, fed)
        finally:
            hearing.cancel()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def _hear(
        self,
        reader: asyncio.StreamReader,
        session: Session,
        acts: asyncio.Queue[Act | None],
        fed: asyncio.Event,
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                _put(acts, session.feed(data))
                fed.set()
        _put(acts, session.hang_up())
        acts.put_nowait(None)

    async def _do(
        self, acts: asyncio.Queue[Act | None], writer: asyncio.StreamWriter, fed: asyncio.Event
    ) -> None:
        while (act := await acts.get()) is not None:
            pause = act.after_ns / 1e9 / self._speed
            if act.unasked:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(fed.wait(), pause)
            else:
                fed.clear()
                await asyncio.sleep(pause)
            if isinstance(act, Send):
                writer.write(act.data)
                with contextlib.suppress(ConnectionError):
                    await writer.drain()
            elif isinstance(act, Reset):
                connection = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
                writer.transport.abort()
                return
            else:
                assert isinstance(act, Close)
                return


def _put(queue: asyncio.Queue[Act | None], acts: list[Act]) -> None:
    for act in acts:
        queue.put_nowait(act)
