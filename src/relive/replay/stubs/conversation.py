"""One connection of a branch's service, held by a stub: bytes in, what the protocol's session wants done, in its time.

What the service sends is fed to the session as it comes. Acts are carried out one after the other; a pause counts from what was
done before, or from the last byte that was fed if that is later. What comes unasked is not waited for any longer when the service
says something. While too much waits to be done, nothing more is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections import deque
from collections.abc import Callable

from relive.protocols.session import Act, Close, Reset, Send, Session
from relive.replay.stubs.speed import Speed
from relive.replay.stubs.transport import Transport

__all__ = ["Conversation"]

_MOST_WAITING = 4 << 20  # [bytes] of answers, above which nothing more is read
_MOST_ACTS = 10_000  # the same, for acts
_LEAST_PAUSE = 0.0005  # [s] what is shorter is not waited for
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # struct linger: on, no time


class Conversation:
    """Drives a session over a socket until either side ends it. For one event loop.

    Args:
        line: belongs to the conversation.
        on_fault: told in one sentence when the session failed on what was sent; the connection is then broken.
    """

    def __init__(
        self, line: Transport, session: Session, speed: Speed, on_fault: Callable[[str], None]
    ) -> None:
        self._line = line
        self._session = session
        self._speed = speed
        self._on_fault = on_fault
        self._acts: deque[Act] = deque()
        self._waiting = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._heard_end = False
        self._broken = False
        self._said = asyncio.Event()
        # How often it said something: now, and when the last answer was begun.
        self._heard = self._heard_by_then = 0
        self._free_at = time.monotonic()

    async def run(self, first: list[Act]) -> None:
        """Do what has to be done first, then go on to the end; the socket is closed then, also when this is cancelled."""
        self._add(first)
        hearing = asyncio.create_task(self._hear())
        try:
            await self._do_acts()
        except OSError:
            pass  # the service has gone, which is its right
        finally:
            hearing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await hearing
            self._line.close()

    async def _hear(self) -> None:
        try:
            while True:
                await self._room.wait()
                data = await self._line.receive()
                if not self._acts:
                    self._free_at = max(self._free_at, time.monotonic())
                self._heard += 1
                self._said.set()
                self._add(self._session.feed(data) if data else self._session.hang_up())
                if not data:
                    break
        except OSError:  # it was reset, or does not trust us (ssl.SSLError is one)
            with contextlib.suppress(Exception):
                self._session.hang_up()
            self._acts.clear()
            self._broken = True
        except Exception as error:  # a session must not fail; if one does, the others go on
            self._on_fault(f"the {type(self._session).__name__} failed: {type(error).__name__}: {error}")
            self._acts.clear()
            self._add([Reset()])
            self._broken = True
        self._heard_end = True
        self._said.set()
        self._changed.set()

    def _add(self, acts: list[Act]) -> None:
        self._acts.extend(acts)
        self._waiting += sum(len(act.data) for act in acts if isinstance(act, Send))
        if self._waiting > _MOST_WAITING or len(self._acts) > _MOST_ACTS:
            self._room.clear()
        if acts:
            self._changed.set()

    async def _do_acts(self) -> None:
        while True:
            while not self._acts:
                if self._heard_end:
                    await self._line.end()
                    return  # whatever the session wanted to say after it is said
                self._changed.clear()
                await self._changed.wait()
            act = self._acts[0]
            await self._pause(act)
            if not self._acts or self._acts[0] is not act:
                continue  # the connection was reset meanwhile
            self._acts.popleft()
            if isinstance(act, Reset):
                self._line.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
                return
            if isinstance(act, Close):
                await self._line.end()
                return
            await self._line.send(act.data)
            self._waiting -= len(act.data)
            if self._waiting <= _MOST_WAITING // 2 and len(self._acts) <= _MOST_ACTS // 2:
                self._room.set()

    async def _pause(self, act: Act) -> None:
        """Wait until so long after what was done before; for what comes unasked until the service says something, at most."""
        if not act.unasked:
            self._heard_by_then = self._heard
        due = self._free_at + self._speed.seconds(act.after_ns)
        while not self._broken and (left := due - time.monotonic()) > _LEAST_PAUSE:
            if act.unasked and self._heard > self._heard_by_then:
                due = time.monotonic()
                break
            self._said.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._said.wait(), left)
        self._free_at = max(due, self._free_at)
