"""A process that begins in a replay: a service that was started anew, to be sent one recorded request (``relive reproduce``).

It was never recorded itself, so what it does before the request has no place in the recording, only a likeness:

1. Outside of the judged request the clock and randomness are real. Calls are answered by what the recorded process asked when it
   began, by content, the last such answer again and again; for all others the real call goes out, and finds a sealed network.
2. The judged request is recognised, as in every replay, and answered as in every replay. What the recording of it does not hold is
   looked for in the recorded beginning: a pool that connects at its first use did so in another request then.
3. Where the file of the request names none, the whole program is judged: all calls and readings are answered from it.

The key of placeholders (``scrub``) died with the recorded process, so one placeholder is as good as another here.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Tuple

from relive_recorder import calls, context
from relive_recorder.playing.answer_index import content
from relive_recorder.playing.answers import Answers, RecordedEvent
from relive_recorder.playing.player import Player, play, read_or_none
from relive_recorder.playing.recognising import RecordedRequests
from relive_recorder.recorder import recorder

__all__ = ["FreshPlayer", "begin"]

_PLACEHOLDER = re.compile("<secret:[0-9a-f]{8}>")


def begin(names: List[str]) -> None:
    """Play from now on.

    Args:
        names: of the file of the judged request, and of that of the beginning, in ``answers`` beside the rings.

    Raises:
        ValueError: these are not two names.
    """
    request, beginning = names
    directory = f"{recorder.options.rings}/answers"
    play(FreshPlayer(directory, read_or_none(directory, request), read_or_none(directory, beginning)))


class _Beginning:
    """What recorded processes asked before; each answer is there as often as it is wanted."""

    def __init__(self, events: List[RecordedEvent]) -> None:
        self._left: Dict[Any, List[RecordedEvent]] = {}
        for event in reversed(events):
            if "asked" in event.fields:
                self._left.setdefault((event.kind, content(event.fields["asked"], is_alike=True)), []).append(
                    event
                )

    def call(self, kind: str, asked: Any) -> Optional[RecordedEvent]:
        row = self._left.get((kind, content(asked, is_alike=True)))
        if not row:
            return None
        return row.pop() if len(row) > 1 else row[0]


class FreshPlayer(Player):
    """See the module. Any thread may ask."""

    def __init__(self, directory: str, request: Optional[Answers], beginning: Optional[Answers]) -> None:
        super().__init__(directory, request, 0, is_alike=True)
        self._recorded_beginning = beginning
        self._beginning = _Beginning(beginning.events if beginning is not None else [])
        events = request.events if request is not None else []
        self._judged = request.judged if request is not None else 0
        self._recorded_requests = _SimilarRequests(events)

    def find(self, channel: calls.Channel, asked: Dict[str, Any]) -> Optional[calls.KeptAnswer]:
        """See ``Channel.find``."""
        if self._judged not in (0, context.here().number):
            kept = self._from_beginning(channel.kind, asked) or channel.simulated(asked)
            if kept is None:
                recorder.emit("miss", {"kind": channel.kind, "asked": asked, "policy": "pass"})
            return kept
        request, lane = self._judged, context.lane()
        with self._asking:
            recorded = self._index.call(request, lane, channel.kind, asked, anywhere=not request)
            if recorded is not None:
                kept = self._kept(recorded)
                if kept is not None:
                    return kept
            nearest = self._nearest(request, lane, channel.kind, asked)
        kept = self._from_beginning(channel.kind, asked)
        if kept is not None:
            if request:
                recorder.emit("note", {"about": "beginning", "kind": channel.kind, "asked": asked})
            return kept
        simulated = channel.simulated(asked)
        if simulated is None:
            self._miss(channel.kind, asked, nearest)
        return simulated

    def _from_beginning(self, kind: str, asked: Dict[str, Any]) -> Optional[calls.KeptAnswer]:
        with self._asking:
            recorded = self._beginning.call(kind, asked)
            return self._kept(recorded) if recorded is not None else None

    def reading(self, kind: str, source: str) -> Optional[Tuple[Any, bool]]:
        """See ``calls.next_reading``."""
        if self._judged not in (0, context.here().number):
            return None
        return super().reading(kind, source)

    def child(self, name: Optional[str]) -> Player:
        """The player of a process that was just forked: it may be the one that gets the request."""
        return FreshPlayer(self._directory, self._answers, self._recorded_beginning)


class _SimilarRequests(RecordedRequests):
    """Knows a request also by a target in which other placeholders stand."""

    def claim(self, about: Dict[str, Any]) -> Optional[RecordedEvent]:
        known = super().claim(about)
        if known is not None:
            return known
        wanted = _PLACEHOLDER.sub("<secret>", str(about.get("target")))
        for event in self._left:
            target = event.fields.get("target")
            if type(target) is str and _PLACEHOLDER.sub("<secret>", target) == wanted:
                return super().claim(dict(about, target=target))
        return None
