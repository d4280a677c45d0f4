"""Servers to which a commit holds connections are named where nobody recorded what was said there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relive.model.commit import Connection
from relive.protocols.dependencies import unrecorded
from relive.recording.events import EventKind
from relive.recording.writer import RecordingWriter

ME = ("127.0.0.1", 40001)


def to(port: int, host: str = "10.0.0.9") -> Connection:
    return Connection(local=ME, peer=(host, port), inward=False)


def record(directory: Path, kind: EventKind, **asked: Any) -> None:
    writer = RecordingWriter(directory)
    writer.append(kind, 0, 1, b"", {"asked": asked, "pid": 2})
    writer.close()


def named(tmp_path: Path, *connections: Connection) -> list[str]:
    return [one.words for one in unrecorded(connections, tmp_path / "egress", tmp_path / "inside")]


def test_each_destination_is_named_once_with_what_listens_there_by_custom(tmp_path):
    inward = Connection(local=("127.0.0.1", 8000), peer=("127.0.0.1", 5555), inward=True)
    assert named(tmp_path, to(6379), inward, to(6379), to(4000, "::1")) == [
        "10.0.0.9:6379 (Redis)",
        "[::1]:4000",
    ]


def test_a_connection_between_its_own_processes_leads_nowhere(tmp_path):
    one = Connection(local=("127.0.0.1", 1), peer=("127.0.0.1", 2), inward=False)
    assert named(tmp_path, one, Connection(local=one.peer, peer=one.local, inward=False)) == []


def test_a_recorded_border_holds_all(tmp_path):
    record(tmp_path / "egress", EventKind.DIALOGUE_OPENED)
    assert named(tmp_path, to(6379)) == []


@pytest.mark.parametrize(
    ("kind", "asked", "known"),
    [
        (EventKind.HTTP_CALL, {"url": "http://rates:4000/EUR"}, 4000),
        (EventKind.HTTP_CALL, {"url": "http://rates/EUR:4001"}, 80),
        (EventKind.REDIS_COMMAND, {"server": "cache:6379"}, 6379),
        (EventKind.QUERY, {"system": "postgresql", "database": "shop"}, 5432),
    ],
)
def test_what_the_recorder_inside_knows_is_answered(tmp_path, kind, asked, known):
    record(tmp_path / "inside", kind, **asked)
    assert named(tmp_path, to(known), to(4001)) == ["10.0.0.9:4001"]


def test_a_database_at_another_port_counts_as_recorded(tmp_path):
    record(tmp_path / "inside", EventKind.QUERY, system="postgresql", database="shop")
    assert named(tmp_path, to(15432)) == []
