"""The port at which clients reach a watched service through the proxy (``--listen``), which stays open whoever is killed.

``relive-front`` (``native/front.c``) keeps it, as process 1 does in a capsule: the proxy gets the listener from there, and while
there is no proxy connections are carried to the service. It outlives the agent. The agent has the listener as well, so that it
can start another ``relive-front`` without anybody being refused meanwhile; an agent that finds none has it from the proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
from typing import NamedTuple

import structlog

from relive.agent.capsule.exit_wait import wait_for_end
from relive.agent.capsule.listener import open_front
from relive.checkpoint.criu import CriuTools
from relive.config import Settings
from relive.errors import CapsuleStartFailed
from relive.kernel import procfs
from relive.kernel.pidfds import copy_descriptor, open_process
from relive.kernel.unixpath import near
from relive.model.capsule import CapsuleSpec
from relive.model.life_paths import LifePaths
from relive.proxies.listeners import receive_listener

__all__ = ["PublicPort"]

_CREDENTIALS = struct.Struct("3i")


class _Keeper(NamedTuple):
    """The process that keeps the port; with its start, so that no later one of that number is waited for, or killed."""

    pid: int
    start_ticks: int


class PublicPort:
    """Belongs to the agent's event loop.

    Args:
        spec: of the service, with the address of the port and that of the service behind it.
    """

    def __init__(self, settings: Settings, spec: CapsuleSpec, paths: LifePaths) -> None:
        self._program = CriuTools(settings.tools_path).front
        self._spec, self._paths = spec, paths
        self._listener: socket.socket | None = None
        self._keeper: _Keeper | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Take over the one that an earlier agent has left, or begin anew. Once one has ended it may be called again.

        Raises:
            CapsuleStartFailed: somebody else has the port.
            UsageError: the service's host is not known.
            OSError: the program cannot be started.
        """
        if self._child is not None and self._child.poll() is not None:
            self._child = None
        self._keeper = self._found() or self._begun()

    async def keep_open(self) -> None:
        """Have it kept until this is cancelled; raises as ``open`` does, and may be called again then."""
        while True:
            if self._keeper is None:
                await asyncio.to_thread(self.open)
            assert self._keeper is not None
            await wait_for_end(*self._keeper)
            structlog.get_logger().warning("who keeps the public port has ended; starting another")
            self._reap()

    def close(self) -> None:
        """The watch ends: nobody keeps the port any more but the proxy, which ends what is under way."""
        handle = open_process(*self._keeper) if self._keeper is not None else None
        if handle is not None:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)
        self._reap()
        if self._listener is not None:
            self._listener.close()
        self._paths.front_socket.unlink(missing_ok=True)

    def _reap(self) -> None:
        if self._child is not None:
            self._child.wait()
        self._keeper = self._child = None

    def _listener_of_proxy(self) -> socket.socket | None:
        """The one that a proxy has which outlived an earlier agent and its ``relive-front``; None where there is no proxy."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as line:
            with near(self._paths.proxy_socket) as name:
                line.connect(name)
            handle = open_process(_peer(line))
            if handle is not None:
                try:
                    return _copied_listener(_peer(line), handle, self._spec.listen)
                finally:
                    os.close(handle)
        return None

    def _found(self) -> _Keeper | None:
        """The one that is there."""
        try:
            kept = receive_listener(self._paths.front_socket)
        except CapsuleStartFailed:
            return None
        keeper = _known(kept.keeper, kept.line)
        kept.line.close()  # else nothing would be carried to the service while there is no proxy
        if self._listener is not None:
            self._listener.close()
        self._listener = kept.listener
        return keeper

    def _begun(self) -> _Keeper:
        if self._listener is None:
            self._listener = self._listener_of_proxy()
        front = open_front(self._spec, self._paths, self._listener)
        assert front is not None  # it has an address
        self._listener = front.listener
        descriptors = front.listener.fileno(), front.control.fileno()
        address, port = front.upstream
        try:
            with self._paths.agent_log.open("ab") as log:
                self._child = subprocess.Popen(
                    [self._program, self._paths.directory, *map(str, descriptors), address, str(port)],
                    pass_fds=descriptors,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        finally:
            front.control.close()
        stat = procfs.read_stat(self._child.pid)
        assert stat is not None  # it is this process's to reap
        return _Keeper(self._child.pid, stat.start_ticks)


def _known(pid: int, line: socket.socket) -> _Keeper | None:
    """The process of that number, which has said so on this line; None where it has ended meanwhile."""
    stat = procfs.read_stat(pid)
    poller = select.poll()
    poller.register(line, select.POLLRDHUP)
    # Its end of the line is still open: so it lived when its start was read, and that was no other's.
    return _Keeper(pid, stat.start_ticks) if stat is not None and not poller.poll(0) else None


def _peer(line: socket.socket) -> int:
    """Host pid of who listened last at the other end of a unix socket."""
    credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[0])


def _copied_listener(pid: int, handle: int, listen: tuple[str, int] | None) -> socket.socket | None:
    """A process's socket that listens at an address, as a descriptor of our own."""
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, or no socket
            if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                continue
            sock = socket.socket(fileno=copy_descriptor(handle, int(name)))
            is_listener = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if is_listener and sock.family != socket.AF_UNIX and sock.getsockname()[:2] == listen:
                return sock
            sock.close()
    return None
