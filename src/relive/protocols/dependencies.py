"""Which servers a service was connected to that nobody recorded: a replay will lack them.

They are read from commits, which hold each open connection: one that is made and closed between two commits is not seen. Where the
border was recorded, everything is. Else what the recorder inside knows is answered in a replay: an HTTP or Redis server
stands with its port in what was asked. Of a database only the kind is known there, so that its connections count as recorded
where they lead to the port of that kind, or, if none does, wherever they lead.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from relive.errors import RecordingError
from relive.model.commit import Connection
from relive.model.dependency import Dependency, address_of, service_at
from relive.recording.events import EventKind
from relive.recording.reader import Recording

__all__ = ["peers_of", "recorded_ports", "unrecorded"]

_SYSTEM_PORTS = {"postgresql": 5432, "mysql": 3306}
_SCHEME_PORTS = {"http:": 80, "https:": 443}
_CALLS = frozenset({EventKind.HTTP_CALL, EventKind.QUERY, EventKind.REDIS_COMMAND, EventKind.S3_CALL})
_MOST_BYTES = 64 << 20
Peer = tuple[str, int]


def unrecorded(connections: Iterable[Connection], egress: Path, inside: Path) -> list[Dependency]:
    """In the order of the connections, each destination once.

    Args:
        connections: of commits of one life; egress, inside: directories of its recordings.
    """
    peers = peers_of(connections)
    if not peers or Recording(egress).segments():
        return []
    try:
        known = recorded_ports(Recording(inside), {port for _, port in peers})
    except RecordingError:  # whoever tells of the recording tells of this
        known = set()
    return [
        Dependency(to=address_of(peer), service=service_at(peer[1])) for peer in peers if peer[1] not in known
    ]


def peers_of(connections: Iterable[Connection]) -> list[Peer]:
    """Destinations outside of the service, each once: a connection both of whose ends are its own leads to none."""
    held = list(connections)
    ends = {one.local for one in held}
    return list(dict.fromkeys(one.peer for one in held if not one.inward and one.peer not in ends))


def recorded_ports(inside: Recording, ports: Collection[int]) -> set[int]:
    """Those of the ports of whose servers the recorder inside knows what was asked; it reads until all are known.

    Of a long recording the latest segments, about 64 MiB, have to do.
    """
    known: set[int] = set()
    after = _latest(inside)
    if after is None:
        return known
    needles = [b":%d" % port for port in ports] + [name.encode() for name in _SYSTEM_PORTS]
    needles += [b"http://"] * (80 in ports) + [b"https://"] * (443 in ports)
    for event in inside.events_naming(needles, after=after):
        if event.kind in _CALLS:
            known |= set(_ports(event.fields.get("asked"), ports))
        if known.issuperset(ports):
            break
    return known


def _latest(inside: Recording) -> int | None:
    """The number behind which the latest segments begin; None where there are none."""
    left, after = _MOST_BYTES, None
    for path in reversed(inside.segments()):
        if left <= 0:
            break
        after = int(path.stem) - 1
        try:
            left -= path.stat().st_size
        except OSError:  # retention has dropped it meanwhile
            break
    return after


def _ports(asked: object, ports: Collection[int]) -> Iterator[int]:
    if isinstance(asked, str):  # packed as JSON
        try:
            asked = json.loads(asked)
        except ValueError:
            return
    if not isinstance(asked, dict):
        return
    place = str(asked.get("url") or asked.get("server") or "")
    authority = place.partition("://")[2].partition("/")[0] if "://" in place else place
    number = authority.rpartition(":")[2]
    if number.isascii() and number.isdigit() and len(number) <= 5:
        yield int(number)
    elif (port := _SCHEME_PORTS.get(place.partition("//")[0])) is not None:
        yield port
    if (usual := _SYSTEM_PORTS.get(str(asked.get("system")))) is not None:
        yield from [usual] if usual in ports else ports
