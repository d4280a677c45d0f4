"""Questions of the service to name servers: each is sent from a socket of the recorder, and its answer put in as the server's.

Other datagrams do not come here.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import time
from dataclasses import dataclass, field

from relive.kernel.nfqueue import WaitingPacket
from relive.kernel.packets import Packet, datagram, unreachable_port
from relive.proxies.egress.entrance import Entrance
from relive.proxies.marks import Mark
from relive.recording.events import EventKind
from relive.recording.writer import RecordingWriter

__all__ = ["Datagrams"]

_IDLE = 60.0  # [s] without a datagram after which a socket of the host is closed
_ANSWERED_WITHIN = 10.0  # [s] for a question
_LARGEST = 65535
_IP_RECVERR, _IPV6_RECVERR = 11, 25
_MOST_PORTS = 4096
_MOST_HELD = 4096  # datagrams while the gate is closed; what comes on top is lost, as on a full line


@dataclass(slots=True)
class _Port:
    """What stands for one socket of the service on the host.

    Attributes:
        asked: questions by (name server, number of the question): when (monotonic, wall [ns]), and the question.
        sent: the last packet to each destination, which an error quotes.
    """

    sock: socket.socket
    origin: tuple[str, int]
    used: float
    asked: dict[tuple[tuple[str, int], bytes], tuple[tuple[int, int], bytes]] = field(default_factory=dict)
    sent: dict[tuple[str, int], bytes] = field(default_factory=dict)


class Datagrams:
    """Lives in the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, entrance: Entrance, writer: RecordingWriter) -> None:
        self._loop = loop
        self._entrance = entrance
        self._writer = writer
        self._ports: dict[tuple[str, int], _Port] = {}
        self._raw: dict[int, socket.socket] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._frozen = False
        self._held: list[tuple[tuple[str, int], bytes]] = []

    # The gate: see ``proxies.gate.GateKeeper``

    def freeze(self) -> None:
        """From now on nothing goes to the service."""
        self._frozen = True

    def thaw(self) -> None:
        """Go on."""
        self._frozen = False
        held, self._held = self._held, []
        for destination, packet in held:
            self._put_in(destination, packet)

    def shut(self) -> None:
        """See ``close``."""

    def leaves(self, waiting: WaitingPacket, packet: Packet) -> None:
        """A datagram waits in the queue."""
        if self._entrance.takes_datagrams(*packet.destination):
            self._entrance.let_pass(waiting.number, Mark.DIRECT)
            return
        self._entrance.queue.drop(waiting.number)
        port = self._ports.get(packet.origin) or self._open(packet)
        if port is None:
            return
        port.used = self._loop.time()
        port.sent[packet.destination] = waiting.data[:1280]
        when = (time.monotonic_ns(), time.time_ns())
        port.asked[packet.destination, packet.data[:2]] = (when, packet.data)
        try:
            port.sock.sendto(packet.data, packet.destination)
        except (BlockingIOError, InterruptedError):
            pass  # a full line drops datagrams
        except OSError as error:
            self._refused(port, packet.destination, error)
            self._errors(port)

    def close(self) -> None:
        """Close all sockets."""
        if self._sweep is not None:
            self._sweep.cancel()
        for port in list(self._ports.values()):
            self._close(port)
        for raw in self._raw.values():
            raw.close()

    def _open(self, packet: Packet) -> _Port | None:
        if len(self._ports) >= _MOST_PORTS:
            self._close(min(self._ports.values(), key=lambda one: one.used))
        try:
            sock = socket.socket(
                packet.family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
            )
        except OSError:
            return None
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        if packet.family == socket.AF_INET:
            sock.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
        else:
            sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)
        with contextlib.suppress(OSError):
            sock.bind((packet.origin[0], 0))
        port = self._ports[packet.origin] = _Port(sock, packet.origin, self._loop.time())
        self._loop.add_reader(sock.fileno(), self._arrives, port)
        if self._sweep is None:
            self._sweep = self._loop.call_later(_ANSWERED_WITHIN, self._sweep_up)
        return port

    def _arrives(self, port: _Port) -> None:
        while True:
            try:
                data, source = port.sock.recvfrom(_LARGEST)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._errors(port)
                return
            origin = (source[0], source[1])
            port.used = self._loop.time()
            self._note_answer(port, origin, data)
            self._put_in(port.origin, datagram(origin, port.origin, data))

    def _note_answer(self, port: _Port, origin: tuple[str, int], data: bytes) -> None:
        asked = port.asked.pop((origin, data[:2]), None)
        if asked is not None:
            (began, wall), question = asked
            fields = {"to": origin, "question": question, "ns": time.monotonic_ns() - began}
            self._writer.append(EventKind.NAME_LOOKUP, data=data, fields=fields, at=(began, wall))
            self._writer.flush()

    def _errors(self, port: _Port) -> None:
        """Take what the host's kernel heard of datagrams that did not arrive."""
        while True:
            try:
                _, _, _, destination = port.sock.recvmsg(0, 512, socket.MSG_ERRQUEUE)
            except OSError:
                return
            if destination:
                self._refused(
                    port, (destination[0], destination[1]), ConnectionRefusedError(errno.ECONNREFUSED, "")
                )

    def _refused(self, port: _Port, destination: tuple[str, int], error: OSError) -> None:
        packet = port.sent.pop(destination, None)
        if packet is not None and error.errno == errno.ECONNREFUSED:
            self._put_in(port.origin, unreachable_port(packet))

    def _put_in(self, destination: tuple[str, int], packet: bytes) -> None:
        if self._frozen:
            if len(self._held) < _MOST_HELD:
                self._held.append((destination, packet))
            return
        family = socket.AF_INET6 if ":" in destination[0] else socket.AF_INET
        raw = self._raw.get(family)
        if raw is None:
            raw = self._raw[family] = self._entrance.raw(family)
        with contextlib.suppress(OSError):
            raw.sendto(packet, (destination[0], 0))

    def _sweep_up(self) -> None:
        self._sweep = None
        now, now_ns = self._loop.time(), time.monotonic_ns()
        for port in list(self._ports.values()):
            for key, (when, question) in list(port.asked.items()):
                if now_ns - when[0] > _ANSWERED_WITHIN * 1e9:
                    del port.asked[key]
                    self._unanswered(key[0], when, question)
            if now - port.used > _IDLE:
                self._close(port)
        if self._ports:
            self._sweep = self._loop.call_later(_ANSWERED_WITHIN, self._sweep_up)

    def _unanswered(self, destination: tuple[str, int], when: tuple[int, int], question: bytes) -> None:
        fields = {"to": destination, "question": question, "ns": time.monotonic_ns() - when[0]}
        self._writer.append(EventKind.NAME_LOOKUP, fields=fields, at=when)
        self._writer.flush()

    def _close(self, port: _Port) -> None:
        self._loop.remove_reader(port.sock.fileno())
        port.sock.close()
        del self._ports[port.origin]
        for (destination, _), (when, question) in port.asked.items():
            self._unanswered(destination, when, question)
