"""Requests that are sent again, known by their content."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from relive_recorder.playing.answers import RecordedEvent

__all__ = ["RecordedRequests"]


class RecordedRequests:
    """Recorded requests that have not come again yet. Not for two threads at once."""

    def __init__(self, events: List[RecordedEvent]) -> None:
        self._left = [event for event in events if event.kind == "handling-started" and event.request > 0]

    def claim(self, about: Dict[str, Any]) -> Optional[RecordedEvent]:
        """The recorded request of the same method, target and body; of several that of the same peer and headers, or the first."""
        best: Optional[Tuple[int, RecordedEvent]] = None
        for event in self._left:
            likeness = _likeness(event, about)
            if likeness is not None and (best is None or likeness > best[0]):
                best = likeness, event
        if best is None:
            return None
        self._left = [event for event in self._left if event is not best[1]]
        return best[1]


def _likeness(event: RecordedEvent, about: Dict[str, Any]) -> Optional[int]:
    """How much beside the content is equal; None: the content is another one."""
    fields = event.fields
    if any(fields.get(name) != about.get(name) for name in ("method", "target")):
        return None
    body = about.get("body")
    if body is not None and event.data and event.body() != body:
        return None
    peer, headers = about.get("peer"), about.get("headers")
    same_peer = peer is not None and fields.get("peer") == list(peer)
    same_headers = headers is not None and fields.get("headers") == [list(pair) for pair in headers]
    return 2 * same_peer + same_headers
