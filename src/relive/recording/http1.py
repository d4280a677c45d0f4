"""HTTP/1.1 message boundaries, byte-exact and without IO, after RFC 9110 and RFC 9112.

A *framer* takes bytes as they come and says where messages begin and end. It changes nothing: the ``raw`` of its
pieces, joined, is what went in (less what it still holds). Only heads are held until they are whole; body bytes, chunk
framing included, come out as they go in. How the input is split makes no difference but for where bodies are cut.

What is refused, with the answer a careful proxy gives (RFC 9112 section 6.3, section 11.2), since bytes are passed on
unchanged and the service behind might see other boundaries than we do: in requests, both Content-Length and
Transfer-Encoding, differing or malformed Content-Lengths, a Transfer-Encoding other than ``chunked`` or in HTTP/1.0,
folded lines, white space around a header's name, NUL and bare CR in a head; chunk framing that is not exactly as
specified. Tolerated: bare LF as line end in heads (not in chunk framing), empty lines before a request line, the same
Content-Length twice. Answers come from the service under observation, so what only confuses is let through.
"""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple, TypeAlias

from relive.recording.chunked import ChunkedBody, ChunkError, dechunk
from relive.recording.heads import AnswerHead, HeadError, RequestHead, parse_answer_head, parse_request_head

__all__ = [
    "AnswerFramer",
    "AnswerHead",
    "Body",
    "Cut",
    "MessageEnd",
    "Piece",
    "RequestFramer",
    "RequestHead",
    "Stream",
    "Violation",
    "dechunk",
]

DEFAULT_MAX_HEAD_BYTES = 128 * 1024
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_BLANK_LINES = re.compile(rb"(?:\r?\n)*")


class Body(NamedTuple):
    """Raw bytes of a body, chunk framing and trailers included; never empty."""

    raw: bytes


class MessageEnd(NamedTuple):
    """The message is whole. Carries no bytes: ``raw`` is empty."""

    raw: bytes = b""


class Stream(NamedTuple):
    """Bytes after an upgrade, in which there are no messages any more; never empty."""

    raw: bytes


class Cut(NamedTuple):
    """The connection ended inside a message. ``raw`` is the head as far as it came, else empty."""

    raw: bytes


class Violation(NamedTuple):
    """The bytes are not HTTP/1.1, or not safely so. Nothing follows; ``raw`` is what was not given out before.

    ``status`` is the answer a proxy gives when it refuses a request so (400, 431, 501, 505).
    """

    status: int
    reason: str
    raw: bytes


Piece: TypeAlias = RequestHead | AnswerHead | Body | MessageEnd | Stream | Cut | Violation
_END = MessageEnd()
# States: in which part of the connection's bytes the framer is.
_HEAD, _LENGTH, _CHUNKED, _UNTIL_CLOSE, _STREAM, _WAITING, _DEAD = range(7)


class _Framer:
    """What both directions have in common. One per direction of a connection."""

    def __init__(self, *, max_head_bytes: int = DEFAULT_MAX_HEAD_BYTES) -> None:
        self._max_head_bytes = max_head_bytes
        self._held = bytearray()  # of a head that is not whole yet, or of what waits for an upgrade
        self._searched = 0  # no head ends before this offset of _held
        self._state = _HEAD
        self._left = 0  # bytes of a body of known length that are still to come
        self._chunks = ChunkedBody()

    @property
    def held(self) -> int:
        """Bytes taken in and not given out yet."""
        return len(self._held)

    @property
    def is_between(self) -> bool:
        """The next byte begins a message."""
        return self._state == _HEAD and not self._held

    def feed(self, data: bytes) -> list[Piece]:
        """Take bytes in and give out what they complete; never raises, see ``Violation``."""
        pieces: list[Piece] = []
        while data:
            state = self._state
            if state == _HEAD:
                data = self._feed_head(data, pieces)
            elif state == _LENGTH:
                data = self._feed_length(data, pieces)
            elif state == _CHUNKED:
                data = self._feed_chunked(data, pieces)
            elif state == _UNTIL_CLOSE:
                pieces.append(Body(data))
                break
            elif state == _STREAM:
                pieces.append(Stream(data))
                break
            elif state == _WAITING:
                self._held += data
                break
            else:
                break
        return pieces

    def eof(self) -> list[Piece]:
        """The sender has closed its side: the end of a message that lasts until then, or a ``Cut``, or nothing."""
        state, self._state = self._state, _DEAD
        if state == _UNTIL_CLOSE:
            return [_END]
        if state in (_LENGTH, _CHUNKED) or (state == _HEAD and self._held.strip(b"\r\n")):
            return [Cut(self._drain_held())]
        return []

    def go_on_with_body(self, left: int) -> None:
        """From here on, as if the head of a message had come whose body has so many bytes more (> 0). Before any ``feed``."""
        self._state, self._left = _LENGTH, left

    def become_stream(self) -> list[Piece]:
        """From here on there are no messages (101, or CONNECT was granted). Gives out what was held."""
        self._state = _STREAM
        held = self._drain_held()
        return [Stream(held)] if held else []

    def _feed_head(self, data: bytes, pieces: list[Piece]) -> bytes:
        """Take the head out of ``data`` and return what follows it; empty if the head is not whole."""
        if self._held:
            self._held += data
            found = _END_OF_HEAD.search(self._held, self._head_search_start())
            if found is None:
                self._buffer_incomplete(b"", pieces)
                return b""
            data = self._drain_held()
        else:
            found = _END_OF_HEAD.search(data, self._skipped_lines(data))
            if found is None:
                self._buffer_incomplete(data, pieces)
                return b""
        end = found.end()
        if end > self._max_head_bytes:
            return self._refuse_start(data, pieces)
        try:
            self._read_head(data[:end], pieces)
        except HeadError as error:
            if not self._may_become_head(data):  # as it would have been refused had it come byte by byte
                return self._refuse_start(data, pieces)
            return self._die(error.status, error.reason, data, pieces)
        return data[end:]

    def _buffer_incomplete(self, data: bytes, pieces: list[Piece]) -> None:
        self._held += data
        self._searched = max(len(self._held) - 2, 0)
        if len(self._held) > self._max_head_bytes or not self._may_become_head(self._held):
            self._refuse_start(self._drain_held(), pieces)

    def _refuse_start(self, data: bytes, pieces: list[Piece]) -> bytes:
        if not self._may_become_head(data):
            return self._die(400, "the first byte is none of a message's", data, pieces)
        return self._die(431, f"the head is larger than {self._max_head_bytes} bytes", data, pieces)

    def _head_search_start(self) -> int:
        return max(self._searched, self._skipped_lines(self._held))

    def _feed_length(self, data: bytes, pieces: list[Piece]) -> bytes:
        rest = b""
        if len(data) > self._left:
            data, rest = data[: self._left], data[self._left :]
        self._left -= len(data)
        pieces.append(Body(data))
        if not self._left:
            self._finish(pieces)
        return rest

    def _feed_chunked(self, data: bytes, pieces: list[Piece]) -> bytes:
        try:
            end = self._chunks.advance(data)
        except ChunkError as error:
            return self._die(400, str(error), data, pieces)
        if end is None:
            pieces.append(Body(data))
            return b""
        pieces.append(Body(data[:end]))
        self._finish(pieces)
        return data[end:]

    def pass_over(self, size: int) -> list[Piece] | None:
        """So many bytes went by that nobody has: what they complete. None: they are not all of a body whose length is known."""
        if self._state != _LENGTH or size > self._left:
            return None
        self._left -= size
        pieces: list[Piece] = []
        if not self._left:
            self._finish(pieces)
        return pieces

    def _begin_body(self, length: int | None, pieces: list[Piece]) -> None:
        """A body of ``length`` bytes follows, or a chunked one if None."""
        if length is None:
            self._state = _CHUNKED
            self._chunks = ChunkedBody()
        elif length:
            self._state, self._left = _LENGTH, length
        else:
            self._finish(pieces)

    def _die(self, status: int, reason: str, raw: bytes, pieces: list[Piece]) -> bytes:
        self._state = _DEAD
        pieces.append(Violation(status, reason, raw))
        return b""

    def _drain_held(self) -> bytes:
        held = bytes(self._held)
        self._held.clear()
        self._searched = 0
        return held

    def _finish(self, pieces: list[Piece]) -> None:
        pieces.append(_END)
        self._state = _HEAD

    def _skipped_lines(self, data: bytes | bytearray) -> int:  # noqa: ARG002  answers skip none
        """Offset at which the first line of a head may begin."""
        return 0

    def _may_become_head(self, held: bytes | bytearray) -> bool:  # noqa: ARG002  only requests are judged so early
        return True

    def _read_head(self, raw: bytes, pieces: list[Piece]) -> None:
        raise NotImplementedError


class RequestFramer(_Framer):
    """What a client sends. Gives out ``RequestHead``, ``Body``, ``MessageEnd``, ``Stream``, ``Cut``, ``Violation``.

    After a request that asks for an upgrade (and after CONNECT) it is open what the next bytes mean: they are held
    until ``resume`` or ``become_stream`` is called. ``waits_for_answer`` is True meanwhile.
    """

    _asks_upgrade = False

    @property
    def waits_for_answer(self) -> bool:
        """True when bytes are held until the answer says whether the connection becomes a stream."""
        return self._state == _WAITING

    def resume(self) -> list[Piece]:
        """The answer was no upgrade: go on with messages. Gives out what the held bytes complete."""
        if self._state != _WAITING:
            return []
        self._state = _HEAD
        return self.feed(self._drain_held())

    def give_up(self) -> bytes:
        """It is no HTTP after all: the part of a head that waited for its rest, which is given out no more."""
        return self._drain_held()

    def _read_head(self, raw: bytes, pieces: list[Piece]) -> None:
        head = parse_request_head(raw)
        pieces.append(head)
        self._asks_upgrade = head.asks_upgrade
        self._begin_body(head.length, pieces)

    def _finish(self, pieces: list[Piece]) -> None:
        pieces.append(_END)
        self._state = _WAITING if self._asks_upgrade else _HEAD

    def _skipped_lines(self, data: bytes | bytearray) -> int:
        match = _BLANK_LINES.match(data)
        return match.end() if match is not None else 0

    def _may_become_head(self, held: bytes | bytearray) -> bool:
        begin = self._skipped_lines(held)
        first = held[begin : begin + 1]
        # Refused at once, since a TLS hello to a plain port would never send the blank line we wait for.
        return not first or first.isalnum() or first in b"!#$%&'*+-.^_`|~\r"


class AnswerFramer(_Framer):
    """What a service sends. Gives out ``AnswerHead``, ``Body``, ``MessageEnd``, ``Stream``, ``Cut``, ``Violation``.

    Answers carry no word of which request they are for: ``expect`` names the requests in the order they were sent.
    An answer that no request asked for is a ``Violation``.
    """

    def __init__(self, *, max_head_bytes: int = DEFAULT_MAX_HEAD_BYTES) -> None:
        super().__init__(max_head_bytes=max_head_bytes)
        self._methods: deque[bytes] = deque()

    def expect(self, method: bytes) -> None:
        """A request of this method was sent: one more final answer is to come."""
        self._methods.append(method)

    def _read_head(self, raw: bytes, pieces: list[Piece]) -> None:
        head = parse_answer_head(raw)
        if not self._methods:
            raise HeadError(400, "an answer to no request")
        if head.is_interim:
            pieces.append(head)
            return
        method = self._methods.popleft()
        pieces.append(head)
        if head.status == 101 or (method == b"CONNECT" and 200 <= head.status < 300):
            pieces.append(_END)
            self._state = _STREAM
        elif method == b"HEAD" or head.status in (204, 304):
            self._finish(pieces)
        elif head.lasts_until_close:
            self._state = _UNTIL_CLOSE
        else:
            self._begin_body(head.length, pieces)
