"""What a service did inside for one request, found in its recording by the request as the proxy saw it.

Servers that the recorder knows tell when a handler begins, and each event bears its request. Of others (``http.server``, one
written by hand) only the time is known: there it is what the service's processes did outside of any request meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from relive.recording.both_ends import BothEnds
from relive.recording.events import Event, EventKind
from relive.recording.exchanges import Exchange
from relive.recording.reader import Recording

__all__ = ["MOST_EVENTS", "SLACK_NS", "Handled", "handled", "is_of", "seq_before"]

# [ns] A handler may end so much later than its answer was whole on the wire: tasks in the background, a traceback to print.
SLACK_NS = 5_000_000_000
MOST_EVENTS = 50_000
_BY_TIME_MOST = 5000  # events
_OPEN_NS = 60_000_000_000  # of a request without an end, for which events are chosen by the time
_CLOCKS = frozenset({EventKind.CLOCK, EventKind.RANDOM, EventKind.ENVIRONMENT_READ})


@dataclass(frozen=True, slots=True)
class Handled:
    """Events with their fields as JSON has them.

    Attributes:
        by_time: they were chosen by the time alone, and bear the proxy's number.
        left_out: how many in the middle are not among them, since there are too many.
    """

    events: list[Event]
    by_time: bool = False
    left_out: int = 0


def handled(recording: Recording, exchange: Exchange) -> Handled:
    """What was recorded of it; empty where nothing was. Raises RecordingCorrupt."""
    found, beside = BothEnds(MOST_EVENTS), BothEnds(_BY_TIME_MOST)
    of: tuple[object, int] | None = None
    is_open = exchange.ended_mono_ns is None
    by_time_until = exchange.ended_mono_ns or exchange.started_mono_ns + _OPEN_NS
    for event in _during(recording, exchange):
        if of is None and event.kind is EventKind.HANDLING_STARTED and is_of(event, exchange):
            of = event.fields.get("pid"), event.request
        # Of a request without an end the begin says more: what comes later may be anybody's.
        if is_open and found.is_full:
            break
        is_meanwhile = exchange.ended_mono_ns is None or event.mono_ns <= exchange.ended_mono_ns
        if of is None:
            is_near = event.request == 0 and event.mono_ns <= by_time_until and event.kind not in _CLOCKS
            if is_near and not (is_open and beside.is_full):
                beside.add(event)
            continue
        if event.fields.get("pid") != of[0]:
            continue
        if event.request == of[1] or (event.request == 0 and is_meanwhile):
            found.add(event)
        if event.request == of[1] and event.kind is EventKind.HANDLING_ENDED:
            break
    if of is not None:
        return Handled(found.held, left_out=found.left_out)
    own = [replace(event, request=exchange.number) for event in beside.held]
    return Handled(own, by_time=True, left_out=beside.left_out)


def _during(recording: Recording, exchange: Exchange) -> Iterator[Event]:
    ended = exchange.ended_mono_ns
    for event in recording.events(after=seq_before(recording, exchange.started_mono_ns)):
        if ended is not None and event.mono_ns > ended + SLACK_NS:
            return
        if event.mono_ns >= exchange.started_mono_ns:
            yield event


def is_of(begun: Event, exchange: Exchange) -> bool:
    """The handler that began with this event served this exchange."""
    ended = exchange.ended_mono_ns
    if begun.mono_ns < exchange.started_mono_ns or (ended is not None and begun.mono_ns > ended):
        return False
    path = str(begun.fields.get("target", "")).partition("?")[0]
    if not exchange.is_handled_as(begun.fields.get("method")) or path != exchange.target.partition("?")[0]:
        return False
    peer = begun.fields.get("peer")
    port = peer[1] if isinstance(peer, list) and len(peer) == 2 else None
    # A server that believes X-Forwarded-For tells another client than the proxy, with port 0.
    return not port or exchange.local_port is None or port == exchange.local_port


def seq_before(recording: Recording, mono_ns: int, *, spare: int = 0) -> int:
    """A seq behind which all events since a moment lie, with ``spare`` whole segments more: so that few have to be read."""
    starts = []
    for path in recording.segments():
        after = int(path.stem) - 1
        first = next(recording.events(after=after), None)
        if first is not None and first.mono_ns > mono_ns:
            break
        starts.append(after)
    return starts[-1 - spare] if len(starts) > spare else 0
