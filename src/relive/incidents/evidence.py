"""What is kept beside an incident: its error package, and what its request did, as the recorder inside told it.

Files of incident N:

``N.package.json``      an error package (``relive.model.failure``)
``N.events.jsonl``      what the request did: one JSON object a line with ``seq`` (of the recording from inside), ``mono_ns``,
                        ``wall_ns``, ``kind``, ``request``, ``fields``, and ``data`` (base64) where the event has some
``N.beginning.jsonl``   in the same form, what its process and those that forked it did when they began, as far as it is kept
``N.launch.json``       how the service had been started (``relive.model.launch``)
``N.request``           the request as it was on the wire, where the proxy had all of it
``N.bodies/``           long bodies that events name
``N.sums``              checksums of all of these (``checksums``)

They are copies, so that the recording's retention does not take them away. Whoever has these files and ``N.json`` can reproduce
the failure without any commit.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from relive.errors import RecordingCorrupt
from relive.incidents.checksums import damaged_beside, read_beside, sums_of
from relive.incidents.index import enter_quietly
from relive.kernel.atomic_write import Durability, replacing, sync_directory
from relive.kernel.disk_errors import disk_errors
from relive.model.failure import ErrorPackage, read_package
from relive.model.launch import Launch, read_launch
from relive.recording.bodies import is_body_name
from relive.recording.events import Event, EventKind

__all__ = [
    "Evidence",
    "beginning_of",
    "bodies_of",
    "event_line",
    "events_of",
    "launch_of",
    "package_of",
    "read",
    "read_events",
    "replace",
    "replace_bodies",
    "request_of",
    "seal_evidence",
    "store_evidence",
]

_DATA_MOST = 8 << 20  # [bytes] of all events of one incident; later ones are kept without theirs
_BODIES_MOST = 64 << 20  # [bytes] of all long bodies of one incident; later ones are left out

_KINDS = frozenset(kind.value for kind in EventKind)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is kept of one failure.

    Attributes:
        package: the error package as the recorder wrote it, checked; None if it made none.
        beginning: what its process did when it began; see ``relive.agent.capsule.start_events``.
        request: whole, as it was on the wire; None where the proxy had not all of it.
        bodies: directory of the long bodies that the events name; None: none is kept.
    """

    package: bytes | None
    events: list[Event]
    beginning: list[Event] = field(default_factory=list)
    launch: Launch | None = None
    request: bytes | None = None
    bodies: Path | None = None


def store_evidence(directory: Path, number: int, evidence: Evidence) -> None:
    """Write it beside the incident, durable on return; a package that is there already stays with its events.

    Raises:
        DiskFull, StoreError: as ``disk_errors``.
    """
    package, events = _paths(directory, number)
    if package.exists():
        return
    with disk_errors("writing what belongs to an incident"):
        _beside(directory, number, "sums").unlink(missing_ok=True)
        _replace(events, _lines(evidence.events))
        if evidence.beginning:
            _replace(_beside(directory, number, "beginning.jsonl"), _lines(evidence.beginning))
        if evidence.launch is not None:
            text = evidence.launch.model_dump_json(indent=2)
            _replace(_beside(directory, number, "launch.json"), [text.encode()])
        if evidence.request is not None:
            _replace(_beside(directory, number, "request"), [evidence.request])
        if evidence.bodies is not None:
            named = [*evidence.events, *evidence.beginning]
            _copy_bodies(evidence.bodies, _beside(directory, number, "bodies"), named)
        if evidence.package is not None:
            _replace(package, [evidence.package])
        sync_directory(directory)
        seal_evidence(directory, number)
    enter_quietly(directory, number)


def seal_evidence(directory: Path, number: int) -> None:
    """Write down the checksums of what lies beside an incident now, durable on return."""
    _replace(_beside(directory, number, "sums"), [sums_of(directory, number)])
    sync_directory(directory)


def read(directory: Path, number: int) -> Evidence:
    """What was kept, without the request and the long bodies; raises RecordingCorrupt where a part is damaged."""
    package = read_beside(directory, number, "package.json")
    return Evidence(
        package, events_of(directory, number), beginning_of(directory, number), launch_of(directory, number)
    )


def replace(directory: Path, number: int, evidence: Evidence) -> None:
    """Put the package, events, beginning and launch in the place of those that are there, durable on return.

    Raises:
        DiskFull, StoreError: as ``disk_errors``.
    """
    package, events = _paths(directory, number)
    with disk_errors("writing what belongs to an incident"):
        _beside(directory, number, "sums").unlink(missing_ok=True)
        if evidence.events:
            _replace(events, _lines(evidence.events))
        if evidence.beginning:
            _replace(_beside(directory, number, "beginning.jsonl"), _lines(evidence.beginning))
        if evidence.launch is not None:
            _replace(
                _beside(directory, number, "launch.json"),
                [evidence.launch.model_dump_json(indent=2).encode()],
            )
        if evidence.package is not None:
            _replace(package, [evidence.package])
        sync_directory(directory)
        seal_evidence(directory, number)
    enter_quietly(directory, number)


def replace_bodies(directory: Path, number: int, bodies: Mapping[Path, bytes]) -> None:
    """Put other content into long bodies beside an incident, durable on return; raises as ``replace``."""
    if not bodies:
        return
    with disk_errors("writing what belongs to an incident"):
        _beside(directory, number, "sums").unlink(missing_ok=True)
        for path, data in bodies.items():
            _replace(path, [data])
        sync_directory(directory)
        seal_evidence(directory, number)


def package_of(directory: Path, number: int) -> ErrorPackage | None:
    """The error package of an incident, None if there is none.

    Raises:
        RecordingCorrupt: what lies there is none.
    """
    data = read_beside(directory, number, "package.json")
    return read_package(data) if data is not None else None


def events_of(directory: Path, number: int) -> list[Event]:
    """The events beside an incident, in their order; none if there are none. Kinds of a later Relive are passed over.

    Raises:
        RecordingCorrupt: what lies there is none.
    """
    return _events_beside(directory, number, "events.jsonl")


def beginning_of(directory: Path, number: int) -> list[Event]:
    """As ``events_of``: what the processes of an incident did when they began."""
    return _events_beside(directory, number, "beginning.jsonl")


def launch_of(directory: Path, number: int) -> Launch | None:
    """How the service of an incident had been started, None if that is not kept; raises RecordingCorrupt."""
    data = read_beside(directory, number, "launch.json")
    return read_launch(data) if data is not None else None


def request_of(directory: Path, number: int) -> bytes | None:
    """The request as it was on the wire, None if it is not kept; raises RecordingCorrupt."""
    return read_beside(directory, number, "request")


def bodies_of(directory: Path, number: int) -> Path:
    """Directory of the long bodies; it need not be there.

    Raises:
        RecordingCorrupt: one of them was changed since it was kept.
    """
    for name, why in damaged_beside(directory, number).items():
        if name.startswith(f"{number}.bodies/"):
            raise RecordingCorrupt(f"a body beside incident {number} is damaged", cause=f"{name}: {why}")
    return _beside(directory, number, "bodies")


def _events_beside(directory: Path, number: int, what: str) -> list[Event]:
    data = read_beside(directory, number, what)
    return _events_of(_beside(directory, number, what), data) if data is not None else []


def read_events(path: Path) -> list[Event]:
    """Events of one file of the form above, in their order; none where there is no file.

    Raises:
        RecordingCorrupt: what lies there is none.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return _events_of(path, data)


def _events_of(path: Path, data: bytes) -> list[Event]:
    lines = data.splitlines()
    found = (_event(path, at, line) for at, line in enumerate(lines, 1))
    return [event for event in found if event is not None]


def _event(path: Path, at: int, line: bytes) -> Event | None:
    try:
        record = json.loads(line)
        numbers = [record["seq"], record["mono_ns"], record["wall_ns"], record["request"]]
        if not all(type(one) is int and 0 <= one < 1 << 63 for one in numbers):
            raise ValueError("a number is none")
        kind, fields = record["kind"], record["fields"]
        if not isinstance(kind, str) or not isinstance(fields, dict):
            raise ValueError("kind or fields are none")
        if not all(type(fields.get(name, 0)) is int for name in ("pid", "own_seq", "lane")):
            raise ValueError("a process, a place or a lane is none")
        data = base64.b64decode(record.get("data", ""), validate=True)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RecordingCorrupt(
            "the events beside an incident cannot be read", cause=f"{path}, line {at}: {error!r:.200}"
        ) from error
    if kind not in _KINDS:
        return None
    return Event(numbers[0], numbers[1], numbers[2], EventKind(kind), 0, numbers[3], data, fields)


def _paths(directory: Path, number: int) -> tuple[Path, Path]:
    return directory / f"{number}.package.json", directory / f"{number}.events.jsonl"


def _beside(directory: Path, number: int, what: str) -> Path:
    return directory / f"{number}.{what}"


def _lines(events: Iterable[Event]) -> Iterable[bytes]:
    held = 0
    for event in events:
        held += len(event.data)
        yield event_line(event, with_data=held <= _DATA_MOST)


def event_line(event: Event, *, with_data: bool = True) -> bytes:
    """One event in the form above, its newline included."""
    line: dict[str, object] = {
        "seq": event.seq,
        "mono_ns": event.mono_ns,
        "wall_ns": event.wall_ns,
        "kind": event.kind.value,
        "request": event.request,
        "fields": dict(event.fields),
    }
    if event.data and with_data:
        line["data"] = base64.b64encode(event.data).decode()
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _copy_bodies(source: Path, target: Path, events: Iterable[Event]) -> None:
    names = {name for name in (event.fields.get("file") for event in events) if is_body_name(name)}
    held = 0
    for name in sorted(names):
        with contextlib.suppress(FileNotFoundError):  # retention was quicker
            held += (source / name).stat().st_size
            if held > _BODIES_MOST:
                return
            target.mkdir(mode=0o700, exist_ok=True)
            shutil.copyfile(source / name, target / name)


def _replace(path: Path, pieces: Iterable[bytes]) -> None:
    # For its owner only: a request may hold what opens doors elsewhere.
    with replacing(path, durability=Durability.CONTENT, mode=0o600) as file:
        file.writelines(pieces)
