"""What a life's processes did between a commit and a failure, read from the recording of the inside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from relive.errors import RecordingCorrupt
from relive.recording.events import Event, EventKind
from relive.recording.exchanges import Exchange
from relive.recording.reader import Recording

__all__ = ["EventWindow", "read_window", "request_again", "request_at_the_end", "request_inside"]

_MOST = 200_000  # events
_MOST_BYTES = 256 << 20
_BEFORE_NS = 1_000_000_000  # an event gets its number before its time: some room on either side
_AFTER_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class EventWindow:
    """Events of all processes, in the order of time.

    Attributes:
        bodies: directory of long bodies.
        left_out: events that were too many.
        lost: events that are missing, since they were overwritten before they were taken.
        damage: the recording cannot be read to its end.
    """

    events: list[Event]
    bodies: Path
    left_out: int = 0
    lost: int = 0
    damage: str | None = None


def read_window(directory: Path, since_ns: int, until_ns: int) -> EventWindow | None:
    """Events between two monotonic times and a little more on either side; None where nobody recorded the inside.

    The earliest 200,000 events, or 256 MiB, are kept.
    """
    recording = Recording(directory)
    if not recording.segments():
        return None
    since_ns -= _BEFORE_NS
    until_ns += _AFTER_NS
    kept: list[Event] = []
    size = left_out = 0
    damage: str | None = None
    try:
        for event in recording.events(after=_place_before(recording, since_ns)):
            if not since_ns <= event.mono_ns <= until_ns:
                continue
            size += len(event.data) + 500
            if len(kept) < _MOST and size < _MOST_BYTES:
                kept.append(event)
            else:
                left_out += 1
    except RecordingCorrupt as error:
        damage = str(error)
    kept.sort(key=lambda event: event.mono_ns)
    return EventWindow(kept, directory / "bodies", left_out, _lost(kept), damage)


def _place_before(recording: Recording, since_ns: int) -> int:
    """The seq behind which all events of that time and later are: a segment holds events in the order of time, but for a moment."""
    for path in reversed(recording.segments()):
        before = int(path.stem) - 1
        first = next(recording.events(after=before), None)
        if first is not None and first.mono_ns < since_ns:
            return before
    return 0


def _lost(events: list[Event]) -> int:
    """Gaps in the numbers that processes give their events."""
    last: dict[int, int] = {}
    lost = 0
    for event in events:
        pid, number = event.fields.get("pid", 0), event.fields.get("own_seq", 0)
        if event.kind is not EventKind.PROCESS_STARTED and pid in last:
            lost += max(0, number - last[pid] - 1)
        last[pid] = max(number, last.get(pid, 0)) if event.kind is not EventKind.PROCESS_STARTED else number
    return lost


def request_inside(events: list[Event], exchange: Exchange) -> tuple[int, int] | None:
    """(pid, number of the request in that process) of a request that the proxy saw; None where no server told of it.

    The peer's port names the connection, and the time the request on it. Without a peer the time alone has to do.
    """
    began = [
        event
        for event in events
        if event.kind is EventKind.HANDLING_STARTED
        and exchange.is_handled_as(event.fields.get("method"))
        and event.fields.get("target") == exchange.target
        and event.mono_ns >= exchange.started_mono_ns
        and (exchange.ended_mono_ns is None or event.mono_ns <= exchange.ended_mono_ns)
    ]
    of_peer = [event for event in began if _port(event) == exchange.local_port is not None]
    found = next(iter(of_peer or [event for event in began if _port(event) is None]), None)
    return (int(found.fields.get("pid", 0)), found.request) if found is not None else None


def request_at_the_end(events: list[Event]) -> tuple[int, int] | None:
    """The last request whose handler did not end: what a service that died was doing. None where all had ended."""
    ended = {
        (event.fields.get("pid"), event.request) for event in events if event.kind is EventKind.HANDLING_ENDED
    }
    for event in reversed(events):
        if event.kind is EventKind.HANDLING_STARTED and (event.fields.get("pid"), event.request) not in ended:
            return int(event.fields.get("pid", 0)), event.request
    return None


def request_again(
    events: list[Event], recorded: tuple[int, int], exchange: Exchange | None, port: int | None = None
) -> tuple[int, int] | None:
    """As ``request_inside``, in the events of a branch; the kernel may have given the request to another worker there.

    Each worker counts its own requests, so the recorded worker's of that number may be another one there: the connection on which
    it was sent tells, or else what it asked for.

    Args:
        port: from which it was sent there; None: not known.
    """
    again = recorded if any((one.fields.get("pid"), one.request) == recorded for one in events) else None
    if exchange is None:
        return again
    begun = [
        one
        for one in events
        if one.kind is EventKind.HANDLING_STARTED
        and exchange.is_handled_as(one.fields.get("method"))
        and one.fields.get("target") == exchange.target
    ]
    if port is not None and begun and all(_port(one) is not None for one in begun):
        begun, again = [one for one in begun if _port(one) == port], None
    asked = [(int(one.fields.get("pid", 0)), one.request) for one in begun]
    return recorded if recorded in asked else asked[-1] if asked else again


def _port(event: Event) -> int | None:
    """The peer's; None where the server did not tell: WSGI has no variable for it, so it stands as 0 there (PEP 3333)."""
    peer = event.fields.get("peer")
    if not isinstance(peer, list) or len(peer) != 2 or not isinstance(peer[1], int):
        return None
    return peer[1] or None
