"""Events with their fields as JSON has them: a recording gives tuples where lists were written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from relive.recording.events import Event

__all__ = ["plain"]


def plain(event: Event) -> Event:
    """The event with lists in its fields in place of tuples."""
    return replace(event, fields={name: _lists(value) for name, value in event.fields.items()})


def _lists(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_lists(item) for item in value]
    if isinstance(value, dict):
        return {name: _lists(item) for name, item in value.items()}
    return value
