"""Connections that the service begins: each waits with its first packet until the real one stands, or has failed.

What the service connects is led to the recorder, who would answer a SYN at once. Hence a netfilter queue holds it
(``kernel.nfqueue``) while the real connection is made from the host: when that stands, the SYN goes on to our listener; when it
fails, the service gets the same error after the same time. ``connect`` means to the service what it means without a recorder.

1. The first packet waits (``begins``); repetitions of it are dropped meanwhile, since one is enough.
2. The real connection stands: the packet goes on, when the gate is open (``let_pass``).
3. Our listener takes the service's end in, and both ends are handed to ``stands``.

Danger: a service that gives up (a time limit, a death) sends nothing that says so, so it is looked for its socket
(``_look_who_waits``); else a real connection would stay open that nobody asked for any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
import time
from collections.abc import Callable
from typing import TypeAlias

from relive.kernel.nfqueue import WaitingPacket
from relive.kernel.packets import Packet
from relive.kernel.tcprepair import next_sent
from relive.proxies.egress._carrier import Opening
from relive.proxies.egress.entrance import Entrance
from relive.proxies.gate import CLOSED_SECONDS
from relive.proxies.marks import Mark, kind_for
from relive.recording.events import EventKind
from relive.recording.writer import RecordingWriter

__all__ = ["EgressConnections"]

Key: TypeAlias = tuple[tuple[str, int], tuple[str, int]]  # own end, destination
Stands: TypeAlias = Callable[[Opening, socket.socket, socket.socket], None]

_IN_PROGRESS = (errno.EINPROGRESS, errno.EALREADY, errno.EWOULDBLOCK)
_IP_BIND_ADDRESS_NO_PORT = 24
_LOOK_AFTER = 0.25  # [s] how often it is looked whether the service still waits
_TAKEN_WITHIN = 3.0  # [s] after its packet was let pass, in which the service's connection comes in
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE = 0.1  # [s] until it is tried again to take connections in
_WORD = 0xFFFFFFFF
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class EgressConnections:
    """Lives in the event loop.

    Args:
        stands: called with what is known of a connection, its end in the capsule and the real one.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        entrance: Entrance,
        writer: RecordingWriter,
        stands: Stands,
    ) -> None:
        self.loop = loop
        self.entrance = entrance
        self.writer = writer
        self._stands = stands
        self._attempts: dict[Key, _Attempt] = {}
        self._watch: asyncio.TimerHandle | None = None
        self._frozen = False
        self._held: list[tuple[int, Mark]] = []
        for listener in entrance.listeners:
            loop.add_reader(listener.fileno(), self._accept, listener)

    def begins(self, waiting: WaitingPacket, packet: Packet) -> None:
        """The first packet of a connection, or its repetition."""
        key = (packet.origin, packet.destination)
        attempt = self._attempts.get(key)
        if attempt is not None and attempt.sequence == packet.sequence:
            attempt.repeated(waiting.number)
            return
        if attempt is not None:
            attempt.give_up()
        elif self.entrance.is_taken(*key):
            self.entrance.let_pass(waiting.number, Mark.DIRECT)
            return
        self._attempts[key] = attempt = _Attempt(self, key, waiting.number, packet)
        attempt.dial()
        if self._watch is None:
            self._watch = self.loop.call_later(_LOOK_AFTER, self._look_who_waits)

    # The gate: see ``proxies.gate.GateKeeper``

    def freeze(self) -> None:
        """From now on no connection comes to be, and none fails."""
        self._frozen = True

    def thaw(self) -> None:
        """Go on."""
        self._frozen = False
        held, self._held = self._held, []
        for waiting, mark in held:
            self.entrance.let_pass(waiting, mark)

    def shut(self) -> None:
        """See ``close``."""

    def let_pass(self, waiting: int, mark: Mark) -> None:
        """A packet goes on, when the gate is open."""
        if self._frozen:
            self._held.append((waiting, mark))
        else:
            self.entrance.let_pass(waiting, mark)

    def forget(self, key: Key) -> None:
        """An attempt has ended."""
        self._attempts.pop(key, None)

    def _reopen(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self.loop.add_reader(listener.fileno(), self._accept, listener)

    def close(self) -> None:
        """Give up all that is under way."""
        if self._watch is not None:
            self._watch.cancel()
        for listener in self.entrance.listeners:
            self.loop.remove_reader(listener.fileno())
        for attempt in list(self._attempts.values()):
            attempt.give_up()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, peer = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTORS:
                    continue  # the service took it back
                # It would be reported again and again without one being free.
                self.loop.remove_reader(listener.fileno())
                self.loop.call_later(_PAUSE, self._reopen, listener)
                return
            sock.setblocking(False)
            attempt = self._attempts.pop((peer[:2], sock.getsockname()[:2]), None)
            if attempt is None:  # it began with an earlier recorder, which took the real connection along
                reset(sock)
                continue
            opening, outer = attempt.came_in(sock)
            self._stands(opening, sock, outer)

    def _look_who_waits(self) -> None:
        """A service that stops waiting says so to nobody: its socket is gone, and no packet tells."""
        self._watch = None
        if not self._attempts:
            return
        self._watch = self.loop.call_later(_LOOK_AFTER, self._look_who_waits)
        connecting = self.entrance.sockets.connecting()
        now = time.monotonic_ns()
        for key, attempt in list(self._attempts.items()):
            if now - attempt.began[0] > _LOOK_AFTER * 1e9 and key not in connecting:
                attempt.give_up()


class _Attempt:
    """One connection on its way.

    Attributes:
        began: monotonic and wall time [ns].
        sequence: of its first packet.
    """

    def __init__(self, calls: EgressConnections, key: Key, waiting: int, packet: Packet) -> None:
        self.began = (time.monotonic_ns(), time.time_ns())
        self.sequence = packet.sequence
        self._calls = calls
        self._key = key
        self._family = packet.family
        self._waiting: int | None = waiting
        self._outer: socket.socket | None = None
        self._connected_ns: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def dial(self) -> None:
        """Begin the real connection."""
        try:
            sock = socket.socket(
                self._family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
            )
        except OSError as error:
            self._failed(error.errno or errno.EMFILE)
            return
        self._outer = sock
        with contextlib.suppress(OSError):  # the host may have lost that address meanwhile
            sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
            sock.bind((self._key[0][0], 0))
        code = sock.connect_ex(self._key[1])
        if code in _IN_PROGRESS:
            code = sock.connect_ex(self._key[1])  # on the same host it stands by now
        if code in _IN_PROGRESS:
            self._calls.loop.add_writer(sock.fileno(), self._answered)
        else:
            self._settle(0 if code == errno.EISCONN else code)

    def repeated(self, waiting: int) -> None:
        """The service's kernel sends its first packet again."""
        if self._connected_ns is not None:
            self._calls.let_pass(waiting, Mark.RECORDED)
        else:
            self._calls.entrance.queue.drop(waiting)

    def came_in(self, sock: socket.socket) -> tuple[Opening, socket.socket]:
        """The service's end is there."""
        assert self._outer is not None
        assert self._connected_ns is not None
        if self._timer is not None:
            self._timer.cancel()
        try:
            bases = ((self.sequence + 1) & _WORD, next_sent(sock))
        except OSError:  # the service has reset it already
            bases = None
        opening = Opening(
            number=self._calls.writer.next_connection(),
            to=self._key[1],
            origin=self._key[0],
            at=self.began,
            connect_ns=self._connected_ns,
            bases=bases,
        )
        return opening, self._outer

    def give_up(self) -> None:
        """The service does not wait any more."""
        self._failed(errno.ETIMEDOUT)

    def _answered(self) -> None:
        assert self._outer is not None
        self._calls.loop.remove_writer(self._outer.fileno())
        self._settle(self._outer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def _settle(self, code: int) -> None:
        if code:
            self._failed(code)
            return
        self._connected_ns = time.monotonic_ns() - self.began[0]
        self._timer = self._calls.loop.call_later(_TAKEN_WITHIN + CLOSED_SECONDS, self.give_up)
        self._let_go(Mark.RECORDED)

    def _failed(self, code: int) -> None:
        self._calls.forget(self._key)
        if self._timer is not None:
            self._timer.cancel()
        if self._outer is not None:
            if self._connected_ns is None:
                self._calls.loop.remove_writer(self._outer.fileno())
            self._outer.close()
        fields = {
            "to": self._key[1],
            "origin": self._key[0],
            "connect_ns": time.monotonic_ns() - self.began[0],
            "error": errno.errorcode.get(code, os.strerror(code)),
        }
        writer = self._calls.writer
        writer.append(EventKind.DIALOGUE_OPENED, writer.next_connection(), fields=fields, at=self.began)
        writer.flush()
        # Who waited in vain on the host waits in vain here: the service's own kernel tells it when.
        self._let_go(None if code == errno.ETIMEDOUT else kind_for(code))

    def _let_go(self, mark: Mark | None) -> None:
        if self._waiting is None:
            return
        waiting, self._waiting = self._waiting, None
        if mark is None:
            self._calls.entrance.queue.drop(waiting)
        else:
            self._calls.let_pass(waiting, mark)


def reset(sock: socket.socket) -> None:
    """Close with RST."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    sock.close()
