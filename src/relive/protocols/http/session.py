"""A connection on which the service asks and recorded answers are given."""

from __future__ import annotations

from dataclasses import replace

from relive.protocols.call import Call, CallEnd, Timed
from relive.protocols.http.asking import HttpQuestion, asked_of
from relive.protocols.http.misses import miss_answer
from relive.protocols.matching import origin
from relive.protocols.opaque import PlainSession
from relive.protocols.pool import Pool, PoolMatch
from relive.protocols.resuming import standing
from relive.protocols.session import Act, Close, Reset, Resume, Send, Session
from relive.protocols.timing import Timing, ending_acts, rest_of, sends
from relive.recording.events import EventKind
from relive.recording.http1 import Body, MessageEnd, Piece, RequestFramer, RequestHead, Violation, dechunk

__all__ = ["HttpSession"]

_SAFE = frozenset((b"GET", b"HEAD", b"OPTIONS", b"TRACE"))  # RFC 9110, 9.2.1: may be answered again
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class HttpSession(Session):
    """One connection.

    Args:
        to: where it leads; scheme: of its URLs.
        resets: a miss breaks the connection, instead of being answered.
    """

    def __init__(self, pool: Pool, number: int, *, to: tuple[str, int], scheme: str, resets: bool) -> None:
        self._pool = pool
        self._number = number
        self._to = to
        self._scheme = scheme
        self._resets = resets
        self._framer = RequestFramer()
        self._head: RequestHead | None = None
        self._body: list[bytes] = []
        self._dialogue: int | None = None  # number of the recorded connection that this one follows
        self._half: Call | None = None  # of that, the call that is being asked when the session begins
        self._next: Call | None = None  # of that, the call that came next
        self._given = 0  # bytes of its answer that the service has already
        self._is_answered = False  # before the question was whole
        self._is_mute = False  # a question was never answered: nothing behind it can be
        self._is_over = False
        self._bytes: PlainSession | None = None  # after an upgrade

    def feed(self, data: bytes) -> list[Act]:
        if self._bytes is not None:
            return self._bytes.feed(data)
        acts: list[Act] = []
        pieces = self._framer.feed(data)
        while pieces and not self._is_over:
            piece = pieces.pop(0)
            acts += self._handle(piece)
            if isinstance(piece, MessageEnd) and self._framer.waits_for_answer:
                pieces += self._framer.resume()
        return acts

    def _handle(self, piece: Piece) -> list[Act]:
        if isinstance(piece, RequestHead):
            return self._asks(piece)
        if isinstance(piece, Body) and not self._is_answered:
            self._body.append(piece.raw)
        elif isinstance(piece, MessageEnd):
            return self._is_asked()
        elif isinstance(piece, Violation):
            self._is_over = True
            return [Reset()]
        return []

    def hang_up(self) -> list[Act]:
        """A question that was cut short in the recording too is used up by it."""
        if self._bytes is not None:
            return self._bytes.hang_up()
        if self._head is not None and not self._is_answered and not self._is_over:
            asked = self._asked(self._head, b"".join(self._body))
            if self._pool.has(asked.kind, asked.asked):
                self._claim(asked)
        return []

    def carry_on(self, calls: list[Call], where: Resume) -> list[Act]:
        """Go on at a place of the recorded dialogue that has these calls."""
        self._dialogue = where.dialogue.number
        messages = [call for call in calls if "interim" in call.extra]
        stood = standing(messages, where, self._pool, self._finish)
        acts = stood.acts
        if stood.past and stood.past[-1].extra["stream"]:
            self._bytes = PlainSession(self._pool, self._number, self._to, last=stood.past[-1])
            return acts + self._bytes.carry_on(calls[len(messages) :], where)
        self._next = next(iter(messages[len(stood.past) :]), None)
        rest = [call for call in calls[len(messages) :] if not call.extra["question"]]
        if not self._is_over and self._next is None and stood.half is None:
            acts += standing(rest[:1], where, self._pool, self._end_of_bytes).acts
        if stood.half is not None:
            self._half, self._given = stood.half, stood.given
            acts += self.feed(Timing(where.dialogue).up[stood.half.up[0] : where.up])
        return acts

    # -- a question ---------------------------------------------------------------------------------------------------

    def _asked(self, head: RequestHead, body: bytes | None) -> HttpQuestion:
        return asked_of(head, body, scheme=self._scheme, to=self._to)

    def _asks(self, head: RequestHead) -> list[Act]:
        """The head is there: some are answered before the body is sent, some are told to go on."""
        self._head, self._body, self._is_answered = head, [], False
        if head.length == 0:
            return []
        asked = self._asked(head, None)
        if self._pool.has(asked.kind, asked.asked):
            self._is_answered = True
            found = self._claim(asked)
            assert found.call is not None
            half, self._half = self._half, None
            is_half = (
                half is not None and half.index == found.call.index and half.dialogue == found.call.dialogue
            )
            return self._play(found.call, head, is_half=is_half)
        own = self._next
        if own is not None and own.extra["interim"] and own.asked.get("url") == asked.asked["url"]:
            interim = own.extra["interim"]
            acts = sends(_first(rest_of(own.pieces, self._given), interim - self._given))
            self._given = max(self._given, interim)
            return acts
        return [Send(_CONTINUE)] if head.expects_continue and not self._is_mute else []

    def _is_asked(self) -> list[Act]:
        head, self._head = self._head, None
        if head is None or self._is_answered:
            return []
        asked = self._asked(head, b"".join(self._body))
        half, self._half = self._half, None
        if half is not None and self._is_same(half, asked):
            call: Call | None = self._pool.give(half, connection=self._number).call
        else:
            found = self._claim(asked, again=head.method in _SAFE)
            call = found.call
            if half is not None and self._given > half.extra["interim"]:
                call = half  # its answer has begun: there is no other one any more
            elif call is None:
                return self._miss(found, head)
        assert call is not None
        return self._play(call, head, is_half=call is half)

    def _is_same(self, call: Call, asked: HttpQuestion) -> bool:
        kind = asked.kind
        return call.kind is kind and self._pool.masked(call.asked, kind) == self._pool.masked(
            asked.asked, kind
        )

    def _claim(self, asked: HttpQuestion, *, again: bool = False) -> PoolMatch:
        return self._pool.claim(
            asked.kind,
            asked.asked,
            connection=self._number,
            dialogue=self._dialogue,
            origin=origin(asked.volatile),
            again=again,
        )

    def _miss(self, found: PoolMatch, head: RequestHead) -> list[Act]:
        if self._is_mute:
            return []
        if self._resets:
            self._is_over = True
            return [Reset()]
        self._is_over = closes = b"close" in _connection_of(head) or head.version == b"1.0"
        said: list[Act] = [Send(miss_answer(found, is_head=head.method == b"HEAD"))]
        return [*said, Close()] if closes else said

    # -- an answer ----------------------------------------------------------------------------------------------------

    def _play(self, call: Call, head: RequestHead, *, is_half: bool = False) -> list[Act]:
        if self._is_mute:
            return []
        told_to_go_on = call.extra["interim"] if head.expects_continue else 0
        given = self._given if is_half else told_to_go_on
        self._given, self._next = 0, self._pool.after(call) if call.dialogue == self._dialogue else None
        if self._next is not None and "interim" not in self._next.extra:
            self._next = None
        pieces = rest_of(call.pieces, given)
        if head.version == b"1.0" and call.extra["chunked"] and not is_half:
            call = replace(call, extra={**call.extra, "closes": True})
            pieces = _unchunked(call, pieces)
        acts = [*sends(pieces), *self._finish(call)]
        if call.extra["stream"]:
            return acts + self._become_bytes(call)
        acts += self._unasked(call)
        if not self._is_over and call.answer is not None and _wants_end(head):
            self._is_over = True
            acts.append(Close())
        return acts

    def _finish(self, call: Call) -> list[Act]:
        """What comes after the last byte of an answer."""
        if call.end is CallEnd.ANSWERED:
            if not call.extra["closes"] or call.extra["stream"]:
                return []
            self._is_over = True
            return [Close(call.end_after_ns)]
        acts = ending_acts(call.end, call.end_after_ns)
        self._is_over = self._is_over or bool(acts)
        self._is_mute = not acts
        return acts

    def _unasked(self, call: Call) -> list[Act]:
        """What came after an answer without a question, on the recorded connection that this one follows; it is the last of it."""
        following = self._pool.after(call) if call.dialogue == self._dialogue else None
        if self._is_over or following is None or following.kind is not EventKind.DIALOGUE_UP:
            return []
        if following.extra["question"]:
            return []
        self._pool.give(following, connection=self._number)
        return [*sends(following.pieces), *self._end_of_bytes(following)]

    def _end_of_bytes(self, call: Call) -> list[Act]:
        if call.extra["closes"]:
            self._is_over = True
            return [Close(call.end_after_ns)]
        acts = ending_acts(call.end, call.end_after_ns)
        self._is_over = self._is_over or bool(acts)
        return acts

    def _become_bytes(self, call: Call) -> list[Act]:
        self._bytes = PlainSession(self._pool, self._number, self._to, last=call)
        acts = self._bytes.go_on()
        for piece in self._framer.become_stream():
            acts += self._bytes.feed(piece.raw)
        return acts


def _wants_end(head: RequestHead) -> bool:
    words = _connection_of(head)
    return b"close" in words or (head.version == b"1.0" and b"keep-alive" not in words)


def _connection_of(head: RequestHead) -> set[bytes]:
    return {
        word.strip().lower()
        for name, value in head.headers
        if name == b"connection"
        for word in value.split(b",")
    }


def _first(pieces: tuple[Timed, ...], size: int) -> tuple[Timed, ...]:
    """The first bytes of pieces."""
    found: list[Timed] = []
    for piece in pieces:
        if size <= 0:
            break
        found.append(Timed(piece.after_ns, piece.data[:size]))
        size -= len(piece.data)
    return tuple(found)


def _unchunked(call: Call, pieces: tuple[Timed, ...]) -> tuple[Timed, ...]:
    """For a client of HTTP/1.0, which knows no chunks: the answer as one that lasts until the connection closes."""
    raw = b"".join(piece.data for piece in pieces)
    head, body = raw[: call.extra["head"]], raw[call.extra["head"] :]
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"transfer-encoding:")]
    wait = sum(piece.after_ns for piece in pieces)
    return (Timed(wait, b"\r\n".join(lines) + dechunk(body)),)
