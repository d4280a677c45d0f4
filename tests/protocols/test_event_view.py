"""A call as the recorder in Python processes would have told it."""

from __future__ import annotations

from protocols.scripted import dialogue
from relive.protocols.event_view import event_fields
from relive.protocols.http import Http
from relive.protocols.redis import Redis
from relive.recording.dialogues import Way

GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
MS = 1_000_000


def test_an_http_call_has_its_body_as_data_and_its_times():
    (call,) = Http().calls(
        dialogue(
            [(Way.UP, GET), (Way.DOWN, HEAD), (Way.DOWN, b"2\r\nhi\r\n"), (Way.DOWN, b"1\r\n!\r\n0\r\n\r\n")]
        )
    )
    fields, data = event_fields(call)
    assert data == b"hi!"
    assert fields["asked"]["url"] == "http://h/a"
    assert fields["answer"]["status"] == 200
    assert (fields["ns"], fields["body_ns"]) == (10 * MS, 20 * MS)
    assert fields["pieces"] == [7, 11]
    assert fields["bytes"] == 3
    assert fields["volatile"] == {"host": "h"}
    assert "error" not in fields
    assert "whole" not in fields


def test_a_call_that_was_broken_tells_how_far_it_came():
    (call,) = Http().calls(dialogue([(Way.UP, GET), (Way.DOWN, HEAD)], reset=Way.DOWN))
    fields, data = event_fields(call)
    assert fields["error"]["type"] == "builtins.ConnectionResetError"
    assert (fields["stage"], fields["whole"], data) == ("body", False, b"")
    (silent,) = Http().calls(dialogue([(Way.UP, GET)], closed=Way.UP))
    fields, _ = event_fields(silent)
    assert (fields["error"]["type"], fields["stage"]) == ("builtins.TimeoutError", "answer")
    assert "answer" not in fields
    assert fields["ns"] == 10 * MS


def test_redis_commands_and_messages():
    subscribe = b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n"
    confirmed = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
    one = dialogue(
        [
            (Way.UP, b"GET k\r\n"),
            (Way.DOWN, b"$-1\r\n"),
            (Way.UP, subscribe),
            (Way.DOWN, confirmed + b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n"),
        ],
        to=("h", 6379),
    )
    got, _, message = [event_fields(call)[0] for call in Redis().calls(one)]
    assert got == {
        "asked": {"server": "h:6379", "database": 0, "command": ["GET", "k"]},
        "answer": None,
        "ns": 10 * MS,
    }
    assert message == {
        "server": "h:6379",
        "database": 0,
        "message": [{"$": ["utf8", "message"]}, {"$": ["utf8", "c"]}, {"$": ["utf8", "x"]}],
    }
