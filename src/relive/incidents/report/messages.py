"""What clients and service last said to each other before a failure, where that was not HTTP/1; secrets masked."""

from __future__ import annotations

from collections import deque

from relive.incidents.report.body import ReportBody
from relive.incidents.report.masking import Mask
from relive.model.incident import Sighting
from relive.model.value import Value
from relive.recording.events import Event, EventKind
from relive.recording.reader import Recording

__all__ = ["Message", "last_messages"]

_KINDS = {EventKind.STREAM_TO_SERVICE, EventKind.STREAM_TO_CLIENT}
_MOST = 12
_SEGMENTS = 2  # the last ones, that are looked through


class Message(Value):
    """Bytes that came in one piece.

    Attributes:
        connection: in the recording.
        by_client: a client sent them; else the service did.
        before_ns: how long before the failure was seen.
        from_middle: the connection stood before it was recorded, as far as is known: what was said on it before is missing.
    """

    connection: int
    by_client: bool
    before_ns: int
    body: ReportBody
    from_middle: bool = False


def last_messages(recording: Recording, sighting: Sighting, mask: Mask) -> list[Message]:
    """Those before a failure, the oldest first; none where a request is to blame.

    Raises:
        RecordingError: the recording's end is damaged.
    """
    segments = recording.segments()[-_SEGMENTS:]
    if sighting.request is not None or not segments:
        return []
    found: deque[Event] = deque(maxlen=_MOST)
    stood: set[int] = set()
    for event in recording.events(after=int(segments[0].stem) - 1):
        if event.fields.get("from_middle"):
            stood.add(event.connection)
        if (
            event.kind in _KINDS
            and not event.request
            and event.data
            and event.wall_ns <= sighting.seen_wall_ns
        ):
            found.append(event)
    return [_message(event, sighting, mask, from_middle=event.connection in stood) for event in found]


def _message(event: Event, sighting: Sighting, mask: Mask, *, from_middle: bool) -> Message:
    masked = mask.body(event.data, "")
    cut = event.fields.get("cut", 0)
    return Message(
        connection=event.connection,
        by_client=event.kind is EventKind.STREAM_TO_SERVICE,
        before_ns=sighting.seen_wall_ns - event.wall_ns,
        body=ReportBody.of(masked, size=len(masked) + cut if cut else None),
        from_middle=from_middle,
    )
