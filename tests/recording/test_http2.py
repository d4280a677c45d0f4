"""What one direction of HTTP/2 says is read however it is cut, and whatever it says nothing is raised."""

from __future__ import annotations

import pytest
from hpack import Encoder
from hyperframe.frame import ContinuationFrame, Frame, HeadersFrame, PushPromiseFrame, SettingsFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.recording.http2 import (
    PREFACE,
    Http2Reader,
    Piece,
    StreamBody,
    StreamHead,
    Unreadable,
    answer_head,
    parse_head,
    request_head,
)

HEADERS = ((b":status", b"200"), (b"x-long", b"v" * 100))


def block(*headers: tuple[bytes, bytes]) -> bytes:
    return bytes(Encoder().encode(headers))


def frame(kind: type[Frame], data: bytes, *flags: str, stream: int = 1) -> bytes:
    made = kind(stream, flags=list(flags))
    made.data = data
    return bytes(made.serialize())


def read(data: bytes, *, cut: int = 1 << 20, preface: bool = False) -> list[Piece]:
    reader = Http2Reader(preface=preface)
    return [piece for at in range(0, len(data), cut) for piece in reader.feed(data[at : at + cut])]


@pytest.mark.parametrize("cut", [1, 5, 1 << 20])
def test_a_header_block_goes_on_over_frames_and_cuts(cut: int) -> None:
    packed = block(*HEADERS)
    data = frame(HeadersFrame, packed[:3], "END_STREAM") + frame(ContinuationFrame, packed[3:], "END_HEADERS")
    assert read(PREFACE + data, cut=cut, preface=True) == [StreamHead(1, HEADERS, True)]


WRONG = {
    "no preface": (b"GET / HTTP/1.1\r\n", True),
    "an index of nothing": (frame(HeadersFrame, b"\xff\xff\x01", "END_HEADERS"), False),
    "a block within a block": (frame(HeadersFrame, b"") + frame(HeadersFrame, b"", stream=3), False),
    "a continuation of nothing": (frame(ContinuationFrame, b"", "END_HEADERS"), False),
    "of another stream": (frame(HeadersFrame, b"") + frame(ContinuationFrame, b"", stream=3), False),
    "a frame of 16 MB": (b"\xff\xff\xff\0\0\0\0\0\1", False),
    "a block without end": (frame(HeadersFrame, b"") + 17 * frame(ContinuationFrame, b"x" * 16384), False),
    "the end of a line": (frame(HeadersFrame, block((b"x", b"a\r\nb: c")), "END_HEADERS"), False),
    "settings of a stream": (b"\0\0\0\4\0\0\0\0\1", False),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_breaks_it_ends_it(name: str) -> None:
    data, preface = WRONG[name]
    reader = Http2Reader(preface=preface)
    assert [type(piece) for piece in reader.feed(data)] == [Unreadable]
    assert reader.feed(frame(HeadersFrame, block(*HEADERS), "END_HEADERS")) == []


def test_a_pushed_request_keeps_the_table_in_step_and_is_none() -> None:
    encoder = Encoder()
    pushed, own = encoder.encode([(b"x-own", b"one")]), encoder.encode([(b"x-own", b"one")])
    promise = PushPromiseFrame(1, promised_stream_id=2, data=pushed, flags=["END_HEADERS"]).serialize()
    assert read(promise + frame(HeadersFrame, own, "END_HEADERS")) == [
        StreamHead(1, ((b"x-own", b"one"),), False)
    ]


def test_a_larger_table_is_used_once_the_other_side_has_allowed_it() -> None:
    told = Http2Reader(preface=False)
    told.feed(SettingsFrame(0, {SettingsFrame.HEADER_TABLE_SIZE: 65536}).serialize())
    encoder = Encoder()
    encoder.header_table_size = 65536
    data = frame(HeadersFrame, encoder.encode(HEADERS), "END_HEADERS")
    allowed = Http2Reader(preface=False)
    allowed.allow_table(told.table_bytes)
    assert allowed.feed(data) == [StreamHead(1, HEADERS, False)]
    assert isinstance(Http2Reader(preface=False).feed(data)[0], Unreadable)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60), st.integers(1, 20))
def test_nothing_is_raised_and_bodies_come_whole(junk: bytes, cut: int) -> None:
    data = frame(HeadersFrame, block(*HEADERS), "END_HEADERS") + b"\0\0\3\0\1\0\0\0\1abc" + junk
    pieces = read(data, cut=cut)
    assert pieces[:2] == [StreamHead(1, HEADERS, False), StreamBody(1, b"abc", True)]


def test_heads_are_written_as_of_http1_and_read_back() -> None:
    asked = (
        (b":method", b"GET"),
        (b":authority", b"x:80"),
        (b":scheme", b"http"),
        (b":path", b"/a?b"),
        (b"te", b"trailers"),
    )
    assert request_head(asked) == b"GET /a?b HTTP/2\r\nhost: x:80\r\nte: trailers\r\n\r\n"
    assert parse_head(request_head(asked)) == asked
    assert answer_head(HEADERS[:1]) == b"HTTP/2 200\r\n\r\n"
    of_http1 = (
        b"GET /a?b HTTP/1.1\r\nHost: x:80\r\nConnection: upgrade\r\nUpgrade: h2c\r\nTE: trailers\r\n\r\n"
    )
    assert parse_head(of_http1) == asked
