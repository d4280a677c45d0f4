"""A failure with what lies beside it, made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from model.test_failure import changed
from relive.model.failure import read_package
from relive.model.incident import FailureKind, Incident, Sighting
from relive.model.launch import Launch
from relive.recording.events import Event, EventKind
from relive.replay.fresh.evidence import FreshInput

LAUNCH = Launch(command=["uvicorn", "shop:app"], directory="/srv", user="shop", address=("127.0.0.1", 8001))


def event(kind: EventKind, own_seq: int, request: int = 12, data: bytes = b"", **fields: Any) -> Event:
    """An event of process 7 as it lies beside an incident."""
    fields = {"pid": 7, "lane": 1, **fields, "own_seq": own_seq}
    return Event(own_seq, own_seq, own_seq, kind, 0, request, data, fields)


def started(**fields: Any) -> Event:
    about = {"server": "asgi", "method": "POST", "target": "/payments?x=1", "headers": [["host", "a"]]}
    return event(EventKind.HANDLING_STARTED, 40, **{**about, **fields})


def query(own_seq: int, sql: str, request: int = 12) -> Event:
    return event(EventKind.QUERY, own_seq, request, asked={"sql": sql}, answer={})


def clock(own_seq: int, value: float, request: int = 0) -> Event:
    return event(EventKind.CLOCK, own_seq, request, source="time.time", value=value)


def case(
    *events: Event,
    beginning: list[Event] | None = None,
    launch: Launch | None = LAUNCH,
    wire: bytes | None = None,
    bodies: Path = Path("/nowhere"),
    **package: Any,
) -> FreshInput:
    sighting = Sighting(kind=FailureKind.EXCEPTION, fingerprint="exception ab", summary="s", seen_wall_ns=1)
    incident = Incident(
        number=3, service="shop", life="L", sighting=sighting, before=None, at=None, last_seen_wall_ns=1
    )
    read = read_package(changed(**package))
    return FreshInput(incident, read, list(events), beginning or [], launch, wire, bodies)
