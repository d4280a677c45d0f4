"""Who had written what a request read: keys of Redis, fields of hashes, rows of tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relive.incidents.report.origins import Origins, needles, origins_of
from relive.recording.events import EventKind
from relive.recording.reader import Recording
from relive.recording.writer import RecordingWriter

from .builders import Events

REDIS, QUERY = EventKind.REDIS_COMMAND, EventKind.QUERY


def others() -> Events:
    return Events(request=0)


def reading(at: float, *commands: list[Any]) -> list[Any]:
    own = Events()
    for command in commands:
        own.add(REDIS, at, asked={"command": command})
    return own.made


def test_the_last_writes_of_a_key_are_told_with_their_thread_and_how_long_before() -> None:
    before = others()
    for at, lane, value in ((-40, 1, "11"), (-30, 1, "12"), (-20, 1, "13"), (-10, 2, "2"), (5, 1, "14")):
        before.add(REDIS, at, lane=lane, asked={"command": ["HSET", "active", "queue", value]}, answer=1)
    (origin,) = origins_of(reading(1, ["HGET", "active", "queue"]), before.made)
    assert (origin.name, origin.writes) == ("active queue", 4)
    assert [(write.what, write.thread) for write in origin.last] == [
        ("HSET active queue 12", "A"),
        ("HSET active queue 13", "A"),
        ("HSET active queue 2", "B"),
    ]
    assert [round(write.before_ns / 1e6) for write in origin.last] == [31, 21, 11]


@pytest.mark.parametrize(
    ("read", "write", "is_origin"),
    [
        (["GET", "a"], ["SET", "a", "1"], True),
        (["get", "a"], ["set", "a", "1"], True),
        (["GET", "a"], ["SET", "b", "a"], False),
        (["GET", "a"], ["GET", "a"], False),
        (["MGET", "b", "a"], ["DEL", "z", "a"], True),
        (["GET", "a"], ["MSET", "b", "1", "a", "2"], True),
        (["GET", "1"], ["MSET", "b", "1", "a", "2"], False),
        (["GET", "a"], ["RENAME", "b", "a"], True),
        (["HGET", "h", "one"], ["HSET", "h", "one", "1"], True),
        (["HGET", "h", "one"], ["HSET", "h", "two", "one"], False),
        (["HGET", "h", "one"], ["HDEL", "h", "two", "one"], True),
        (["HGET", "h", "one"], ["DEL", "h"], True),
        (["HGETALL", "h"], ["HSET", "h", "one", "1"], True),
        (["LRANGE", "l", 0, -1], ["RPUSH", "l", "x"], True),
        (["ZCOUNT", "z", 0, 1], ["ZADD", "z", 1, "x"], True),
        (["LCS", "b", "a"], ["SET", "a", "1"], True),
        (["GET", {"$": ["bytes", "YQ=="]}], ["SET", "a", "1"], True),
        (["GET", "a"], ["FLUSHALL"], False),
        (["GET", "a"], "nonsense", False),
    ],
)
def test_which_commands_write_what_is_read(read: list[Any], write: Any, is_origin: bool) -> None:
    before = others()
    before.add(REDIS, -1, asked={"command": write})
    assert bool(origins_of(reading(1, read), before.made)) is is_origin


def test_commands_of_a_pipeline_are_looked_at_one_by_one() -> None:
    before, own = others(), Events()
    before.add(REDIS, -1, asked={"commands": [["INCR", "x"], ["SET", "a", "1"]]})
    own.add(REDIS, 1, asked={"commands": [["GET", "b"], ["GET", "a"]]})
    assert [origin.name for origin in origins_of(own.made, before.made)] == ["a"]


@pytest.mark.parametrize(
    ("read", "write", "is_origin"),
    [
        (
            ("SELECT * FROM orders WHERE id = ?", [7]),
            ("UPDATE orders SET state = ? WHERE id = ?", ["x", 7]),
            True,
        ),
        (
            ("SELECT * FROM orders WHERE id = ?", [7]),
            ("UPDATE orders SET state = ? WHERE id = ?", ["x", 8]),
            False,
        ),
        (("SELECT * FROM orders", []), ("INSERT INTO orders VALUES (?)", [8]), True),
        (("SELECT * FROM orders", []), ("INSERT INTO carts VALUES (?)", [8]), False),
        (('SELECT 1 FROM a JOIN public."b" ON 1', []), ("delete from b", []), True),
        (("UPDATE orders SET x = 1", []), ("UPDATE orders SET x = 1", []), False),
    ],
)
def test_which_statements_write_what_is_read(
    read: tuple[str, list[Any]], write: tuple[str, list[Any]], is_origin: bool
) -> None:
    before, own = others(), Events()
    before.add(QUERY, -1, asked={"statement": write[0], "parameters": write[1]})
    own.add(QUERY, 1, asked={"statement": read[0], "parameters": read[1]})
    assert bool(origins_of(own.made, before.made)) is is_origin


def test_a_recording_is_searched_for_what_can_be_an_origin_only(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path)
    for key in ("a", "key:17", "b", "key:171"):
        writer.append(REDIS, 0, 0, b"", {"asked": {"command": ["SET", key, "1"]}})
    writer.append(REDIS, 0, 0, b"key:17", {})
    writer.close()
    wanted = needles(Origins(reading(1, ["GET", "key:17"])).names)
    found = [event.seq for event in Recording(tmp_path).events_naming(wanted)]
    assert found == [2, 4, 5]
    assert list(Recording(tmp_path).events_naming([])) == []
