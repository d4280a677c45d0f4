"""What is kept beside an incident: its error package, and what its request did, as the recorder inside told it.

Files of incident N: ``N.package.json``, an error package (``relive.model.failure``); ``N.events.jsonl``, one JSON object a line
with ``seq`` (of the recording from inside), ``mono_ns``, ``wall_ns``, ``kind``, ``request``, ``fields``, and ``data`` (base64)
where the event has some. They are copies, so that the recording's retention does not take them away.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from relive.errors import RecordingCorrupt
from relive.model.failure import ErrorPackage, read_package
from relive.record.events import Event, EventKind
from relive.store.durable import sync_directory
from relive.store.troubles import disk_errors

__all__ = ["Evidence", "events_of", "keep", "package_of"]

_DATA_MOST = 8 << 20  # [bytes] of all events of one incident; later ones are kept without theirs

_KINDS = frozenset(kind.value for kind in EventKind)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is kept of one failure.

    Attributes:
        package: the error package as the recorder wrote it, checked; None if it made none.
    """

    package: bytes | None
    events: list[Event]


def keep(directory: Path, number: int, evidence: Evidence) -> None:
    """Write it beside the incident, durable on return; a package that is there already stays with its events.

    Raises:
        DiskFull, StoreError: as ``disk_errors``.
    """
    package, events = _paths(directory, number)
    if package.exists():
        return
    with disk_errors("writing what belongs to an incident"):
        _replace(events, _lines(evidence.events))
        if evidence.package is not None:
            _replace(package, [evidence.package])
        sync_directory(directory)


def package_of(directory: Path, number: int) -> ErrorPackage | None:
    """The error package of an incident, None if there is none.

    Raises:
        RecordingCorrupt: what lies there is none.
    """
    try:
        data = _paths(directory, number)[0].read_bytes()
    except FileNotFoundError:
        return None
    return read_package(data)


def events_of(directory: Path, number: int) -> list[Event]:
    """The events beside an incident, in their order; none if there are none. Kinds of a later Relive are passed over.

    Raises:
        RecordingCorrupt: what lies there is none.
    """
    path = _paths(directory, number)[1]
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    found = (_event(path, at, line) for at, line in enumerate(lines, 1))
    return [event for event in found if event is not None]


def _event(path: Path, at: int, line: bytes) -> Event | None:
    try:
        told = json.loads(line)
        numbers = [told["seq"], told["mono_ns"], told["wall_ns"], told["request"]]
        if not all(type(one) is int and 0 <= one < 1 << 63 for one in numbers):
            raise ValueError("a number is none")
        kind, fields = told["kind"], told["fields"]
        if not isinstance(kind, str) or not isinstance(fields, dict):
            raise ValueError("kind or fields are none")
        data = base64.b64decode(told.get("data", ""), validate=True)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RecordingCorrupt(
            "the events beside an incident cannot be read", cause=f"{path}, line {at}: {error!r:.200}"
        ) from error
    if kind not in _KINDS:
        return None
    return Event(numbers[0], numbers[1], numbers[2], EventKind(kind), 0, numbers[3], data, fields)


def _paths(directory: Path, number: int) -> tuple[Path, Path]:
    return directory / f"{number}.package.json", directory / f"{number}.events.jsonl"


def _lines(events: Iterable[Event]) -> Iterable[bytes]:
    held = 0
    for event in events:
        line: dict[str, object] = {
            "seq": event.seq,
            "mono_ns": event.mono_ns,
            "wall_ns": event.wall_ns,
            "kind": event.kind.value,
            "request": event.request,
            "fields": dict(event.fields),
        }
        held += len(event.data)
        if event.data and held <= _DATA_MOST:
            line["data"] = base64.b64encode(event.data).decode()
        yield json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _replace(path: Path, pieces: Iterable[bytes]) -> None:
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("wb") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
