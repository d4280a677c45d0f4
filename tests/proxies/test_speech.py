"""What clients of other protocols say first is never taken for HTTP, however it is split; what is HTTP always is."""

from __future__ import annotations

import pytest

from relive.proxies.ingress._speech import Speech, speech_of

OTHERS = {
    "redis": b"*1\r\n$4\r\nPING\r\n",
    "redis by hand": b"PING\r\n",
    "postgresql, asking for TLS": b"\0\0\0\x08\x04\xd2\x16\x2f",
    "postgresql": b"\0\0\0\x29\0\3\0\0user\0me\0\0",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00",
    "memcached": b"get key\r\n",
    "smtp": b"EHLO me.example\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "amqp": b"AMQP\0\0\x09\x01",
    "mongodb": b"A\0\0\0\1\0\0\0",
    "a line without end": b"A" * 70_000,
}
REQUESTS = {
    "a request": b"GET / HTTP/1.1\r\n",
    "after empty lines": b"\r\n\r\nPOST /x HTTP/1.0\n",
    "a method that few know": b"VERSION-CONTROL /x HTTP/1.1\r\n",
    "in small letters": b"get / HTTP/1.1\r\n",
    "malformed": b"GET / \0\x01\r\n",
    "of old": b"GET /\r\n",
    "of another version": b"PURGE / HTTP/3.0\r\n",
}


@pytest.mark.parametrize(
    ("opening", "speech"),
    [
        *((one, Speech.OTHER) for one in OTHERS.values()),
        *((one, Speech.HTTP) for one in REQUESTS.values()),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Speech.HTTP_2),
    ],
    ids=[*OTHERS, *REQUESTS, "http/2"],
)
def test_the_first_line_decides_however_it_is_split(opening: bytes, speech: Speech):
    assert speech_of(opening) is speech
    # Of a long one, not each of the splits far behind its beginning.
    ends = {*range(min(len(opening), 100) + 1), *range(0, len(opening), 97), len(opening)}
    said = [speech_of(opening[:end]) for end in ends]
    assert set(said) <= {None, speech}


def test_what_can_still_be_a_request_is_waited_for():
    assert speech_of(b"") is None
    assert speech_of(b"\r\n") is None
    assert speech_of(b"PROPFIND /a") is None
