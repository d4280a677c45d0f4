"""A connection of which it is found out whether it is encrypted; if so, its TLS is opened where the service allows it.

TLS begins with the first byte, or, in PostgreSQL's protocol, after the client has asked for it and the server has agreed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import socket
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias

from relive.proxies.egress._carrier import Carrier, Opening
from relive.proxies.egress._tls import Opened, Roots
from relive.proxies.egress.client_hello import HELLO_MOST, Hello, looks_like_hello, read_hello
from relive.recording.dialogues import Tls, Way
from relive.recording.events import EventKind
from relive.recording.writer import RecordingWriter

if TYPE_CHECKING:  # `cryptography` takes its time to be imported
    from relive.proxies.egress.authority import Authority

__all__ = ["Trust", "WatchedCarrier", "may_be_encrypted"]

_POSTGRES_ASKS = bytes([0, 0, 0, 8, 4, 210, 22, 47])  # SSLRequest
_POSTGRES_AGREES = b"S"
_IN_PROGRESS = (errno.EINPROGRESS, errno.EALREADY, errno.EWOULDBLOCK)
Plain: TypeAlias = Callable[[Opening, socket.socket, socket.socket, tuple[int, int], int], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Trust:
    """What TLS is opened with."""

    authority: Authority
    roots: Roots


class _Stage(Enum):
    FIRST = auto()  # nobody has said anything
    ASKED = auto()  # the service has asked a PostgreSQL server for TLS
    HELLO = auto()  # the service's hello is coming in
    TLS = auto()  # see ``_opened``
    ANEW = auto()  # a new real connection is on its way, on which nothing is opened
    KNOWN = auto()  # what comes is handed on


def may_be_encrypted(first: bytes) -> bool:
    """What a service says first begins TLS, or asks for it."""
    return first == _POSTGRES_ASKS or looks_like_hello(first)


class WatchedCarrier(Carrier):
    """See ``Carrier``.

    Args:
        trust: None: encryption is noticed and never opened.
        plain: called once all further bytes go as they come, when none is on its way here, with the two ends, the bytes said so far
            in both directions, and the segment in which the dialogue was opened. The ends are the callee's then, and this carrier
            has ended.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        writer: RecordingWriter,
        opening: Opening,
        inner: socket.socket,
        outer: socket.socket,
        done: Callable[[Carrier], None],
        *,
        frozen: bool,
        trust: Trust | None,
        plain: Plain | None = None,
        is_told: bool = False,
    ) -> None:
        self._trust = trust
        self._plain = plain
        self._stage = _Stage.FIRST
        self._first = b""  # of the service, not handed on yet
        self._asked = False
        self._opened: Opened | None = None
        self._redialled: socket.socket | None = None
        super().__init__(loop, writer, opening, inner, outer, done, frozen=frozen, is_told=is_told)

    def thaw(self) -> None:
        """Go on."""
        super().thaw()
        self._hand_over_if_plain()

    # What the ends tell

    def came(self, way: Way, data: bytes) -> None:
        """Bytes as they were on the wire."""
        self._act_on(way, data)
        self._hand_over_if_plain()

    def drained(self, way: Way) -> None:
        """All that was read in this direction has been handed on."""
        super().drained(way)
        self._hand_over_if_plain()

    def _hand_over_if_plain(self) -> None:
        if self._plain is None or self._stage is not _Stage.KNOWN or self._frozen or self._closed:
            return
        up, down = (self._directions[way] for way in Way)
        is_even = all(end.is_even for end in self._ends.values())
        if not is_even or up.kept < up.said or down.kept < down.said:
            return
        plain, self._plain = self._plain, None
        inner, outer = (self._ends[way].detach() for way in Way)
        self._closed = True
        self._report_done()
        plain(self.opening, inner, outer, (up.said, down.said), self._told_in)

    def _act_on(self, way: Way, data: bytes) -> None:
        if self._stage is _Stage.KNOWN:
            super().came(way, data)
        elif self._stage is _Stage.TLS:
            assert self._opened is not None
            self._opened.came(way, data)
            if self._is_inside():
                self._close_if_done()
        elif self._stage is _Stage.FIRST:
            self._look_at_first(way, data)
        elif self._stage is _Stage.ASKED:
            super().came(way, data)
            if way is Way.DOWN:
                self._stage = _Stage.HELLO if data == _POSTGRES_AGREES else _Stage.KNOWN
        elif self._stage is _Stage.HELLO:
            self._gather(way, data)
        else:
            self._came_anew(way, data)

    def ended(self, way: Way) -> None:
        """No more bytes come from there."""
        if self._stage is _Stage.TLS:
            assert self._opened is not None
            if way is Way.UP and not self._opened.is_answered:
                self._give_up()
                return
            self._opened.ended(way)
            if self._is_inside():
                self._ends[_other(way)].shutdown()
                self._close_if_done()
        elif self._stage is _Stage.ANEW:
            self._give_up()
        else:
            if self._stage is _Stage.HELLO:
                self._hand_on(None)
            super().ended(way)

    def broke(self, way: Way) -> None:
        """An end broke."""
        if self._stage is _Stage.TLS and way is Way.DOWN and not self._is_answered():
            self.begin_anew("the server broke off the handshake")
        else:
            self._stop_redialling()
            super().broke(way)

    def shut(self) -> None:
        """The recorder ends."""
        self._stop_redialling()
        super().shut()

    # Finding out

    def _look_at_first(self, way: Way, data: bytes) -> None:
        self._stage = _Stage.KNOWN
        if way is Way.UP and data == _POSTGRES_ASKS:
            self._stage, self._asked = _Stage.ASKED, True
        elif way is Way.UP and looks_like_hello(data):
            self._stage = _Stage.HELLO
            self._gather(way, data)
            return
        super().came(way, data)

    def _gather(self, way: Way, data: bytes) -> None:
        if way is Way.DOWN:  # a server that does not wait for the hello speaks something else
            self._hand_on(None)
            super().came(way, data)
            return
        self._first += data
        try:
            hello = read_hello(self._first) if looks_like_hello(self._first) else None
        except ValueError:
            self._hand_on(None)
            return
        if hello is not None:
            self._decide(hello)
        elif not looks_like_hello(self._first) or len(self._first) > HELLO_MOST:
            self._hand_on(None)

    def _decide(self, hello: Hello) -> None:
        address, port = self.opening.to
        self._name = f"{hello.name or address} port {port}"
        if self._trust is None or self._trust.authority.is_closed(self._name):
            self._hand_on(Tls.CLOSED)
            return
        self._stage = _Stage.TLS
        first, self._first = self._first, b""
        self._opened = Opened(self, self._trust.authority, self._trust.roots, hello, first, address)
        self._opened.start()

    def _hand_on(self, tls: Tls | None) -> None:
        """From here on everything goes as it comes."""
        self._stage = _Stage.KNOWN
        if tls is not None:
            self._now(tls)
        first, self._first = self._first, b""
        if first:
            super().came(Way.UP, first)

    def _now(self, tls: Tls) -> None:
        self.opening = dataclasses.replace(self.opening, tls=tls)
        self.record_again()

    # What TLS tells: see ``_tls.Passage``

    def is_open(self) -> None:
        """Both ends have agreed."""
        self._now(Tls.OPENED)

    def finished(self, way: Way) -> None:
        """A direction has ended, inside."""
        self._end(way, "closed")
        self._writer.flush()

    def broken(self, way: Way) -> None:
        """What comes is no TLS."""
        self.broke(way)

    def distrusted(self, reason: str) -> None:
        """The service did not take the certificate. What it asks for next time is not opened."""
        self._remember(f"the service does not trust the capsule's authority ({reason})")
        for way in Way:
            self._end(way, "reset")
        self._writer.flush()
        self._close(reset=False)

    def begin_anew(self, reason: str) -> None:
        """Connect once more, and hand on everything from the hello on as it is."""
        assert self._opened is not None
        self._remember(reason)
        self._stage = _Stage.ANEW
        self._first, self._opened = self._opened.first, None
        self._ends[Way.UP].pause_reading()
        self._ends[Way.DOWN].close(reset=True)
        address = self.opening.to
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._redialled = sock
        with contextlib.suppress(OSError):
            sock.bind((self.opening.origin[0], 0))
        code = sock.connect_ex(address)
        if code in _IN_PROGRESS:
            self._loop.add_writer(sock.fileno(), self._connected)
        else:
            self._loop.call_soon(self._stands, code)

    def _connected(self) -> None:
        assert self._redialled is not None
        self._loop.remove_writer(self._redialled.fileno())
        self._stands(self._redialled.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def _stands(self, code: int) -> None:
        if self._redialled is None:
            return
        sock, self._redialled = self._redialled, None
        if code:
            sock.close()
            super().broke(Way.DOWN)
            return
        self._read_from(Way.DOWN, sock)
        if self._frozen:
            self._ends[Way.DOWN].pause_reading()
        self._ends[Way.UP].resume_reading()
        if self._asked:
            self._ends[Way.DOWN].send(_POSTGRES_ASKS)
        else:
            self._hand_on(Tls.CLOSED)

    def _came_anew(self, way: Way, data: bytes) -> None:
        if way is Way.UP:
            self._first += data
        elif data == _POSTGRES_AGREES:  # as it had before
            self._hand_on(Tls.CLOSED)
        else:
            super().broke(Way.DOWN)

    def _remember(self, reason: str) -> None:
        assert self._trust is not None
        self._trust.authority.close_for(self._name, reason)
        text = f"TLS to {self._name} is recorded closed from now on: {reason}"
        fields = {"about": "tls", "text": text, "name": self._name}
        self._writer.append(EventKind.NOTE, self.opening.number, fields=fields)
        self._writer.flush()

    def _is_answered(self) -> bool:
        return self._opened is not None and self._opened.is_answered

    def _stop_redialling(self) -> None:
        if self._redialled is not None:
            self._loop.remove_writer(self._redialled.fileno())
            self._redialled.close()
            self._redialled = None

    def _give_up(self) -> None:
        """The service went away before it was answered."""
        self._stop_redialling()
        for way in Way:
            self._end(way, "closed")
        self._writer.flush()
        self._close(reset=False)

    def _is_inside(self) -> bool:
        return self._stage is _Stage.TLS and not self._closed


def _other(way: Way) -> Way:
    return Way.DOWN if way is Way.UP else Way.UP
