"""Recorded answers with something else in them: what a session then says is what such a server would have said."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from protocols.scripted import dialogue
from relive.protocols.call import Call, CallEnd
from relive.protocols.http import Http
from relive.protocols.http.rewriting import body_of_answer, with_answer
from relive.protocols.pool import Pool
from relive.protocols.postgres import PostgreSQL
from relive.protocols.postgres.messages import Column, build, read_error, ready, row, row_description
from relive.protocols.postgres.rewriting import Unwritable, with_delay, with_end, with_error, with_rows
from relive.protocols.redis import Redis
from relive.protocols.redis import rewriting as redis
from relive.protocols.session import Reset, Send
from relive.recording.dialogues import Way

from .conversations import MS, OPENING, STARTUP, bind, conversation, execute, opened, parse, query, said

GET = b"GET /rates/CHF HTTP/1.1\r\nHost: rates\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nServer: s\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"


def http_call() -> Call:
    (call,) = Http().calls(dialogue([(Way.UP, GET), (Way.DOWN, CHUNKED)]))
    return call


def http_said(call: Call) -> bytes:
    return said(Http().open(Pool([call]), 1, to=call.to).feed(GET))


def test_an_http_answer_with_another_status_keeps_its_body_and_has_a_length():
    call = http_call()
    assert body_of_answer(call) == b"hello"
    head, _, body = http_said(with_answer(call, 503, None)).partition(b"\r\n\r\n")
    assert body == b"hello"
    assert head.split(b"\r\n") == [b"HTTP/1.1 503 Service Unavailable", b"Server: s", b"content-length: 5"]


def test_an_http_call_that_was_never_answered_can_be():
    (call,) = Http().calls(dialogue([(Way.UP, GET)], reset=Way.DOWN))
    assert call.end is CallEnd.RESET
    said_then = http_said(with_answer(call, None, b"{}"))
    assert said_then.startswith(b"HTTP/1.1 200 OK\r\n") and said_then.endswith(b"\r\n\r\n{}")


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (None, b"$-1\r\n"),
        (7, b":7\r\n"),
        ("é", b"$2\r\n\xc3\xa9\r\n"),
        ({"$": ["utf8", "x"]}, b"$1\r\nx\r\n"),
        (["a", None], b"*2\r\n$1\r\na\r\n$-1\r\n"),
        ({"$": ["dict", [["k", 1]]]}, b"*2\r\n$1\r\nk\r\n:1\r\n"),
    ],
)
def test_redis_says_another_value(value, answer):
    (call,) = Redis().calls(dialogue([(Way.UP, b"GET k\r\n"), (Way.DOWN, b"$1\r\n1\r\n")], to=("h", 6379)))
    changed = redis.with_value(call, value)
    assert changed is not None
    assert said(Redis().open(Pool([changed]), 1, to=("h", 6379)).feed(b"GET k\r\n")) == answer


def test_redis_says_an_error_and_no_value_that_it_has_not():
    (call,) = Redis().calls(dialogue([(Way.UP, b"GET k\r\n"), (Way.DOWN, b"$1\r\n1\r\n")], to=("h", 6379)))
    failed = redis.with_error(call, "OOM no\nmemory")
    assert failed is not None
    assert said(Redis().open(Pool([failed]), 1, to=("h", 6379)).feed(b"GET k\r\n")) == b"-OOM no memory\r\n"
    assert redis.with_value(call, {"a": 1}) is None and redis.with_value(call, [{"a": 1}]) is None


TWO = (Column("id", 1, 1, 23, 4, -1, 0), Column("price", 1, 2, 1700, -1, -1, 0))


def simple_call() -> tuple[Call, list[Call]]:
    rows = row_description(TWO) + row([b"2", None]) + build("C", b"SELECT 1\0")
    told = conversation(
        ("up", 0, STARTUP), ("down", 3, OPENING), ("up", 5, query("select")), ("down", 7, rows + ready("I"))
    )
    calls = PostgreSQL().calls(told)
    return calls[-1], calls


def told_again(calls: list[Call], changed: Call, question: bytes) -> list[object]:
    return list(opened(Pool([*calls[:-1], changed])).feed(question))


def test_postgres_gives_other_rows_and_counts_them():
    call, calls = simple_call()
    changed = with_rows(call, [[1, {"$": ["decimal", "4.50"]}], [2, None]])
    given = row([b"1", b"4.50"]) + row([b"2", None]) + build("C", b"SELECT 2\0") + ready("I")
    assert said(told_again(calls, changed, query("select"))) == row_description(TWO) + given
    assert changed.answer["rows"] == [[1, {"$": ["decimal", "4.50"]}], [2, None]]
    none = with_rows(call, [])
    assert build("C", b"SELECT 0\0") in said(told_again(calls, none, query("select")))


def test_postgres_writes_rows_in_the_format_that_was_asked_for():
    column = (Column("n", 1, 1, 23, 4, -1, 1),)
    ask = parse("select n") + bind(formats=[1]) + build("D", b"P\0") + execute() + build("S")
    binary = row_description(column) + row([b"\0\0\0\x07"]) + build("C", b"SELECT 1\0")
    told = conversation(
        ("up", 0, STARTUP),
        ("down", 3, OPENING),
        ("up", 5, ask),
        ("down", 7, build("1") + build("2") + binary + ready("I")),
    )
    calls = PostgreSQL().calls(told)
    changed = with_rows(calls[-1], [[8]])
    assert row([b"\0\0\0\x08"]) in said(told_again(calls, changed, ask))
    with pytest.raises(Unwritable, match="is no value of type 23"):
        with_rows(calls[-1], [["eight"]])


def test_postgres_fails_comes_later_or_not_at_all():
    call, calls = simple_call()
    answer = said(told_again(calls, with_error(call, "no such table"), query("select")))
    assert answer[:1] == b"E" and answer.endswith(ready("I"))
    assert read_error(answer[5:])["message"] == "no such table"
    late = told_again(calls, with_delay(call, 900 * MS), query("select"))
    assert isinstance(late[0], Send) and late[0].after_ns == 900 * MS
    assert told_again(calls, with_end(call, CallEnd.RESET), query("select")) == [Reset(0)]
    assert told_again(calls, with_end(call, CallEnd.OPEN), query("select")) == []


def test_what_postgres_cannot_give_is_refused():
    call, _ = simple_call()
    with pytest.raises(Unwritable, match="3 values, and there are 2 columns"):
        with_rows(call, [[1, 2, 3]])
    with pytest.raises(Unwritable, match="cannot be written"):
        with_rows(call, [[1, {"$": ["opaque", "x"]}]])
    cut = replace(call, extra={})
    with pytest.raises(Unwritable, match="not kept whole"):
        with_rows(cut, [])
    inserted = conversation(
        ("up", 0, STARTUP),
        ("down", 3, OPENING),
        ("up", 5, query("insert")),
        ("down", 7, build("C", b"INSERT 0 1\0") + ready("I")),
    )
    with pytest.raises(Unwritable, match="had no rows"):
        with_rows(PostgreSQL().calls(inserted)[-1], [[1]])
    assert json.dumps(call.answer["rows"]) == "[[2, null]]"
