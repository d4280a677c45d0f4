"""The network of one branch, as it is looked at during a replay: whether it stayed sealed, and what the service did not reach.

On loopback the kernel refuses a connection to a port where nobody listens by a packet that names it. For an address elsewhere
there is no route: no packet comes to be, and only the number of such attempts is known (``Ip: OutNoRoutes``). Not seen: UNIX
domain sockets that nobody serves, and datagrams on loopback, which get no answer.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections import Counter
from collections.abc import Collection

from relive.kernel.handshakes import read_refusal, watch_refusals
from relive.kernel.namespaces import in_network
from relive.model.outcome import Stranger
from relive.sandbox.seal import Seal, read_seal

__all__ = ["OUTSIDE", "Network"]

OUTSIDE = "an address outside of the sandbox"
_READ = 128  # [bytes]
_ROOM = 1 << 20  # [bytes] of the queue: some 1,300 refusals between two looks
_MOST = 100  # addresses that are told


class Network:
    """Watches one branch from soon after its restore, also beyond its end: it holds the network namespace.

    Args:
        init: host pid of the branch's process 1.
        own: ports of the service itself: the sender of a replay meets a refusal there when the service has died.

    Raises:
        OSError: the branch has ended already.
    """

    def __init__(self, init: int, own: Collection[int] = ()) -> None:
        self._own = frozenset(own)
        self._refused: Counter[str] = Counter()
        self._namespace = os.open(f"/proc/{init}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._sockets: list[socket.socket] = []
        try:
            self._sockets = in_network(self._namespace, watch_refusals)
            # The proof of the seal, before the restore, made attempts of its own.
            self._before = self.seal().refused
        except BaseException:
            self.close()
            raise
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM)

    def seal(self) -> Seal:
        """The seal's counters now."""
        return in_network(self._namespace, lambda: read_seal("thread-self"))

    def unreached(self) -> list[Stranger]:
        """What was not reached so far, the most wanted first, at most a hundred and what lies outside."""
        for sock in self._sockets:
            with contextlib.suppress(BlockingIOError):
                while True:
                    self._note(sock.recv(_READ))
        outside = self.seal().refused - self._before
        found = [Stranger(to=goal, times=times) for goal, times in self._refused.most_common(_MOST)]
        return [*found, *([Stranger(to=OUTSIDE, times=outside)] if outside > 0 else [])]

    def _note(self, packet: bytes) -> None:
        goal = read_refusal(packet)
        if goal is not None and goal[1] not in self._own:
            self._refused[f"[{goal[0]}]:{goal[1]}" if ":" in goal[0] else f"{goal[0]}:{goal[1]}"] += 1

    def close(self) -> None:
        """Let go. May be called again."""
        for sock in self._sockets:
            sock.close()
        self._sockets = []
        if self._namespace >= 0:
            os.close(self._namespace)
            self._namespace = -1
