"""Exceptions that the recorder in a sandbox tells of."""

from __future__ import annotations

import contextlib

from relive.errors import RecordingError
from relive.model.failure import read_package
from relive.model.reproduction import Raised
from relive.recording.events import Event, EventKind

__all__ = ["raised_in"]


def raised_in(events: list[Event], request: int | None) -> list[Raised]:
    """Exceptions that escaped from a request, or with None from anything."""
    found = []
    for event in events:
        if event.kind is EventKind.FAILURE and request in (None, event.request):
            found.append(_one_raised(event))
    return found


def _one_raised(event: Event) -> Raised:
    with contextlib.suppress(RecordingError):
        if event.data:
            return Raised.of(read_package(event.data))
    fields = event.fields
    at: dict[str, object] = {}
    match fields.get("at"):
        case (str(file), int(line), str(function)):
            at = {"file": file, "line": line, "function": function}
    words = {name: str(fields.get(name, "")) for name in ("type", "text", "fingerprint")}
    return Raised.model_validate({**words, **at})
