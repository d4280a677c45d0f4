"""Message boundaries: against h11 as the oracle, against every way to split, and against junk."""

from __future__ import annotations

import itertools

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.recording.chunked import dechunk
from relive.recording.http1 import (
    AnswerFramer,
    AnswerHead,
    Body,
    Cut,
    MessageEnd,
    Piece,
    RequestFramer,
    RequestHead,
    Stream,
    Violation,
)

TOKEN = st.text("abcdefgXYZ-_0123", min_size=1, max_size=8).map(str.encode)
VALUE = st.text('abc ;="/,\tü', max_size=12).map(lambda text: text.strip(" \t").encode("latin-1"))
HEADERS = st.lists(st.tuples(TOKEN.map(lambda name: b"X-" + name), VALUE), max_size=4)
CHUNKS = st.lists(
    st.tuples(st.binary(min_size=1, max_size=40), st.sampled_from([b"", b";a", b';a="b"', b" "]))
)
TRAILERS = st.sampled_from([b"", b"X-T: 1\r\n"])


def lines(headers: list[tuple[bytes, bytes]], *extra: bytes) -> bytes:
    return b"".join(name + b": " + value + b"\r\n" for name, value in headers) + b"".join(extra) + b"\r\n"


def chunked(chunks: list[tuple[bytes, bytes]], trailers: bytes) -> bytes:
    framed = b"".join(b"%x%b\r\n%b\r\n" % (len(data), ext, data) for data, ext in chunks)
    return framed + b"0\r\n" + trailers + b"\r\n"


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    method = draw(st.sampled_from([b"GET", b"HEAD", b"POST", b"DELETE", b"X-Y"]))
    start = method + b" /" + draw(TOKEN) + b" HTTP/1.1\r\nHost: x\r\n"
    headers = draw(HEADERS)
    match draw(st.sampled_from(["none", "length", "chunked"])):
        case "length":
            body = draw(st.binary(max_size=50))
            return start + lines(headers, b"content-Length: %d\r\n" % len(body)) + body
        case "chunked":
            raw = chunked(draw(CHUNKS), draw(TRAILERS))
            return start + lines(headers, b"Transfer-Encoding: chunked\r\n") + raw
    return start + lines(headers)


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """(method of the request, raw answer with a definite end)"""
    method = draw(st.sampled_from([b"GET", b"HEAD", b"POST"]))
    status = draw(st.sampled_from([200, 204, 304, 404, 500]))
    interim = draw(
        st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Hints\r\nLink: a\r\n\r\n"])
    )
    start = interim + b"HTTP/1.1 %d Some Reason\r\n" % status
    headers, has_body = draw(HEADERS), method != b"HEAD" and status not in (204, 304)
    if draw(st.booleans()):
        body = draw(st.binary(max_size=50))
        raw = lines(headers, b"Content-Length: %d\r\n" % len(body))
    else:
        body = chunked(draw(CHUNKS), draw(TRAILERS))
        raw = lines(headers, b"Transfer-Encoding: chunked\r\n")
    return method, start + raw + (body if has_body else b"")


def split(raw: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(raw), *(cut % (len(raw) + 1) for cut in cuts)})
    return [raw[a:b] for a, b in itertools.pairwise(places)]


def merged(pieces: list[Piece]) -> list[Piece]:
    """With neighbouring body pieces joined: where these are cut is all that a split may change."""
    out: list[Piece] = []
    for piece in pieces:
        for kind in (Body, Stream):
            if isinstance(piece, kind) and out and isinstance(out[-1], kind):
                out[-1] = kind(out[-1].raw + piece.raw)
                break
        else:
            out.append(piece)
    return out


def without_raw(pieces: list[Piece]) -> list[object]:
    """As ``merged``, but bytes before a violation may be with it or with the body."""
    return [
        (p.status, p.reason) if isinstance(p, Violation) else p
        for p in merged(pieces)
        if not isinstance(p, Body)
    ]


def frame(framer: RequestFramer | AnswerFramer, parts: list[bytes]) -> list[Piece]:
    return [piece for part in parts for piece in framer.feed(part)]


CUTS = st.lists(st.integers(0, 10_000), max_size=8)


@settings(max_examples=100, deadline=None)
@given(st.lists(requests(), min_size=1, max_size=3), CUTS)
def test_pipelined_requests_end_where_h11_says(messages: list[bytes], cuts: list[int]):
    raw = b"".join(messages)
    pieces = merged(frame(RequestFramer(), split(raw, cuts)))
    assert b"".join(piece.raw for piece in pieces) == raw
    heads = [piece for piece in pieces if isinstance(piece, RequestHead)]
    assert len(heads) == len(messages) == sum(isinstance(piece, MessageEnd) for piece in pieces)
    for message in messages:
        oracle = h11.Connection(h11.SERVER)
        oracle.receive_data(message)
        event = oracle.next_event()
        assert isinstance(event, h11.Request)
        head = pieces.pop(0)
        assert isinstance(head, RequestHead)
        assert (head.method, head.target, list(head.headers)) == (
            event.method,
            event.target,
            list(event.headers),
        )
        body = pieces.pop(0).raw if isinstance(pieces[0], Body) else b""
        data = b""
        while not isinstance(event := oracle.next_event(), h11.EndOfMessage):
            data += bytes(event.data)
        assert oracle.trailing_data[0] == b""
        assert (dechunk(body) if head.length is None else body) == data
        assert isinstance(pieces.pop(0), MessageEnd)


@settings(max_examples=100, deadline=None)
@given(st.lists(answers(), min_size=1, max_size=3), CUTS)
def test_answers_end_where_h11_says(messages: list[tuple[bytes, bytes]], cuts: list[int]):
    framer = AnswerFramer()
    for method, _ in messages:
        framer.expect(method)
    raw = b"".join(message for _, message in messages)
    pieces = merged(frame(framer, split(raw, cuts)))
    assert b"".join(piece.raw for piece in pieces) == raw
    pieces = [p for p in pieces if not (isinstance(p, AnswerHead) and p.is_interim)]
    for method, message in messages:
        oracle = h11.Connection(h11.CLIENT)
        oracle.send(h11.Request(method=method, target=b"/", headers=[(b"host", b"x")]))
        oracle.send(h11.EndOfMessage())
        oracle.receive_data(message)
        while not isinstance(event := oracle.next_event(), h11.Response):
            pass
        head = pieces.pop(0)
        assert isinstance(head, AnswerHead)
        assert (head.status, head.reason, list(head.headers)) == (
            event.status_code,
            event.reason,
            list(event.headers),
        )
        body = pieces.pop(0).raw if isinstance(pieces[0], Body) else b""
        data = b""
        while not isinstance(event := oracle.next_event(), h11.EndOfMessage):
            data += bytes(event.data)
        assert (dechunk(body) if head.length is None else body) == data
        assert isinstance(pieces.pop(0), MessageEnd)


JUNK = st.lists(
    st.binary(max_size=20)
    | st.sampled_from(
        [b"GET / HTTP/1.1\r\n", b"HTTP/1.1 200 OK\r\n", b"\r\n", b"\n", b"Content-Length: 5\r\n"]
    )
    | st.sampled_from(
        [b"Transfer-Encoding: chunked\r\n", b"5\r\nabcde\r\n", b"0\r\n\r\n", b"A: b\n", b" fold\r\n", b"\r"]
    )
    | st.sampled_from(
        [b"Connection: upgrade\r\nUpgrade: x\r\n", b"HTTP/1.1 101 S\r\n\r\n", b"CONNECT a:1 HTTP/1.1\r\n"]
    ),
    max_size=12,
).map(b"".join)


@settings(max_examples=250, deadline=None)
@given(JUNK, CUTS, st.sampled_from([b"GET", b"HEAD", b"CONNECT"]))
def test_junk_raises_nothing_and_its_split_changes_nothing(raw: bytes, cuts: list[int], method: bytes):
    for make in (RequestFramer, AnswerFramer):
        results = []
        for parts in ([raw] if raw else [], split(raw, cuts), [raw[i : i + 1] for i in range(len(raw))]):
            framer = make(max_head_bytes=60)
            if isinstance(framer, AnswerFramer):
                framer.expect(method)
                framer.expect(method)
            pieces = frame(framer, parts)
            held = framer.held
            ended = any(isinstance(piece, Violation) for piece in pieces)
            given_out = sum(len(piece.raw) for piece in pieces)
            # After a violation what still comes is not looked at any more.
            assert given_out + held == len(raw) or (ended and given_out <= len(raw))
            pieces += framer.eof()
            results.append(without_raw(pieces))
        assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
        (b"Content-Length: 5\r\nContent-Length: 6\r\n", 400),
        (b"Content-Length: 5, 6\r\n", 400),
        (b"Content-Length: +5\r\n", 400),
        (b"Content-Length: \r\n", 400),
        (b"Content-Length : 5\r\n", 400),
        (b"Transfer-Encoding: gzip\r\n", 501),
        (b"Transfer-Encoding: chunked, chunked\r\n", 501),
        (b"Transfer-Encoding: xchunked\r\n", 501),
        (b"Transfer-Encoding:\r\n chunked\r\n", 400),
        (b"X: a\r\n folded\r\n", 400),
        (b"X: a\rb\r\n", 400),
        (b"X: \x00\r\n", 400),
        (b": empty\r\n", 400),
        (b"no colon\r\n", 400),
    ],
)
def test_requests_that_could_be_read_in_two_ways_are_violations(headers: bytes, status: int):
    pieces = RequestFramer().feed(b"POST / HTTP/1.1\r\n" + headers + b"\r\n")
    assert [piece.status for piece in pieces if isinstance(piece, Violation)] == [status]


@pytest.mark.parametrize("raw", [b"GET / HTTP/1.1\nA: b\n\n", b"\r\n\r\nGET / HTTP/1.1\r\n\r\n"])
def test_bare_line_feeds_and_empty_lines_before_a_request_are_tolerated(raw: bytes):
    pieces = RequestFramer().feed(raw)
    assert [type(piece) for piece in pieces] == [RequestHead, MessageEnd]
    assert pieces[0].raw == raw


@pytest.mark.parametrize(
    "body", [b"5\nabcde\n0\n\n", b"5\r\nabcdeX\r\n", b"-5\r\n", b"0x5\r\n", b"\r\n", b"5;\x00\r\n"]
)
def test_chunk_framing_is_taken_strictly(body: bytes):
    pieces = RequestFramer().feed(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
    assert isinstance(pieces[-1], Violation)


def test_a_folded_header_of_an_answer_is_joined():
    framer = AnswerFramer()
    framer.expect(b"GET")
    head = framer.feed(b"HTTP/1.1 200 OK\r\nX: a\r\n  b\r\nContent-Length: 0\r\n\r\n")[0]
    assert isinstance(head, AnswerHead)
    assert head.headers == ((b"x", b"a b"), (b"content-length", b"0"))


def test_an_answer_to_no_request_is_a_violation():
    assert isinstance(AnswerFramer().feed(b"HTTP/1.1 408 Timeout\r\n\r\n")[0], Violation)


def test_a_granted_connect_becomes_a_stream():
    framer = AnswerFramer()
    framer.expect(b"CONNECT")
    pieces = framer.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nraw")
    assert [type(piece) for piece in pieces] == [AnswerHead, MessageEnd, Stream]


def test_a_message_without_its_end_is_cut():
    framer = AnswerFramer()
    framer.expect(b"GET")
    framer.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab")
    assert framer.eof() == [Cut(b"")]
    framer = AnswerFramer()
    framer.feed(b"HTTP/1.1 2")
    assert framer.eof() == [Cut(b"HTTP/1.1 2")]
