"""Who of a server's workers takes a connection: in a replay the one that took it in the recording.

Workers accept at one socket, and the kernel chooses who gets a connection. Each has memory of its own, so with another choice a
request meets another state: a value that one worker had cached is not in the others, and what fails in one passes there.

While a connection is made, all others that hold the socket stand still (SIGSTOP), and go on once that worker has accepted it. A
worker that cannot, being busy, is waited for a moment; then whoever can may take it, as the kernel would have it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from relive.kernel import procfs
from relive.kernel.namespaces import in_network_of
from relive.kernel.sockdiag import SocketList
from relive.recording.events import Event, EventKind
from relive.recording.exchanges import Exchange
from relive.replay.inprocess_events import request_inside

__all__ = ["WorkerChoice", "elsewhere_words", "process_numbered", "sockets_of", "workers_of"]

_STANDS_LIMIT = 0.1  # [s] until a process that was sent SIGSTOP stands
_ACCEPT_LIMIT = 0.5  # [s] that a worker may take to accept a connection while the others stand
_LOOK = 0.0005  # [s]


def workers_of(events: Iterable[Event], exchanges: Iterable[Exchange]) -> dict[int, int]:
    """By the numbers of requests, which process had each, as the service calls it.

    A request of which the recorder inside the service did not tell is left out.
    """
    begun = [one for one in events if one.kind is EventKind.HANDLING_STARTED]
    of_target: dict[object, list[Event]] = {}
    for one in begun:
        of_target.setdefault(one.fields.get("target"), []).append(one)
    found = {}
    for exchange in exchanges:
        inside = request_inside(of_target.get(exchange.target, []), exchange)
        if inside is not None:
            found[exchange.number] = inside[0]
    return found


def elsewhere_words(worker: int) -> str:
    """Of a worker among ``WorkerChoice.elsewhere``, in words."""
    return f"worker {worker} was busy when a request of its was sent, which another process may have taken, with other values"


class _Beside(NamedTuple):
    """A process that may be stopped: ``handle`` (pidfd) is that process for good, its number only while it lives."""

    pid: int
    handle: int


@dataclass(slots=True)
class WorkerChoice:
    """Makes connections to the workers of one branch. For one event loop.

    Args:
        root: host pid of the branch's first process of the service; init: of its process 1.
        address: where the workers accept.

    Attributes:
        elsewhere: numbers in the branch of workers that did not accept in time, so that another may have a connection of theirs.
    """

    root: int
    init: int
    address: tuple[str, int]
    elsewhere: set[int] = field(default_factory=set)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def connected(
        self, worker: int | None, connect: Callable[[], Awaitable[socket.socket]]
    ) -> socket.socket:
        """A connection that the process of that number in the branch has accepted, if it can; raises what ``connect`` does."""
        if worker is None:
            return await connect()
        async with self._one:
            with contextlib.ExitStack() as stack:
                beside = self._beside(worker, stack)
                if not beside:
                    return await connect()
                held: list[_Beside] = []
                try:
                    await _hold(beside, held)
                    connection = await connect()
                    if not await self._is_accepted(connection):
                        self.elsewhere.add(worker)
                finally:
                    _let_go(held)
        return connection

    def _beside(self, worker: int, stack: contextlib.ExitStack) -> list[_Beside]:
        """Processes other than the worker that hold the socket at which it accepts; none where it accepts at one of its own.

        ``stack`` closes their handles.
        """
        pids = procfs.tree_of(self.root)
        chosen = process_numbered(pids, worker) if len(pids) > 1 else None
        if chosen is None:
            return []
        with contextlib.closing(in_network_of(self.init, SocketList)) as sockets:
            at_port = {str(inode) for inode in sockets.inodes_listening(self.address[1])}
        shared = sockets_of(chosen) & at_port
        found = []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                stack.callback(os.close, handle)
                # Only now: the number may have become another process's since the tree was listed, even one outside of the branch.
                if pid != chosen and sockets_of(pid) & shared:
                    found.append(_Beside(pid, handle))
        return found

    async def _is_accepted(self, connection: socket.socket) -> bool:
        """Wait until somebody has accepted it, for a moment at most."""
        until = time.monotonic() + _ACCEPT_LIMIT
        ends = connection.getsockname()[:2], connection.getpeername()[:2]
        with contextlib.closing(in_network_of(self.init, SocketList)) as sockets:
            while not sockets.is_accepted(*ends):
                if time.monotonic() >= until:
                    return False
                await asyncio.sleep(_LOOK)
        return True


async def _hold(beside: Iterable[_Beside], held: list[_Beside]) -> None:
    """Stop processes, and wait until they stand; ``held`` gets those that did not stand already, also where this is cancelled."""
    for one in beside:
        if not procfs.is_stopped(one.pid):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(one.handle, signal.SIGSTOP)
                held.append(one)
    until = time.monotonic() + _STANDS_LIMIT
    while not all(procfs.is_stopped(one.pid) for one in held) and time.monotonic() < until:
        await asyncio.sleep(_LOOK)


def _let_go(held: Iterable[_Beside]) -> None:
    for one in held:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(one.handle, signal.SIGCONT)


def process_numbered(pids: Iterable[int], number: int) -> int | None:
    """Which of these host pids the branch calls ``number``."""
    return next((pid for pid in pids if procfs.innermost_pid(pid) == number), None)


def sockets_of(pid: int) -> set[str]:
    """Inodes of the sockets that a process has open; empty where it is gone."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith("socket:["):
                    found.add(target[8:-1])
    return found
