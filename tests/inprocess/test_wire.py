"""Requests are read from what was sent however it was cut; answers are put together so that they can be read."""

from __future__ import annotations

import http.client
import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .conftest import INPROCESS

sys.path.insert(0, str(INPROCESS))
from relive_recorder.wire import CollectedBody, Dechunker, RequestOnWire, framed, in_pieces

sys.path.remove(str(INPROCESS))

CHUNKED = b"POST /a?b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\none\r\n3\r\ntwo\r\n0\r\nT: 1\r\n\r\n"
SIZED = b"PUT /c HTTP/1.1\r\nX-A:  1 \r\nContent-Length: 6\r\n\r\nonetwo"


@given(st.sampled_from([CHUNKED, SIZED]), st.lists(st.integers(1, 20), max_size=20))
def test_a_request_however_it_is_cut(raw, sizes):
    wire = RequestOnWire(100)
    for piece in in_pieces(raw, sizes):
        assert not wire.is_complete
        wire.feed(piece)
    assert wire.is_complete
    assert wire.body.held() == b"onetwo"
    assert wire.method in ("POST", "PUT")


@given(st.binary(max_size=200))
def test_what_is_no_request_is_a_value_error(junk):
    wire = RequestOnWire(100)
    try:
        wire.feed(junk + b"\r\n\r\n")
    except ValueError:
        assert not wire.is_complete


def test_chunks_that_are_none():
    with pytest.raises(ValueError):
        Dechunker(lambda _: None).feed(b"xyz\r\n")


class Socket:
    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._raw)


@given(st.binary(max_size=99), st.lists(st.integers(1, 20), max_size=5), st.booleans())
def test_an_answer_can_be_read(body, sizes, chunked):
    header = ("Transfer-Encoding", "chunked") if chunked else ("Content-Length", "12345")
    raw = framed(200, "OK", [("A", "1"), header], in_pieces(body, sizes), whole=True)
    answer = http.client.HTTPResponse(Socket(raw))  # type: ignore[arg-type]
    answer.begin()
    assert (answer.status, answer.getheader("A"), answer.read()) == (200, "1", body)


@given(st.lists(st.binary(max_size=30), max_size=10), st.integers(1, 50))
def test_of_a_long_body_the_beginning_is_held(parts, most):
    body = CollectedBody(most)
    for part in parts:
        body.add(part)
    whole = b"".join(parts)
    assert body.length == len(whole)
    assert body.held() == whole[:most]
    assert (body.digest() is None) == (len(whole) <= most)
