"""Which protocol is spoken, and what becomes of a miss."""

from __future__ import annotations

import pytest

from protocols.scripted import dialogue
from relive.errors import UsageError
from relive.protocols.registry import ProtocolRegistry, protocol_of
from relive.recording.dialogues import Tls, Way

S3 = b"GET /box/key HTTP/1.1\r\nHost: s3.amazonaws.com\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "port", "name"),
    [
        ([(Way.UP, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")], 8000, "http"),
        ([(Way.UP, b"GET / HTTP/1.1\r\nHo")], 8000, "http"),
        (
            [(Way.UP, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"), (Way.DOWN, b"HTTP/1.0 200 OK\r\n\r\n")],
            6379,
            "http",
        ),
        ([(Way.UP, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"), (Way.DOWN, b"-ERR no\r\n")], 7000, "bytes"),
        ([(Way.UP, S3)], 80, "s3"),
        ([(Way.UP, b"*1\r\n$4\r\nPING\r\n"), (Way.DOWN, b"+PONG\r\n")], 7000, "redis"),
        ([(Way.UP, b"PING\r\n"), (Way.DOWN, b"+PONG\r\n")], 6379, "redis"),
        ([(Way.UP, b"PING\r\n"), (Way.DOWN, b"+PONG\r\n")], 7000, "bytes"),
        ([], 6379, "redis"),
        ([], 53, "dns"),
        ([], 25, "bytes"),
        ([(Way.DOWN, b"220 mail\r\n"), (Way.UP, b"HELO me\r\n")], 25, "bytes"),
        ([(Way.UP, b"\0\x0c\0\7\1\0\0\1\0\0\0\0\0\0")], 53, "bytes"),
    ],
)
def test_what_is_spoken(said, port, name):
    assert protocol_of(dialogue(said, to=("10.0.0.7", port))).name == name


def test_what_is_encrypted_is_bytes():
    closed = dialogue([(Way.UP, b"\x16\x03\x01\x02\0\x01")], to=("10.0.0.7", 6379))
    closed.tls = Tls.CLOSED
    assert protocol_of(closed).name == "bytes"


def test_where_nothing_was_said_others_with_the_same_destination_tell():
    silent = dialogue([], to=("10.0.0.7", 8000))
    others = [dialogue([(Way.UP, S3)], to=silent.to), dialogue([], to=silent.to)]
    assert ProtocolRegistry().protocol_of(silent).name == "bytes"
    assert ProtocolRegistry().protocol_of(silent, others).name == "s3"
    assert ProtocolRegistry().protocol_of(dialogue([(Way.UP, b"\0\1")], to=silent.to), others).name == "bytes"


def test_each_protocol_has_a_name_of_its_own():
    names = [protocol.name for protocol in ProtocolRegistry().all]
    assert len(set(names)) == len(names)
    assert names[-1] == "bytes"


def test_policies_are_those_of_their_kind():
    with pytest.raises(UsageError, match="http-call=simulate"):
        ProtocolRegistry({"http-call": "simulate"})
    ProtocolRegistry(
        {
            "*": "fail",
            "query": "pass",
            "http-call": "pass",
            "redis-command": "reset",
            "name-lookup": "servfail",
        }
    )
