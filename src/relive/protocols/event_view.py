"""A call as the recorder in Python processes would have told it: one form for timelines, spans and HAR, whoever recorded it."""

from __future__ import annotations

from typing import Any

from relive.protocols.call import Call, CallEnd
from relive.recording.events import EventKind
from relive.recording.http1 import dechunk

__all__ = ["event_fields"]

_HTTP = frozenset((EventKind.HTTP_CALL, EventKind.S3_CALL))
_MOST_PIECES = 256
_ERRORS = {
    CallEnd.CLOSED: ("builtins.ConnectionError", "the other end closed the connection"),
    CallEnd.RESET: ("builtins.ConnectionResetError", "Connection reset by peer"),
    CallEnd.GIVEN_UP: (
        "builtins.TimeoutError",
        "the service closed the connection before the answer was whole",
    ),
}


def event_fields(call: Call) -> tuple[dict[str, Any], bytes]:
    """Fields and data of the event, see ``src/relive_inprocess/relive_recorder/calls.py``.

    ``asked`` holds URLs and bodies as they were sent: secrets in them are masked by whoever shows it
    (``relive.incidents.report.masking``). ``error`` stands where the answer did not become whole; ``whole`` is False then, as
    where the recording ended before.
    """
    if "message" in call.asked:
        return dict(call.asked), b""
    fields: dict[str, Any] = {"asked": dict(call.asked)}
    error = _ERRORS.get(call.end)
    if call.end is CallEnd.ANSWERED or call.answer is not None:
        fields["answer"] = call.answer
    if error is not None:
        fields["error"] = {"type": error[0], "args": {"$": ["tuple", [error[1]]]}, "text": error[1]}
    if call.end is not CallEnd.ANSWERED:
        fields["whole"] = False
    if call.kind in _HTTP:
        return _http(call, fields)
    if call.ended_mono_ns is not None:
        fields["ns"] = max(0, call.ended_mono_ns - call.asked_mono_ns)
    return fields, b""


def _http(call: Call, fields: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    extra = call.extra
    fields["volatile"] = extra["volatile"]
    raw = b"".join(piece.data for piece in call.pieces)
    body = raw[extra["interim"] + extra["head"] :] if call.answer is not None else b""
    waited, sizes = _waited(call, extra["interim"] + extra["head"])
    data = dechunk(body) if extra["chunked"] else body
    if call.ended_mono_ns is not None:
        whole = max(0, call.ended_mono_ns - call.asked_mono_ns)
        fields["ns"] = min(waited, whole) if call.answer is not None else whole
        if call.answer is not None:
            fields["body_ns"] = max(0, whole - waited)
    if len(sizes) > 1:
        fields["pieces"] = sizes[:_MOST_PIECES]
    if call.answer is not None:
        fields["bytes"] = len(data)
        if call.end is not CallEnd.ANSWERED:
            fields["stage"] = "body"
    elif "error" in fields:
        fields["stage"] = "answer"
    return fields, data


def _waited(call: Call, head: int) -> tuple[int, list[int]]:
    """(from the first byte asked to the end of the answer's head, sizes of the body's pieces as they came)."""
    total = call.ended_mono_ns - call.asked_mono_ns if call.ended_mono_ns is not None else 0
    later = 0
    sizes: list[int] = []
    at = 0
    for piece in call.pieces:
        if at >= head:
            later += piece.after_ns
        stop = at + len(piece.data)
        if stop > head:
            sizes.append(stop - max(at, head))
        at = stop
    if call.end is not CallEnd.ANSWERED:
        later += call.end_after_ns
    return max(0, total - later), sizes
