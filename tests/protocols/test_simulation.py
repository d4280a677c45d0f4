"""A Redis that knows what was recorded answers what was not, and this is told."""

from __future__ import annotations

import sys
from typing import Any

import pytest

pytest.importorskip("fakeredis")

from protocols.answering import bytes_of
from protocols.scripted import dialogue
from relive.errors import ToolMissing
from relive.protocols.pool import Pool, PoolMatch
from relive.protocols.redis import Redis
from relive.protocols.session import Send
from relive.recording.dialogues import Way

AT = ("10.0.0.7", 6379)


def bulk(*words: bytes) -> bytes:
    return b"*%d\r\n%b" % (len(words), b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))


class Live:
    """A new connection to a server of which this was recorded: pairs of a command and its answer."""

    def __init__(self, *recorded: tuple[bytes, bytes]) -> None:
        redis = Redis("simulate")
        pieces = [piece for asked, said in recorded for piece in ((Way.UP, asked), (Way.DOWN, said))]
        self.found: list[PoolMatch] = []
        pool = Pool(redis.calls(dialogue(pieces, to=AT)), on_found=self.found.append)
        self._session: Any = redis.open(pool, 1, to=AT)

    def __call__(self, *words: bytes) -> bytes:
        return bytes_of(self._session.feed(bulk(*words)))

    def acts(self, *words: bytes) -> list[Any]:
        return list(self._session.feed(bulk(*words)))


def test_what_was_read_can_be_worked_with():
    live = Live(
        (bulk(b"GET", b"n"), b"$2\r\n41\r\n"),
        (bulk(b"HGETALL", b"h"), b"*4\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n"),
        (bulk(b"LRANGE", b"l", b"0", b"-1"), b"*2\r\n$1\r\nx\r\n$1\r\ny\r\n"),
        (bulk(b"ZRANGE", b"z", b"0", b"-1", b"WITHSCORES"), b"*2\r\n$1\r\nm\r\n$3\r\n1.5\r\n"),
        (bulk(b"SMEMBERS", b"s"), b"*1\r\n$1\r\nq\r\n"),
        (bulk(b"MGET", b"m", b"none"), b"*2\r\n$1\r\nv\r\n$-1\r\n"),
    )
    assert live(b"INCR", b"n") == b":42\r\n"
    assert live(b"HGET", b"h", b"b") == b"$1\r\n2\r\n"
    assert live(b"LLEN", b"l") == b":2\r\n"
    assert live(b"ZSCORE", b"z", b"m") == b"$3\r\n1.5\r\n"
    assert live(b"SISMEMBER", b"s", b"q") == b":1\r\n"
    assert live(b"STRLEN", b"m") == b":1\r\n"
    assert live(b"GET", b"none") == b"$-1\r\n"
    assert live(b"SET", b"new", b"1") == b"+OK\r\n"
    assert live(b"HGET", b"n", b"x").startswith(b"-WRONGTYPE")
    assert {(one.call, one.simulated, one.is_miss) for one in live.found} == {(None, True, False)}


def test_recorded_writes_are_done_when_they_are_given():
    live = Live((bulk(b"SET", b"a", b"1"), b"+OK\r\n"), (bulk(b"GET", b"a"), b"$1\r\n1\r\n"))
    assert live(b"APPEND", b"b", b"x") == b":1\r\n"
    assert live(b"EXISTS", b"a") == b":0\r\n"
    assert live(b"SET", b"a", b"1") == b"+OK\r\n"
    assert live(b"EXISTS", b"a") == b":1\r\n"
    assert [one.simulated for one in live.found] == [True, True, False, True]


def test_what_happened_before_the_replay_has_happened():
    redis = Redis("simulate")
    said = dialogue(
        [
            (Way.UP, bulk(b"SET", b"a", b"5") + bulk(b"INCR", b"a") + bulk(b"INCR", b"b")),
            (Way.DOWN, b"+OK\r\n:6\r\n:1\r\n"),
        ],
        to=AT,
    )
    calls = redis.calls(said)
    pool = Pool(calls)
    for call in calls[:2]:
        pool.use_up(call)
    session = redis.open(pool, 1, to=AT)
    assert bytes_of(session.feed(bulk(b"GET", b"a") + bulk(b"EXISTS", b"b"))) == b"$1\r\n6\r\n:0\r\n"
    assert bytes_of(session.feed(bulk(b"INCR", b"b") + bulk(b"GET", b"b"))) == b":1\r\n$1\r\n1\r\n"


def test_a_transaction_is_worked_out_as_one():
    live = Live((bulk(b"GET", b"n"), b"$1\r\n1\r\n"))
    assert live(b"MULTI") == b"+OK\r\n"
    assert live(b"INCR", b"n") == b"+QUEUED\r\n"
    assert live(b"GET", b"n") == b"+QUEUED\r\n"
    assert live(b"EXEC") == b"*2\r\n:2\r\n$1\r\n2\r\n"
    assert [one.simulated for one in live.found] == [True]


def test_what_would_wait_is_told_after_its_time_out_that_there_is_nothing():
    live = Live((bulk(b"RPUSH", b"l", b"x"), b":1\r\n"))
    assert live.acts(b"BLPOP", b"l", b"3") == [Send(b"*-1\r\n", 3_000_000_000)] or live.acts(
        b"BLPOP", b"l", b"3"
    ) == [Send(b"$-1\r\n", 3_000_000_000)]
    live(b"RPUSH", b"l", b"x")
    assert live.acts(b"BLPOP", b"l", b"3") == [Send(b"*2\r\n$1\r\nl\r\n$1\r\nx\r\n", 0)]
    assert live.acts(b"BLPOP", b"l", b"0") == []
    assert live.acts(b"GET", b"behind it") == []


def test_what_cannot_be_worked_out_is_a_miss():
    live = Live((bulk(b"GET", b"n"), b"$1\r\n1\r\n"))
    assert live(b"EVAL", b"return 1", b"0").startswith(b"-ERR relive: EVAL return 1 0 was not recorded")
    assert live(b"FT.CREATE", b"x").startswith(b"-ERR relive:")
    assert [one.is_miss for one in live.found] == [True, True]


def test_databases_are_told_apart():
    live = Live((bulk(b"SELECT", b"2") + bulk(b"GET", b"n"), b"+OK\r\n$1\r\n7\r\n"))
    assert live(b"EXISTS", b"n") == b":0\r\n"
    assert live(b"SELECT", b"2") == b"+OK\r\n"
    assert live(b"EXISTS", b"n") == b":1\r\n"


def test_without_the_package_it_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "fakeredis", None)
    with pytest.raises(ToolMissing, match="fakeredis"):
        Redis("simulate")
    Redis()
