"""The network of one branch, as it is looked at during a replay: whether it stayed sealed, and what the service did not reach.

On loopback the kernel refuses a connection or a datagram to a port where nobody listens by a packet that names it. For an address
elsewhere there is no route: no packet comes to be, and only the number of such attempts is known (``Ip: OutNoRoutes``).
Connections of the commit that nobody recorded are closed by their other end when the branch begins to run: while the service does
not touch them they stay so (CLOSE_WAIT, tcp(7)), and go when it writes to them or closes them. Not seen: that it only read their
end, and datagrams of protocols that answer nobody: their senders do without. UNIX domain sockets are those of ``unix_servers``.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import closing

from relive.kernel.handshakes import (
    read_lost_datagram,
    read_refusal,
    watch_lost_datagrams,
    watch_refusals,
)
from relive.kernel.namespaces import in_network
from relive.kernel.sockdiag import SocketList
from relive.model.commit import Manifest
from relive.model.dependency import Dependency, address_of
from relive.model.outcome import Stranger
from relive.sandbox.seal import Seal, read_seal

__all__ = ["OUTSIDE", "Network"]

End = tuple[str, int]

OUTSIDE = "an address outside of the sandbox"
_READ = 128  # [bytes]
_ROOM = 1 << 20  # [bytes] of the queue: some 1,300 refusals between two looks
_MOST = 100  # addresses that are told
# Nothing is ever answered there: traps of SNMP, syslog, NetFlow, sFlow, IPFIX, Jaeger's agent, InfluxDB, statsd, GELF, collectd.
_ONE_WAY = frozenset({162, 514, 2055, 4739, 6343, 6831, 6832, 8089, 8125, 8126, 12201, 25826})


class Network:
    """Watches one branch from soon after its restore, also beyond its end: it holds the network namespace.

    Args:
        init: host pid of the branch's process 1.
        own: ports of the service itself: the sender of a replay meets a refusal there when the service has died.
        unrecorded: (own end, the other's) of connections of the commit that nobody recorded.

    Raises:
        OSError: the branch has ended already.
    """

    def __init__(
        self, init: int, own: Collection[int] = (), unrecorded: Collection[tuple[End, End]] = ()
    ) -> None:
        self._own = set(own)
        self._list: SocketList | None = None
        self._left: set[tuple[End, End]] = set()
        self._refused: Counter[str] = Counter()
        self._earlier = 0  # attempts to reach what lies outside, of earlier runs
        self._namespace = os.open(f"/proc/{init}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._sockets: list[socket.socket] = []
        self._datagrams: list[socket.socket] = []
        try:
            self._sockets = in_network(self._namespace, watch_refusals)
            self._datagrams = in_network(self._namespace, watch_lost_datagrams)
            # The proof of the seal, before the restore, made attempts of its own.
            self._before = self.seal().refused
            if unrecorded:
                self._list = in_network(self._namespace, SocketList)
                self._left = self._list.left_by_peers() & set(unrecorded)
        except BaseException:
            self.close()
            raise
        for sock in (*self._sockets, *self._datagrams):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM)

    @classmethod
    def of_branch(cls, init: int, manifest: Manifest, unrecorded: Collection[Dependency]) -> Network | None:
        """Of a branch of a commit; None where it has ended already.

        Args:
            unrecorded: servers that nobody recorded; connections of the commit to them are looked at.
        """
        destinations = {one.to for one in unrecorded}
        ends = [
            (_plain(one.local), _plain(one.peer))
            for one in manifest.connections
            if not one.inward and address_of(one.peer) in destinations
        ]
        with contextlib.suppress(OSError):
            return cls(init, [port for _, port in manifest.listening], ends)
        return None

    def begin_anew(self, ends: Callable[[], None]) -> None:
        """Forget what was seen: the branch was put back, and its service stands still.

        Args:
            ends: what else is to be done in its network.

        Raises:
            OSError: something of it cannot be.
        """

        def forget() -> None:
            with closing(SocketList()) as listed:
                listed.forget_ended()
            ends()

        in_network(self._namespace, forget)
        self.unreached()
        self._refused.clear()
        self._earlier += self.seal().refused - self._before

    def seal(self) -> Seal:
        """The seal's counters now, as if there had been no earlier run."""
        seal = in_network(self._namespace, lambda: read_seal("thread-self"))
        return seal.model_copy(update={"refused": seal.refused - self._earlier})

    def unreached(self) -> list[Stranger]:
        """What was not reached so far, the most wanted first, at most a hundred and what lies outside."""
        for sockets, read, done_without in (
            (self._sockets, read_refusal, self._own),
            (self._datagrams, read_lost_datagram, self._own | _ONE_WAY),
        ):
            for sock in sockets:
                with contextlib.suppress(BlockingIOError):
                    while True:
                        self._note(read(sock.recv(_READ)), done_without)
        outside = self.seal().refused - self._before
        found = [
            Stranger(to=destination, times=times) for destination, times in self._refused.most_common(_MOST)
        ]
        return [*found, *([Stranger(to=OUTSIDE, times=outside)] if outside > 0 else [])]

    def own(self, port: int) -> None:
        """One more port of the service itself."""
        self._own.add(port)

    def cut_off(self) -> list[str]:
        """The other ends of those unrecorded connections that the service has used or closed by now. Ask while it lives."""
        if self._list is None or not self._left:
            return []
        gone = self._left - self._list.left_by_peers()
        return sorted({address_of(peer) for _, peer in gone})

    def _note(self, destination: End | None, done_without: Collection[int]) -> None:
        if destination is not None and destination[1] not in done_without:
            self._refused[
                f"[{destination[0]}]:{destination[1]}"
                if ":" in destination[0]
                else f"{destination[0]}:{destination[1]}"
            ] += 1

    def close(self) -> None:
        """Let go. May be called again."""
        if self._list is not None:
            self._list.close()
            self._list = None
        for sock in (*self._sockets, *self._datagrams):
            sock.close()
        self._sockets, self._datagrams = [], []
        if self._namespace >= 0:
            os.close(self._namespace)
            self._namespace = -1


def _plain(end: End) -> End:
    """An IPv4 address that an IPv6 socket uses, as the packets have it."""
    return end[0].removeprefix("::ffff:") if "." in end[0] else end[0], end[1]
