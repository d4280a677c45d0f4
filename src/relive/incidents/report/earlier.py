"""The last requests that went well before one that did not: to its route, and to near ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from relive.errors import RecordingError
from relive.incidents.report.shapes import is_near_route, route
from relive.recording.events import EventKind
from relive.recording.exchanges import Exchange, Exchanges
from relive.recording.reader import Recording

__all__ = ["last_good", "near_good_ones"]

_MOST_BYTES = 64 << 20  # of segments after which no further one is looked through
_GOOD_BELOW = 400  # statuses
_MOST_NEAR = 8  # routes


def last_good(recording: Recording, failed: Exchange) -> Exchange | None:
    """None where there was none in the last segment or two of the recording. Raises RecordingError."""
    wanted = route(failed.method, failed.target)
    number = next(_good_ones(recording, failed, lambda its: its == wanted), None)
    return Exchanges(recording).by_number(number) if number is not None else None


def near_good_ones(recording: Recording, failed: Exchange) -> Iterator[Exchange]:
    """The last one of each near route (``is_near_route``), the latest first, of eight routes at most. Raises RecordingError."""
    wanted = route(failed.method, failed.target)
    near = _good_ones(recording, failed, lambda its: its != wanted and is_near_route(its, wanted))
    return map(Exchanges(recording).by_number, islice(near, _MOST_NEAR))


def _good_ones(recording: Recording, failed: Exchange, is_wanted: Callable[[str], bool]) -> Iterator[int]:
    """Numbers of the last one of each route, the latest first."""
    seen: set[str] = set()
    until = failed.started_seq - 1
    left = _MOST_BYTES
    for path in reversed(recording.segments()):
        after = int(path.stem) - 1
        if after >= until:
            continue
        if left <= 0:
            return
        try:
            left -= path.stat().st_size
        except OSError as error:  # retention has dropped it meanwhile, and all before it
            raise RecordingError("the requests before cannot be read", cause=str(error)) from error
        last = _last_in(recording, after, until, is_wanted)
        yield from (last[its] for its in reversed(last) if its not in seen)
        seen |= last.keys()
        until = after


def _last_in(
    recording: Recording, after: int, until: int, is_wanted: Callable[[str], bool]
) -> dict[str, int]:
    """Route to the number of the last that had its whole answer, below 400, before the failed one began; the latest last."""
    routes: dict[int, str] = {}
    good: set[int] = set()
    last: dict[str, int] = {}
    # Of the many events these are the few that are decoded: they bear the status, or the sizes of the logs.
    for event in recording.events_naming([b"status", b"log_offsets"], after=after):
        if event.seq > until:
            break
        if event.kind is EventKind.REQUEST_STARTED:
            words = event.data.lstrip(b"\r\n").split(b"\n", 1)[0].decode("latin-1").split(" ")
            its = route(words[0], words[1]) if len(words) > 1 else ""
            if is_wanted(its):
                routes[event.request] = its
        elif event.kind is EventKind.ANSWER_STARTED and event.request in routes:
            status = event.fields.get("status")
            if isinstance(status, int) and status < _GOOD_BELOW and event.fields.get("by") != "relive":
                good.add(event.request)
        elif event.kind is EventKind.ANSWER_ENDED and event.request in good:
            its = routes[event.request]
            last.pop(its, None)
            last[its] = event.request
    return last
