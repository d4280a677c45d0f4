"""The last request to the same route that went well, before one that did not."""

from __future__ import annotations

from relive.errors import RecordingError
from relive.incidents.report.shapes import is_near_route, route
from relive.recording.events import EventKind
from relive.recording.exchanges import Exchange, Exchanges
from relive.recording.reader import Recording

__all__ = ["last_good"]

_MOST_BYTES = 64 << 20  # of segments after which no further one is looked through
_GOOD_BELOW = 400  # statuses


def last_good(recording: Recording, failed: Exchange, *, is_near: bool = False) -> Exchange | None:
    """None where there was none in the last segment or two of the recording. Raises RecordingError.

    Args:
        is_near: a route that differs in one part of its path is taken, too.
    """
    wanted = route(failed.method, failed.target)
    until = failed.started_seq - 1
    left = _MOST_BYTES
    for path in reversed(recording.segments()):
        after = int(path.stem) - 1
        if after >= until:
            continue
        if left <= 0:
            return None
        try:
            left -= path.stat().st_size
        except OSError as error:  # retention has dropped it meanwhile, and all before it
            raise RecordingError("the requests before cannot be read", cause=str(error)) from error
        number = _last_in(recording, after, until, wanted, is_near=is_near)
        if number is not None:
            return Exchanges(recording).by_number(number)
        until = after
    return None


def _last_in(recording: Recording, after: int, until: int, wanted: str, *, is_near: bool) -> int | None:
    """The number of the last that had its whole answer, below 400, before the failed one began."""
    alike: set[int] = set()
    good: set[int] = set()
    last = None
    # Of the many events these are the few that are decoded: they bear the status, or the sizes of the logs.
    for event in recording.events_naming([b"status", b"log_offsets"], after=after):
        if event.seq > until:
            break
        if event.kind is EventKind.REQUEST_STARTED:
            words = event.data.lstrip(b"\r\n").split(b"\n", 1)[0].decode("latin-1").split(" ")
            its = route(words[0], words[1]) if len(words) > 1 else ""
            if its == wanted or (is_near and is_near_route(its, wanted)):
                alike.add(event.request)
        elif event.kind is EventKind.ANSWER_STARTED and event.request in alike:
            status = event.fields.get("status")
            if isinstance(status, int) and status < _GOOD_BELOW and event.fields.get("by") != "relive":
                good.add(event.request)
        elif event.kind is EventKind.ANSWER_ENDED and event.request in good:
            last = event.request
    return last
