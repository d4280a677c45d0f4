"""One connection that the service opened, carried between its end in the capsule and the real one, and recorded.

An event is in the kernel's hands before the bytes that it is about are let out, in both directions: whatever a committed service
has seen is in the recording.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from relive.proxies.service_socket import ServiceSocket
from relive.recording.dialogues import Tls, Way
from relive.recording.events import EventKind
from relive.recording.writer import RecordingWriter

__all__ = ["Carrier", "Opening", "watch_over"]

_HIGH_WATER = 1 << 20  # [bytes] that wait for one end before no more is read from the other
_KEEPALIVE_IDLE, _KEEPALIVE_PAUSE, _KEEPALIVE_TRIES = 60, 15, 8  # [s], [s], times
_KINDS = {Way.UP: EventKind.DIALOGUE_UP, Way.DOWN: EventKind.DIALOGUE_DOWN}


@dataclass(frozen=True, slots=True)
class Opening:
    """What is known of a connection when it stands.

    Attributes:
        at: monotonic and wall time [ns] at which it was seen first.
        bases: sequence numbers of the first bytes from and to the service, None where not known.
        tls: what becomes of encryption, where there is any.
    """

    number: int
    to: tuple[str, int]
    origin: tuple[str, int]
    at: tuple[int, int]
    connect_ns: int
    bases: tuple[int, int] | None = None
    tls: Tls | None = None

    def fields(self) -> dict[str, Any]:
        """Of the event dialogue-opened."""
        content: dict[str, Any] = {"to": self.to, "origin": self.origin, "connect_ns": self.connect_ns}
        if self.tls is not None:
            content["tls"] = self.tls.value
        if self.bases is not None and self.tls is not Tls.OPENED:  # those count what is on the wire
            content |= {"up_base": self.bases[0], "down_base": self.bases[1]}
        return content

    def record(self, writer: RecordingWriter) -> None:
        """Record that it was opened."""
        writer.append(EventKind.DIALOGUE_OPENED, self.number, fields=self.fields(), at=self.at)
        writer.flush()


@dataclass(slots=True)
class _Direction:
    """``said``: bytes so far; ``kept``: bytes of them up to the last that the recording took."""

    said: int = 0
    kept: int = 0
    ended: bool = False
    paused: bool = field(default=False)


class Carrier:
    """Lives in the event loop. ``done`` is called once, when both ends are closed.

    Args:
        inner: the end in the capsule; outer: the real one. Both non-blocking and connected; they are the carrier's from now on.
        frozen: the gate is closed: nothing goes to the service until ``thaw``.
        is_told: that it was opened is recorded already.
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
        is_told: bool = False,
    ) -> None:
        self.opening = opening
        self._writer = writer
        self._done: Callable[[Carrier], None] | None = done
        self._directions = {Way.UP: _Direction(), Way.DOWN: _Direction()}
        if not is_told:
            opening.record(writer)
        self._told_in = writer.segment
        watch_over(outer)
        self._ends: dict[Way, ServiceSocket] = {}  # by the direction that is read there
        self._reset_when_sent: Way | None = None
        self._frozen = self._closed = False
        self._loop = loop
        self._read_from(Way.UP, inner)
        self._read_from(Way.DOWN, outer)
        if frozen:
            self.freeze()

    def _read_from(self, way: Way, sock: socket.socket) -> None:
        self._ends[way] = ServiceSocket(self._loop, sock, _End(self, way))

    # The gate: see ``proxies.gate.GateKeeper``

    def freeze(self) -> None:
        """Let nothing out to the service from now on. What is said to it waits in the kernel."""
        self._frozen = True
        self._ends[Way.DOWN].pause_reading()
        self._ends[Way.UP].freeze()

    def thaw(self) -> None:
        """Go on."""
        self._frozen = False
        self._ends[Way.UP].thaw()
        if self._closed:
            self._report_done()
        elif not self._directions[Way.DOWN].paused:
            self._ends[Way.DOWN].resume_reading()

    def shut(self) -> None:
        """The recorder ends: what is on its way is lost, and that is said."""
        for way in Way:
            self._end(way, "lost")
        self._writer.flush()
        self._close(reset=False)

    @property
    def has_said_all(self) -> bool:
        """The service's direction has ended, and all of it has been handed on."""
        return self._directions[Way.UP].ended and not self._ends[Way.DOWN].backlog

    # What the ends tell

    def came(self, way: Way, data: bytes) -> None:
        """Bytes of a direction: record them, then hand them on."""
        self.said(way, data)
        self.send(way, data)

    def said(self, way: Way, data: bytes) -> None:
        """Record bytes of a direction."""
        if self._told_in != self._writer.segment:
            self.record_again()
        direction = self._directions[way]
        self._writer.append(_KINDS[way], self.opening.number, data=data, fields={"at": direction.said})
        self._writer.flush()
        direction.said += len(data)
        if self._writer.is_on:
            direction.kept = direction.said

    def send(self, way: Way, raw: bytes) -> None:
        """Hand bytes on. The end they came from is not read while too many of them wait."""
        out = self._ends[_other(way)]
        out.send(raw)
        direction = self._directions[way]
        if out.backlog > _HIGH_WATER and not direction.paused:
            direction.paused = True
            self._ends[way].pause_reading()

    def record_again(self) -> None:
        """Say of the dialogue what is known by now: so each segment of the recording can be read without those before it."""
        fields = self.opening.fields() | {
            "up_at": self._directions[Way.UP].said,
            "down_at": self._directions[Way.DOWN].said,
        }
        self._writer.append(EventKind.DIALOGUE_OPENED, self.opening.number, fields=fields)
        self._writer.flush()
        self._told_in = self._writer.segment

    def ended(self, way: Way) -> None:
        """A direction has ended in order; the other may go on."""
        self._end(way, "closed")
        self._writer.flush()
        self._ends[_other(way)].shutdown()
        self._close_if_done()

    def drained(self, way: Way) -> None:
        """All that was read in this direction has been handed on."""
        direction = self._directions[way]
        if direction.paused:
            direction.paused = False
            if not self._frozen or way is Way.UP:
                self._ends[way].resume_reading()
        if self._reset_when_sent is way:
            self._close(reset=True)
        else:
            self._close_if_done()

    def broke(self, way: Way) -> None:
        """The end where this direction is read broke. The other end learns of it, after what came before."""
        for each in (way, _other(way)):  # in this order: the first one tells who ended it
            self._end(each, "reset")
        self._writer.flush()
        out = self._ends[_other(way)]
        if out.backlog and self._reset_when_sent is None:
            self._reset_when_sent = way
            out.pause_reading()
        else:
            self._close(reset=True)

    def _end(self, way: Way, how: str) -> None:
        direction = self._directions[way]
        if direction.ended:
            return
        direction.ended = True
        fields: dict[str, Any] = {"way": way.value, "how": how, "bytes": direction.said}
        if direction.kept < direction.said:
            fields["cut"] = direction.said - direction.kept
        self._writer.append(EventKind.DIALOGUE_ENDED, self.opening.number, fields=fields)

    def _close_if_done(self) -> None:
        if all(direction.ended for direction in self._directions.values()) and not any(
            end.backlog for end in self._ends.values()
        ):
            self._close(reset=False)

    def _close(self, *, reset: bool) -> None:
        for end in self._ends.values():
            end.close(reset=reset)
        self._closed = True
        if not self._frozen:  # else an end still waits for the gate
            self._report_done()

    def _report_done(self) -> None:
        if self._done is not None:
            done, self._done = self._done, None
            done(self)


class _End:
    """One end of a carrier, as its socket tells of itself (see ``_service.ServiceOwner``)."""

    def __init__(self, carrier: Carrier, way: Way) -> None:
        self._carrier = carrier
        self._way = way

    def service_data(self, data: bytes) -> None:
        self._carrier.came(self._way, data)

    def service_eof(self) -> None:
        self._carrier.ended(self._way)

    def service_lost(self, _error: OSError, /) -> None:
        self._carrier.broke(self._way)

    def service_drained(self) -> None:
        # All has gone out here, which is what came in at the other end.
        self._carrier.drained(_other(self._way))


def _other(way: Way) -> Way:
    return Way.DOWN if way is Way.UP else Way.UP


def watch_over(outer: socket.socket) -> None:
    """A service's own keep-alive probes end at the recorder, which sends some of its own instead."""
    with contextlib.suppress(OSError):
        outer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        outer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE)
        outer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_PAUSE)
        outer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_TRIES)
