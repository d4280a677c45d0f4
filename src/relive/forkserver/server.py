"""The fork server's loop: a child for each connection, and the status of each that has ended."""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from relive.forkserver.rendezvous import peer_user
from relive.forkserver.request import say

__all__ = ["ForkServer"]

_MOST_DESCRIPTORS = 1 << 20
_DUMPED = 0x80  # beside a signal's number in a wait status: it has left a core dump


@dataclass(slots=True)
class ForkServer:
    """Has one thread, reads nothing that anybody sends, and does nothing that takes time.

    Attributes:
        listener: where processes are asked for.
        is_current: its modules are still those on disk; asked before each fork.
        idle_limit: seconds without any child after which it ends.
        retire: called once, when it takes no more requests.
    """

    listener: socket.socket
    is_current: Callable[[], bool]
    idle_limit: float
    retire: Callable[[], None]
    _children: dict[int, tuple[int, socket.socket]] = field(default_factory=dict)
    _is_retired: bool = False

    def serve(self) -> socket.socket | None:
        """Returns the connection in each child, which then is alone with it; None in the server, when it is over.

        It is over when no child has lived for ``idle_limit``, or when it is no longer current and its last child has ended.
        """
        poller = select.poll()
        poller.register(self.listener, select.POLLIN)
        while self._children or not self._is_retired:
            ready = poller.poll(None if self._children else self.idle_limit * 1000)
            if not ready and not self._children:
                self._retire(poller)
            for descriptor, _ in ready:
                if descriptor in self._children:
                    poller.unregister(descriptor)
                    self._bury(descriptor)
                elif not self._is_retired:
                    connection = self._accept(poller)
                    if connection is not None:
                        return connection
        return None

    def _retire(self, poller: select.poll) -> None:
        poller.unregister(self.listener)
        self.listener.close()
        self._is_retired = True
        self.retire()

    def _accept(self, poller: select.poll) -> socket.socket | None:
        """Take a request; returns its connection in the child only."""
        try:
            connection, _ = self.listener.accept()
        except OSError as error:
            # It would wait there, and be looked at, again and again.
            if error.errno in (
                errno.EMFILE,
                errno.ENFILE,
            ):
                self._retire(poller)
            return None  # else: who asked has gone
        with connection:
            if peer_user(connection) != os.geteuid():
                return None
            if not self.is_current():
                self._retire(poller)
                return None
            kept, spare = None, -1
            try:
                # Before there is a child to look after.
                kept, spare = (
                    connection.dup(),
                    os.dup(connection.fileno()),
                )
                child = os.fork()
            except OSError:  # no more processes, or descriptors: who asks will hear of it from the kernel
                if kept is not None:
                    kept.close()
                if spare >= 0:
                    os.close(spare)
                return None
            if child == 0:
                kept.detach()
                return self._alone_with(connection)
            os.close(spare)
            handle = os.pidfd_open(child)
            self._children[handle] = (child, kept)
            poller.register(handle, select.POLLIN)
        return None

    def _alone_with(self, connection: socket.socket) -> socket.socket:
        """In a child: let go of all that is the server's."""
        kept = socket.socket(fileno=connection.detach())
        for _, other in self._children.values():
            other.detach()
        self.listener.detach()
        os.closerange(3, kept.fileno())
        os.closerange(kept.fileno() + 1, _MOST_DESCRIPTORS)
        return kept

    def _bury(self, handle: int) -> None:
        child, connection = self._children.pop(handle)
        os.close(handle)
        with connection:
            try:
                connection.setblocking(False)
                # Before it is reaped: until then who asked reads it from /proc, and needs to wait for nobody.
                say(connection, {"status": _status(child)})
            except OSError:  # nobody wants to know
                pass
        os.waitpid(child, 0)


def _status(child: int) -> int:
    """The raw wait status of a child that has ended, and stays to be waited for."""
    found = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert found is not None
    if found.si_code == os.CLD_EXITED:
        return found.si_status << 8
    return found.si_status | (_DUMPED if found.si_code == os.CLD_DUMPED else 0)
