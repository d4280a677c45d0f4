"""Which of the proxy's requests is the one that a Python process has numbered for itself."""

from __future__ import annotations

from typing import Any

from relive.errors import RecordingError
from relive.recording.events import Event, EventKind
from relive.recording.reader import Recording

__all__ = ["find_request"]

_ENDS = (EventKind.ANSWER_ENDED, EventKind.REQUEST_ABANDONED, EventKind.ANSWER_BROKEN)


def find_request(recording: Recording, failure: Event) -> dict[str, Any]:
    """``request``, ``method``, ``target``, ``sequence``, ``began_wall_ns`` and ``log_offsets`` of the request in which it failed.

    Empty if it failed in none.

    The peer that the service's server saw is the proxy's end of a connection: of the requests on it, it is the last that began
    before the failure. Where the server did not tell the port, it is the one open request of that method and target.
    """
    peer = list(failure.fields.get("peer") or [])
    port = peer[1] if len(peer) == 2 and isinstance(peer[1], int) else 0
    wanted = str(failure.fields.get("method")), str(failure.fields.get("target"))
    segments = recording.segments()[-2:]
    if not segments or not failure.request:
        return {}
    begun: dict[int, Event] = {}
    ended: set[int] = set()
    try:
        for event in recording.events(after=int(segments[0].stem) - 1):
            if event.mono_ns > failure.mono_ns:
                break
            if event.kind is EventKind.REQUEST_STARTED:
                begun[event.request] = event
            elif event.kind in _ENDS:
                ended.add(event.request)
    except RecordingError:
        pass  # what was read until then has to do
    if port:  # an answer may have ended before the exception reached the place where it is seen
        fits = [event for event in begun.values() if event.fields.get("local_port") == port]
    else:
        fits = [one for number, one in begun.items() if number not in ended and _line(one) == wanted]
    if not fits or (len(fits) > 1 and not port):
        return {}
    found = fits[-1]
    method, target = _line(found)
    return {
        "request": found.request,
        "method": method,
        "target": target,
        "sequence": found.seq,
        "began_wall_ns": found.wall_ns,
        "log_offsets": dict(found.fields.get("log_offsets") or {}),
    }


def _line(event: Event) -> tuple[str, str]:
    words = event.data.lstrip(b"\r\n").split(b"\n", 1)[0].split(b" ")
    return words[0].decode("latin-1"), words[1].decode("latin-1") if len(words) > 1 else ""
