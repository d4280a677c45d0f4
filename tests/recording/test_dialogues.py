"""Dialogues from events: order, places, sequence numbers that come round, damage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import RecordingCorrupt
from relive.recording.dialogues import DirectionEnd, Tls, Way, read_dialogues
from relive.recording.events import Event, EventKind

OPENED = {"to": ["10.0.0.5", 5432], "origin": ["10.0.0.2", 40000], "connect_ns": 7}


def event(
    seq: int, kind: EventKind, fields: Mapping[str, Any], data: bytes = b"", connection: int = 1
) -> Event:
    return Event(seq, 1000 + seq, 2000 + seq, kind, connection=connection, data=data, fields=fields)


def test_what_was_said_is_in_order_and_between_places() -> None:
    (dialogue,) = read_dialogues(
        [
            event(1, EventKind.DIALOGUE_OPENED, {**OPENED, "tls": "opened"}),
            event(2, EventKind.DIALOGUE_UP, {"at": 0}, b"ask"),
            event(3, EventKind.DIALOGUE_DOWN, {"at": 0}, b"ans"),
            event(4, EventKind.DIALOGUE_UP, {"at": 3}, b"more"),
            event(5, EventKind.DIALOGUE_DOWN, {"at": 0}, b"not of it", connection=9),
            event(6, EventKind.DIALOGUE_ENDED, {"way": "up", "how": "reset", "bytes": 9, "cut": 2}),
        ]
    )
    assert (dialogue.to, dialogue.origin, dialogue.connect_ns) == (("10.0.0.5", 5432), ("10.0.0.2", 40000), 7)
    assert dialogue.tls is Tls.OPENED
    assert [piece.data for piece in dialogue.pieces] == [b"ask", b"ans", b"more"]
    assert dialogue.text(Way.UP, 2, 5) == b"kmo"
    assert dialogue.endings == {Way.UP: DirectionEnd("reset", 9, 2, 1006, 6)}


def test_bytes_that_two_recorders_recorded_are_there_once() -> None:
    """The first was killed after it recorded them, and before it sent them."""
    (dialogue,) = read_dialogues(
        [
            event(1, EventKind.DIALOGUE_OPENED, OPENED),
            event(2, EventKind.DIALOGUE_UP, {"at": 0}, b"ask"),
            event(3, EventKind.DIALOGUE_DOWN, {"at": 0}, b"answer"),
            event(4, EventKind.DIALOGUE_OPENED, {**OPENED, "up_at": 1, "down_at": 2}),
            event(5, EventKind.DIALOGUE_DOWN, {"at": 2}, b"swer"),
            event(6, EventKind.DIALOGUE_UP, {"at": 1}, b"sk more"),
        ]
    )
    assert [(piece.way, piece.at, piece.data, piece.seq) for piece in dialogue.pieces] == [
        (Way.UP, 0, b"ask", 2),
        (Way.DOWN, 0, b"answer", 3),
        (Way.UP, 3, b" more", 6),
    ]


def test_a_connection_that_did_not_come_about_tells_why() -> None:
    (dialogue,) = read_dialogues([event(1, EventKind.DIALOGUE_OPENED, {**OPENED, "error": "ECONNREFUSED"})])
    assert dialogue.error == "ECONNREFUSED"
    assert dialogue.place(Way.UP, 5) is None


@given(base=st.integers(0, 2**32 - 1), said=st.integers(0, 2**40), back=st.integers(0, 2**20))
def test_a_sequence_number_is_found_also_after_it_came_round(base: int, said: int, back: int) -> None:
    place = max(0, said - back)
    (dialogue,) = read_dialogues(
        [
            event(1, EventKind.DIALOGUE_OPENED, {**OPENED, "up_base": base, "down_base": 0}),
            event(2, EventKind.DIALOGUE_ENDED, {"way": "up", "how": "closed", "bytes": said}),
        ]
    )
    assert dialogue.place(Way.UP, (base + place) % 2**32) == place


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (EventKind.DIALOGUE_OPENED, {"to": ["10.0.0.5"], "origin": ["10.0.0.2", 1]}),
        (EventKind.DIALOGUE_OPENED, {"to": ["10.0.0.5", 1]}),
        (EventKind.DIALOGUE_UP, {"at": "here"}),
        (EventKind.DIALOGUE_ENDED, {"way": "sideways", "how": "closed", "bytes": 1}),
    ],
)
def test_an_event_without_its_fields_is_damage(kind: EventKind, fields: dict[str, Any]) -> None:
    with pytest.raises(RecordingCorrupt, match="event 2"):
        read_dialogues([event(1, EventKind.DIALOGUE_OPENED, OPENED), event(2, kind, fields)])
