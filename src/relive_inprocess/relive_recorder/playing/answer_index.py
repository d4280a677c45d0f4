"""Recorded calls and readings, put where they are found: by what was asked, in the order in which they were recorded."""

from __future__ import annotations

import collections
import json
from typing import Any, Deque, Dict, Iterable, Iterator, List, Optional, Tuple

from relive_recorder.playing.answers import RecordedEvent

__all__ = ["AnswerIndex", "Entry", "content"]

_encode = json.JSONEncoder(separators=(",", ":"), sort_keys=True, check_circular=False).encode
_NEAR = 64  # calls that a miss is compared with


class Entry:
    """One recorded call, used once at most."""

    __slots__ = ("recorded", "used")

    def __init__(self, recorded: RecordedEvent) -> None:
        self.recorded = recorded
        self.used = False


def content(asked: Any, *, is_alike: bool = False) -> str:
    """What is equal for equal calls. Half a surrogate pair is a question mark in a recording, and so here.

    Args:
        is_alike: any two secrets are equal.
    """
    text = _encode(asked)
    if "\\ud" in text:
        plain = json.dumps(asked, ensure_ascii=False).encode("utf-8", "replace")
        text = _encode(json.loads(plain))
    if is_alike and "<secret:" in text:
        import re  # only here: it would cost every start of a service

        text = re.sub("<secret:[0-9a-f]{8}>", "<secret>", text)
    return text


class AnswerIndex:
    """All calls and readings still to come. Not for two threads at once.

    Args:
        is_alike: see ``content``.
    """

    def __init__(self, *, is_alike: bool = False) -> None:
        self._is_alike = is_alike
        self._calls: Dict[Tuple[Any, ...], Deque[Entry]] = {}
        self._kinds: Dict[str, List[Entry]] = {}
        self._readings: Dict[Tuple[int, int, str, str], Deque[Any]] = {}

    def fill(self, events: Iterable[RecordedEvent], *, renumbered: Optional[int] = None) -> None:
        """Put them in; ``renumbered``: the number of their request, instead of the one they have."""
        for event in events:
            request = event.request if renumbered is None else renumbered
            fields = event.fields
            if "asked" in fields:
                key = event.kind, content(fields["asked"], is_alike=self._is_alike)
                entry = Entry(event)
                for place in ((request, event.lane, *key), (request, *key), key):
                    self._calls.setdefault(place, collections.deque()).append(entry)
                self._kinds.setdefault(event.kind, []).append(entry)
            elif "value" in fields and type(fields.get("source")) is str:
                at = request, event.lane, event.kind, fields["source"]
                self._readings.setdefault(at, collections.deque()).append(fields["value"])

    def call(
        self, request: int, lane: int, kind: str, asked: Any, *, anywhere: bool
    ) -> Optional[RecordedEvent]:
        """The first such call of that lane, else of that request, else, if ``anywhere``, of all. It is used then."""
        key = kind, content(asked, is_alike=self._is_alike)
        places: List[Tuple[Any, ...]] = [(request, lane, *key), (request, *key)]
        if anywhere:
            places.append(key)
        for place in places:
            row = self._calls.get(place)
            while row:
                entry = row.popleft()
                if not entry.used:
                    entry.used = True
                    return entry.recorded
        return None

    def reading(self, request: int, lane: int, kind: str, source: str) -> Tuple[Any, ...]:
        """(value,) of the next one; () when none is left."""
        row = self._readings.get((request, lane, kind, source))
        return (row.popleft(),) if row else ()

    def candidates(self, request: int, lane: int, kind: str, asked: Any = None) -> Iterator[RecordedEvent]:
        """Calls of a kind that were not used yet, those of the lane first, then of the request; not more than 64.

        Args:
            asked: of a query: only calls with its statement, since an answer to another one would be none to this.
        """
        left = [entry.recorded for entry in self._kinds.get(kind, ()) if not entry.used]
        if type(asked) is dict and "statement" in asked:
            left = [one for one in left if one.fields["asked"].get("statement") == asked["statement"]]
        left.sort(key=lambda one: (one.request != request, one.lane != lane))
        return iter(left[:_NEAR])
