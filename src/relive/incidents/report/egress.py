"""What a service said to others while it served a request, from the recording of its border, as events like those from inside.

The border does not know for which request something was said: it is what was asked between the request's beginning and its end.
Where other requests were served at the same time that may be theirs, and is told. Calls that the recorder inside told already
are left out: those that lie within a call of the same kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from relive.incidents.report.masking import Mask
from relive.protocols.call import Call, CallEnd
from relive.protocols.egress_window import read_egress
from relive.protocols.event_view import event_fields
from relive.protocols.registry import ProtocolRegistry
from relive.recording.dialogues import Dialogue, Tls
from relive.recording.events import Event, EventKind

__all__ = ["InprocessCalls", "egress_events"]

_MOST = 5000  # events
_SLACK_NS = 2_000_000  # between a call as the library saw it and its bytes at the border
_SAID = frozenset({"asked", "answer", "error", "message", "rows", "volatile"})
_NETWORK_CALLS = frozenset({EventKind.QUERY, EventKind.HTTP_CALL, EventKind.REDIS_COMMAND, EventKind.S3_CALL})


def egress_events(
    directory: Path, began_ns: int, ended_ns: int, inside: Sequence[Event], mask: Mask
) -> tuple[list[Event], list[str]]:
    """Calls, connections that could not be made, and name lookups; and notes on what could not be read.

    Args:
        began_ns, ended_ns: monotonic times of the request.
        inside: what the recorder inside told of it.
    """
    egress = read_egress(directory, began_ns, ended_ns)
    if egress is None:
        return [], []
    notes = [f"the recording of the border: {egress.damage}"] if egress.damage else []
    if egress.left_out:
        notes.append(f"{egress.left_out} events of the border were too many to be looked at")
    protocols, known = ProtocolRegistry(), InprocessCalls(inside)
    wall_ns = _Wall(egress.lookups, inside)
    found: list[Event] = []
    for dialogue in egress.dialogues:
        if dialogue.error is not None and began_ns <= dialogue.opened_mono_ns <= ended_ns:
            found.append(_failed(dialogue, wall_ns))
        if dialogue.error is not None or dialogue.tls is Tls.CLOSED or not _reaches(dialogue, began_ns):
            continue
        for call in protocols.protocol_of(dialogue).calls(dialogue):
            if began_ns <= call.asked_mono_ns <= ended_ns and not known.covers(call):
                found.append(_event(call, _seq_of(dialogue, call), wall_ns, mask))
    lookups = [one for one in egress.lookups if began_ns <= one.mono_ns <= ended_ns]
    found += [_event(call, call.index, wall_ns, mask) for call in protocols.names.lookups(lookups)]
    found.sort(key=lambda event: event.mono_ns)
    if len(found) > _MOST:
        notes.append(f"only the first {_MOST} of {len(found)} calls at the border are told")
    return found[:_MOST], notes


class InprocessCalls:
    """Calls that were told from inside."""

    def __init__(self, inside: Iterable[Event]) -> None:
        self._spans: dict[EventKind, list[tuple[int, int]]] = {}
        for event in inside:
            took = event.fields.get("ns")
            if event.kind in _NETWORK_CALLS and isinstance(took, int):
                # It is told when the body of the answer has been read, which is after the call has come back.
                rest = event.fields.get("body_ns")
                began = event.mono_ns - took - (rest if isinstance(rest, int) else 0)
                self._spans.setdefault(event.kind, []).append((began, event.mono_ns))

    def covers(self, call: Call) -> bool:
        """A call of that kind was under way when this one was asked."""
        return any(
            begin - _SLACK_NS <= call.asked_mono_ns <= end + _SLACK_NS
            for begin, end in self._spans.get(call.kind, ())
        )


class _Wall:
    """The wall clock of monotonic times, by any event that has both; 0 where there is none."""

    def __init__(self, *events: Iterable[Event]) -> None:
        one = next((event for some in events for event in some), None)
        self._shift = one.wall_ns - one.mono_ns if one is not None else 0

    def __call__(self, mono_ns: int) -> int:
        return mono_ns + self._shift


def _reaches(dialogue: Dialogue, began_ns: int) -> bool:
    """Something was said on it since then."""
    return bool(dialogue.pieces) and dialogue.pieces[-1].mono_ns >= began_ns


def _failed(dialogue: Dialogue, wall: _Wall) -> Event:
    ended = dialogue.opened_mono_ns + dialogue.connect_ns
    return Event(
        dialogue.opened_seq,
        ended,
        wall(ended),
        EventKind.DIALOGUE_OPENED,
        connection=dialogue.number,
        fields={"to": list(dialogue.to), "error": dialogue.error, "ns": dialogue.connect_ns},
    )


def _event(call: Call, seq: int, wall: _Wall, mask: Mask) -> Event:
    """The call as the recorder inside would tell it."""
    ended = call.ended_mono_ns or call.asked_mono_ns
    raw, data = event_fields(call)
    fields = {name: mask.packed(value) if name in _SAID else value for name, value in raw.items()}
    fields["to"] = list(call.to)
    if call.end is CallEnd.OPEN:
        fields["error"] = {"type": "NoAnswer", "args": [], "text": "no answer was recorded"}
    body = mask.body(data, _content_type(raw))
    return Event(seq, ended, wall(ended), call.kind, connection=call.dialogue, data=body, fields=fields)


def _seq_of(dialogue: Dialogue, call: Call) -> int:
    return next((piece.seq for piece in dialogue.pieces if piece.mono_ns >= call.asked_mono_ns), 0)


def _content_type(fields: dict[str, Any]) -> str:
    answer = fields.get("answer")
    headers = answer.get("headers", ()) if isinstance(answer, dict) else ()
    return next((str(value) for name, value in headers if str(name).lower() == "content-type"), "")
