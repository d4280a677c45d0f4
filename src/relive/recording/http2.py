"""HTTP/2 as the bytes of one direction show it, without IO: which headers and bodies belong to which stream (RFC 9113, RFC 7541).

A *reader* takes no part in the conversation: it grants no window and answers no ping. The headers that it gives out are written as
a head of HTTP/1 (``request_head``, ``answer_head``), in which all who read recordings find method, path and headers;
``parse_head`` is the way back. HPACK keeps a table over the whole connection, so nothing can be read of one whose beginning was
not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from hpack import Decoder, HPACKError
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    HeadersFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
)

from relive.recording.heads import Headers, parse_headers

__all__ = [
    "PREFACE",
    "Http2Reader",
    "Piece",
    "StreamBody",
    "StreamHead",
    "StreamReset",
    "Unreadable",
    "answer_head",
    "parse_head",
    "request_head",
]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_HEAD = 9  # [bytes]
_FRAME_MOST = 1 << 20  # [bytes] of a frame; most services admit 16 KiB
_BLOCK_MOST = 256 * 1024  # [bytes] of a header block, packed or unpacked
_TABLE_MOST = 1 << 20  # [bytes] of HPACK's table
_LINE_ENDS = (b"\r", b"\n", b"\0")


class StreamHead(NamedTuple):
    """Headers, or trailers, of a stream, those that begin with a colon among them; ``is_last``: no body follows."""

    stream: int
    headers: Headers
    is_last: bool


class StreamBody(NamedTuple):
    """The next bytes of a stream's body, perhaps none; ``is_last``: it is whole."""

    stream: int
    raw: bytes
    is_last: bool


class StreamReset(NamedTuple):
    """The sender has given a stream up."""

    stream: int


class Unreadable(NamedTuple):
    """Nothing more can be read of this direction; nothing follows."""

    reason: str


Piece: TypeAlias = StreamHead | StreamBody | StreamReset | Unreadable


class Http2Reader:
    """One direction of a connection, from its first byte.

    Args:
        preface: the sender begins with one, as clients do.
    """

    def __init__(self, *, preface: bool) -> None:
        self._held = bytearray()
        self._preface = PREFACE if preface else b""
        self._decoder = Decoder(max_header_list_size=_BLOCK_MOST)
        self._block: tuple[Frame, bytearray] | None = None  # that continues, and the frame that began it
        self._is_dead = False
        self.table_bytes = 0
        """Of HPACK's table, by the last of this direction's settings; 0: they said nothing."""

    def allow_table(self, size: int) -> None:
        """The other side has said that it keeps a table of so many bytes for this direction.

        A smaller one than before is not insisted on: the sender may not have heard of it yet.
        """
        allowed = max(self._decoder.max_allowed_table_size, min(size, _TABLE_MOST))
        self._decoder.max_allowed_table_size = allowed

    def feed(self, data: bytes) -> list[Piece]:
        """Take bytes in and give out what they complete; never raises, see ``Unreadable``."""
        if self._is_dead:
            return []
        self._held += data
        pieces: list[Piece] = []
        try:
            if self._take_preface():
                for frame in self._frames():
                    pieces.extend(self._read(frame))
        except (HyperframeError, HPACKError, _WrongFrameError) as error:
            self._is_dead = True
            self._held.clear()
            pieces.append(Unreadable(str(error) or type(error).__name__))
        return pieces

    def _take_preface(self) -> bool:
        wanted = self._preface
        if wanted[: len(self._held)] != self._held[: len(wanted)]:
            raise _WrongFrameError("it does not begin with the preface of HTTP/2")
        if len(self._held) < len(wanted):
            return False
        del self._held[: len(wanted)]
        self._preface = b""
        return True

    def _frames(self) -> Iterator[Frame]:
        while len(self._held) >= _FRAME_HEAD:
            frame, size = Frame.parse_frame_header(memoryview(bytes(self._held[:_FRAME_HEAD])))
            if size > _FRAME_MOST:
                raise _WrongFrameError(f"a frame has more than {_FRAME_MOST} bytes")
            if len(self._held) < _FRAME_HEAD + size:
                return
            frame.parse_body(memoryview(bytes(self._held[_FRAME_HEAD : _FRAME_HEAD + size])))
            del self._held[: _FRAME_HEAD + size]
            yield frame

    def _read(self, frame: Frame) -> list[Piece]:
        if self._block is not None and not isinstance(frame, ContinuationFrame):
            raise _WrongFrameError("a header block is not continued")
        if isinstance(frame, HeadersFrame | PushPromiseFrame):
            self._block = frame, bytearray()
            return self._add_to_block(frame)
        if isinstance(frame, ContinuationFrame):
            return self._add_to_block(frame)
        if isinstance(frame, DataFrame):
            return [StreamBody(frame.stream_id, bytes(frame.data), "END_STREAM" in frame.flags)]
        if isinstance(frame, RstStreamFrame):
            return [StreamReset(frame.stream_id)]
        if isinstance(frame, SettingsFrame):
            self.table_bytes = frame.settings.get(SettingsFrame.HEADER_TABLE_SIZE, self.table_bytes)
        return []

    def _add_to_block(self, frame: HeadersFrame | PushPromiseFrame | ContinuationFrame) -> list[Piece]:
        if self._block is None or self._block[0].stream_id != frame.stream_id:
            raise _WrongFrameError("a header block is continued that has not begun")
        first, block = self._block
        block += frame.data
        if len(block) > _BLOCK_MOST:
            raise _WrongFrameError(f"a header block has more than {_BLOCK_MOST} bytes")
        if "END_HEADERS" not in frame.flags:
            return []
        self._block = None
        headers = tuple(
            (bytes(one[0]), bytes(one[1])) for one in self._decoder.decode(bytes(block), raw=True)
        )
        if any(end in name or end in value for name, value in headers for end in _LINE_ENDS):
            raise _WrongFrameError("a header holds the end of a line")
        if isinstance(
            first, PushPromiseFrame
        ):  # decoded for the table's sake; no client asked for what it announces
            return []
        return [StreamHead(first.stream_id, headers, "END_STREAM" in first.flags)]


class _WrongFrameError(Exception):
    """These frames do not follow each other, or are too large."""


def request_head(headers: Headers) -> bytes:
    """A request's headers as a head of HTTP/1, whose version is 2; ``:authority`` is its first ``host``."""
    said = dict(headers)
    host = said.get(b":authority", said.get(b"host", b""))
    target = said.get(b":path", host)  # CONNECT has none
    lines = [said.get(b":method", b"-") + b" " + target.replace(b" ", b"%20") + b" HTTP/2"]
    lines += [b"host: " + host] if host else []
    return _head(lines, [header for header in headers if header[0] != b"host"])


def answer_head(headers: Headers) -> bytes:
    """An answer's headers as a head of HTTP/1, whose version is 2."""
    return _head([b"HTTP/2 " + dict(headers).get(b":status", b"-")], headers)


def _head(lines: list[bytes], headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    lines += [name + b": " + value for name, value in headers if not name.startswith(b":")]
    return b"\r\n".join([*lines, b"", b""])


_OF_THE_CONNECTION = frozenset(
    (b"host", b"connection", b"upgrade", b"http2-settings", b"keep-alive", b"transfer-encoding")
)


def parse_head(head: bytes) -> Headers:
    """The headers of which ``request_head`` has made that, or that a request of HTTP/1 has in HTTP/2."""
    words = head.split(b"\r\n", 1)[0].split(b" ")
    headers = parse_headers(head)
    host = next((value for name, value in headers if name == b"host"), b"")
    pseudo = [(b":method", words[0]), (b":authority", host)]
    if words[0] != b"CONNECT":
        pseudo += [(b":scheme", b"http"), (b":path", words[1] if len(words) > 1 else b"/")]
    return (*pseudo, *(one for one in headers if one[0] not in _OF_THE_CONNECTION))
