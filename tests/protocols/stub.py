"""A server that answers with a protocol's sessions: the owner of the sockets, as small as it can be."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

from relive.protocols.pool import Pool
from relive.protocols.session import Act, Protocol, Reset, Send, Session

__all__ = ["Stub", "stub"]


class Stub:
    """A server for new connections.

    Attributes:
        port: at 127.0.0.1.
        timed: whether pauses are kept.
        troubles: what a session raised.
    """

    def __init__(self, protocol: Protocol, pool: Pool, to: tuple[str, int], timed: bool) -> None:
        self.port = 0
        self.timed = timed
        self.troubles: list[BaseException] = []
        self._protocol, self._pool, self._to = protocol, pool, to
        self._number = 0
        self._open: set[asyncio.Task[None]] = set()

    async def serve(self, ready: threading.Event, ended: asyncio.Event) -> None:
        """Until ``ended``."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await ended.wait()
        server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self._number += 1
        try:
            session = self._protocol.open(self._pool, self._number, to=self._to)
            await self._do(session.begin(), writer)
            await self._talk(session, reader, writer)
        except ConnectionError:
            pass
        except Exception as trouble:
            self.troubles.append(trouble)
        finally:
            writer.close()
            self._open.discard(task)

    async def _talk(
        self, session: Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(1 << 16):
            await self._do(session.feed(data), writer)
        await self._do(session.hang_up(), writer)

    async def _do(self, acts: list[Act], writer: asyncio.StreamWriter) -> None:
        for act in acts:
            if self.timed and act.after_ns:
                await asyncio.sleep(act.after_ns / 1e9)
            if isinstance(act, Send):
                writer.write(act.data)
                await writer.drain()
                continue
            if isinstance(act, Reset):
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.close()


@contextlib.contextmanager
def stub(protocol: Protocol, pool: Pool, to: tuple[str, int], *, timed: bool = False) -> Iterator[Stub]:
    """A stub that listens; what one of its sessions raised is raised at the end."""
    server = Stub(protocol, pool, to, timed)
    loop = asyncio.new_event_loop()
    ready, ended = threading.Event(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(server.serve(ready, ended),))
    thread.start()
    try:
        assert ready.wait(30), "the stub does not listen"
        yield server
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()
    if server.troubles:
        raise server.troubles[0]
