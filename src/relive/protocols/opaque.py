"""Protocols that are not understood ("bytes"): questions and answers by turns of direction, the very bytes.

A *turn* is what the service said until the other end spoke, with what that said until the service spoke again; one that begins
with the other end has an empty question. Calls are of kind DIALOGUE_UP; ``asked`` has ``server`` ("address:port") and ``data``
(packed; longer than 64 KiB: {"bytes", "blake2b"}), ``answer`` has ``data`` in the same way. ``extra``: ``question`` (bytes),
``sink`` (bool: the other end never said anything: to such a one everything may be said), ``closes`` (bool: the other end closes
after it).

A question is found by its exact bytes and by whom it is said to: the next turn of the same recorded connection first, then the
longest that fits, of the oldest. What fits none breaks the connection.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, ClassVar

from relive.protocols.call import Call, CallEnd
from relive.protocols.pool import Pool
from relive.protocols.resuming import standing
from relive.protocols.session import NOWHERE, Act, Close, Protocol, Reset, Resume, Session
from relive.protocols.timing import Timing, ending_acts, sends
from relive.recording.dialogues import Dialogue, Way
from relive.recording.events import EventKind
from relive_inprocess.relive_recorder.values import pack

__all__ = ["Plain", "PlainSession", "encoded_bytes", "rest_as_bytes", "turns"]

_KIND = EventKind.DIALOGUE_UP
_INLINE = 64 << 10  # [bytes]


class Plain(Protocol):
    """Any protocol."""

    name: ClassVar[str] = "bytes"

    def recognises(self, dialogue: Dialogue) -> bool:  # noqa: ARG002  everything is bytes
        return True

    def calls(self, dialogue: Dialogue) -> list[Call]:
        return turns(dialogue, Timing(dialogue), 0, 0, 0)

    def open(self, pool: Pool, number: int, *, to: tuple[str, int] = NOWHERE) -> Session:
        return PlainSession(pool, number, to)

    def resume(self, pool: Pool, number: int, where: Resume) -> tuple[Session, list[Act]]:
        session = PlainSession(pool, number, where.dialogue.to)
        return session, session.carry_on(self.calls(where.dialogue), where)


class PlainSession(Session):
    """One connection.

    Args:
        last: the call after which it goes on as recorded, None for a new connection.
    """

    def __init__(self, pool: Pool, number: int, to: tuple[str, int], last: Call | None = None) -> None:
        self._pool = pool
        self._number = number
        self._to = to
        self._last = last
        self._half: Call | None = None  # of which a part had been asked when the session began
        self._next: Call | None = None  # the first of a recorded connection that this one follows
        self._held = bytearray()
        self._is_sink = False
        self._is_over = False

    def begin(self) -> list[Act]:
        first = [call for call in self._pool.of(_KIND) if call.to == self._to and not call.extra["question"]]
        fresh = next((call for call in first if self._pool.is_waiting(call)), None)
        if fresh is not None:
            return self._play(self._pool.give(fresh, connection=self._number).call)
        return self._play(first[-1]) if first else []  # a greeting is given to each that comes

    def feed(self, data: bytes) -> list[Act]:
        acts: list[Act] = []
        if self._is_over or self._is_sink:
            return acts
        self._held += data
        while self._held and not self._is_over:
            call = self._fitting()
            if call is None:
                if self._may_become_one():
                    break
                return [*acts, *self._miss()]
            self._is_sink = bool(call.extra["sink"])
            del self._held[: len(self._held) if self._is_sink else len(call.extra["question"])]
            acts += self._play(self._pool.give(call, connection=self._number).call)
        return acts

    def hang_up(self) -> list[Act]:
        return []

    def go_on(self) -> list[Act]:
        """What the other end said, unasked, after the last call."""
        following = self._pool.after(self._last) if self._last is not None else None
        if following is None or following.kind is not _KIND or following.extra["question"]:
            return []
        return self._play(self._pool.give(following, connection=self._number).call)

    def carry_on(self, calls: list[Call], where: Resume) -> list[Act]:
        """Go on at a place of the recorded dialogue that has these calls."""
        stood = standing(calls, where, self._pool, self._finish)
        self._last = stood.past[-1] if stood.past else self._last
        if stood.half is not None:
            self._held += Timing(where.dialogue).up[stood.half.up[0] : where.up]
            self._half = stood.half
        elif not stood.past and calls:
            self._next = calls[0]
        return stood.acts

    def _own(self) -> Call | None:
        """The next call of the recorded connection that this one follows."""
        if self._half is not None:
            return self._half
        following = self._pool.after(self._last) if self._last is not None else self._next
        return following if following is not None and self._fits_here(following) else None

    def _fits_here(self, call: Call) -> bool:
        return call.kind is _KIND and bool(call.extra["question"]) and self._pool.is_waiting(call)

    def _others(self) -> list[Call]:
        return [call for call in self._pool.waiting(_KIND) if call.to == self._to and call.extra["question"]]

    def _fitting(self) -> Call | None:
        own = self._own()
        if own is not None and self._held.startswith(own.extra["question"]):
            return own
        sink = self._sink()
        if sink is not None:
            return sink
        if own is not None and own.extra["question"].startswith(self._held):
            return None
        fitting = [call for call in self._others() if self._held.startswith(call.extra["question"])]
        return max(fitting, key=lambda call: len(call.extra["question"]), default=None)

    def _sink(self) -> Call | None:
        """A call to the same destination, where no connection was ever answered."""
        known = [call for call in self._pool.of(_KIND) if call.to == self._to]
        return known[0] if known and all(call.extra["sink"] for call in known) else None

    def _may_become_one(self) -> bool:
        own = self._own()
        candidates = self._others() if own is None else [own, *self._others()]
        return any(call.extra["question"].startswith(self._held) for call in candidates)

    def _play(self, call: Call | None) -> list[Act]:
        assert call is not None
        self._last, self._half, self._next = call, None, None
        return [*sends(call.pieces), *self._finish(call)]

    def _finish(self, call: Call) -> list[Act]:
        if call.extra.get("closes"):
            self._is_over = True
            return [Close(call.end_after_ns)]
        acts = ending_acts(call.end, call.end_after_ns)
        self._is_over = self._is_over or bool(acts)
        return acts

    def _miss(self) -> list[Act]:
        asked = {"server": f"{self._to[0]}:{self._to[1]}", "data": encoded_bytes(bytes(self._held))}
        self._pool.claim(_KIND, asked, connection=self._number)
        self._is_over = True
        return [Reset()]


def turns(dialogue: Dialogue, timing: Timing, up: int, down: int, index: int) -> list[Call]:
    """The turns from a place in both directions on; ``index`` is that of the first."""
    found: list[Call] = []
    for begin, end in _bounds(dialogue, up, down):
        found.append(_turn(dialogue, timing, begin, end, index + len(found)))
    if found:
        found[-1] = _last_turn(found[-1], timing)
    return found


def rest_as_bytes(dialogue: Dialogue, timing: Timing, up: int, down: int, index: int) -> list[Call]:
    """All that follows as one call, or none when nothing does."""
    end = (len(timing.up), len(timing.down))
    if (up, down) == end:
        return []
    return [_last_turn(_turn(dialogue, timing, (up, down), end, index), timing)]


def encoded_bytes(data: bytes) -> Any:
    """Bytes as they are shown and compared."""
    if len(data) > _INLINE:
        return {"bytes": len(data), "blake2b": blake2b(data, digest_size=16).hexdigest()}
    return pack(data)


def _bounds(dialogue: Dialogue, up: int, down: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """(begin, end) of turns, each as (place of up, place of down)."""
    places = {Way.UP: 0, Way.DOWN: 0}
    begins = {Way.UP: up, Way.DOWN: down}
    found: list[tuple[tuple[int, int], tuple[int, int]]] = []
    begin = (up, down)
    last: Way | None = None
    for piece in dialogue.pieces:
        places[piece.way] += len(piece.data)
        if places[piece.way] <= begins[piece.way] or not piece.data:
            continue
        if piece.way is Way.UP and last is Way.DOWN:
            here = (max(up, places[Way.UP] - len(piece.data)), max(down, places[Way.DOWN]))
            found.append((begin, here))
            begin = here
        last = piece.way
    end = (max(up, places[Way.UP]), max(down, places[Way.DOWN]))
    return [*found, (begin, end)] if end != begin else found


def _turn(
    dialogue: Dialogue, timing: Timing, begin: tuple[int, int], end: tuple[int, int], index: int
) -> Call:
    question, answer = timing.up[begin[0] : end[0]], timing.down[begin[1] : end[1]]
    return Call(
        kind=_KIND,
        asked={"server": f"{dialogue.to[0]}:{dialogue.to[1]}", "data": encoded_bytes(question)},
        answer={"data": encoded_bytes(answer)} if answer else None,
        end=CallEnd.ANSWERED,
        dialogue=dialogue.number,
        index=index,
        to=dialogue.to,
        asked_mono_ns=timing.asked_ns(begin[0]) if question else timing.answered_ns(begin[1]),
        ended_mono_ns=timing.answered_ns(end[1] - 1) if answer else timing.end()[1],
        up=(begin[0], end[0]),
        down=(begin[1], end[1]),
        pieces=timing.pieces(end[0], begin[1], end[1]),
        extra={"question": question, "sink": not timing.down, "closes": False},
    )


def _last_turn(call: Call, timing: Timing) -> Call:
    """The last one ends as the connection does."""
    how, when = timing.end()
    if call.answer is not None and how is not CallEnd.RESET:
        end, closes = CallEnd.ANSWERED, how is CallEnd.CLOSED
    else:
        end, closes = how, False
    return Call(
        **{
            **{name: getattr(call, name) for name in Call.__slots__},
            "end": end,
            "ended_mono_ns": call.ended_mono_ns if end is CallEnd.ANSWERED else when,
            "end_after_ns": timing.end_after_ns(call.up[1], call.down[1]),
            "extra": {**call.extra, "closes": closes},
        }
    )
