"""Names ("dns"): questions to name servers (RFC 1035), over UDP as name-lookup events, over TCP as dialogues at port 53.

Calls are of kind NAME_LOOKUP; ``asked`` has ``name`` (lower case, no dot at the end), ``type`` ("A", or a number), ``over`` ("udp",
"tcp"); ``answer`` has ``status`` ("NOERROR", ...) and ``records`` (list of [type, value], those that are addresses or names).

A question is found by name and type, first over the same transport, and answered any number of times: the recorded message with
the live id and the live spelling of the name. What was recorded without an answer is met with silence. Of a name that was asked for
with other types only, it is said that there is nothing of this type; of any other that there is no such name.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from relive.protocols.call import Call, CallEnd, Timed
from relive.protocols.opaque import rest_as_bytes
from relive.protocols.pool import Pool
from relive.protocols.resuming import standing
from relive.protocols.session import NOWHERE, Act, Protocol, Reset, Resume, Send, Session
from relive.protocols.timing import Timing, ending_acts
from relive.recording.dialogues import Dialogue
from relive.recording.events import Event, EventKind

__all__ = ["Names", "OnMiss"]

OnMiss = Literal["nxdomain", "servfail"]
_KIND = EventKind.NAME_LOOKUP
_TYPES = {
    1: "A",
    2: "NS",
    5: "CNAME",
    6: "SOA",
    12: "PTR",
    15: "MX",
    16: "TXT",
    28: "AAAA",
    33: "SRV",
    65: "HTTPS",
}
_STATUS = {0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED"}
_NXDOMAIN, _SERVFAIL, _FORMERR = 3, 2, 1
_HEADER = struct.Struct("!6H")
_TRUNCATED = 0x0200
_MOST_RECORDS = 64
_MOST_LABELS = 128
_LONGEST = 2 + 0xFFFF  # [bytes] of a message over TCP
_PORT = 53


@dataclass(frozen=True, slots=True)
class _Question:
    """The first question of a message; ``end`` is where it ends in that."""

    number: int
    flags: int
    name: str
    type: str
    end: int


class Names(Protocol):
    """Name servers.

    Args:
        on_miss: what is said of a name that was never asked for: that there is none ("nxdomain"), or that the server failed.
    """

    name: ClassVar[str] = "dns"

    def __init__(self, on_miss: OnMiss = "nxdomain") -> None:
        self._status = _NXDOMAIN if on_miss == "nxdomain" else _SERVFAIL

    def recognises(self, dialogue: Dialogue) -> bool:
        if dialogue.to[1] != _PORT or dialogue.tls is not None:
            return False
        timing = Timing(dialogue)
        return all(_question(message) is not None for _, message in _messages(timing.up))

    def lookups(self, events: Iterable[Event]) -> list[Call]:
        """The calls of name-lookup events, to be put into a pool with the others."""
        found = []
        for event in events:
            question = _question(bytes(event.fields.get("question", b"")))
            if event.kind is _KIND and question is not None:
                found.append(_call_of(event, question))
        return found

    def answer(self, pool: Pool, number: int, message: bytes) -> Send | None:
        """What a name server says to a datagram; None where it says nothing."""
        return self._answer(pool, number, message, "udp", None)

    def calls(self, dialogue: Dialogue) -> list[Call]:
        return _calls(dialogue)

    def open(self, pool: Pool, number: int, *, to: tuple[str, int] = NOWHERE) -> Session:  # noqa: ARG002  any will do
        return _NamesSession(self, pool, number)

    def resume(self, pool: Pool, number: int, where: Resume) -> tuple[Session, list[Act]]:
        session = _NamesSession(self, pool, number)
        return session, session.carry_on(self.calls(where.dialogue), where)

    def _answer(
        self, pool: Pool, number: int, message: bytes, over: str, dialogue: int | None
    ) -> Send | None:
        if len(message) < _HEADER.size:
            return None
        question = _question(message)
        if question is None:
            return Send(_own(message, None, _FORMERR))
        asked = _asked(question, over)
        other = _asked(question, "tcp" if over == "udp" else "udp")
        if not pool.has(_KIND, asked, again=True) and pool.has(_KIND, other, again=True):
            asked = other
        call = pool.claim(_KIND, asked, connection=number, dialogue=dialogue, again=True).call
        if call is None:
            return Send(_own(message, question, 0 if _is_known(pool, question) else self._status))
        if not call.pieces:
            return None
        said = b"".join(piece.data for piece in call.pieces)
        said = said[2:] if call.asked["over"] == "tcp" else said
        return Send(_fitted(said, message, question), sum(piece.after_ns for piece in call.pieces))


class _NamesSession(Session):
    """Questions over TCP, each with its length before it."""

    def __init__(self, names: Names, pool: Pool, number: int) -> None:
        self._names = names
        self._pool = pool
        self._number = number
        self._held = bytearray()
        self._dialogue: int | None = None
        self._is_over = False

    def feed(self, data: bytes) -> list[Act]:
        acts: list[Act] = []
        self._held += data
        while len(self._held) >= 2 and not self._is_over:
            size = int.from_bytes(self._held[:2])
            if len(self._held) < 2 + size:
                break
            message = bytes(self._held[2 : 2 + size])
            del self._held[: 2 + size]
            if len(message) < _HEADER.size:
                self._is_over = True
                return [*acts, Reset()]
            said = self._names._answer(self._pool, self._number, message, "tcp", self._dialogue)
            if said is not None:
                acts.append(Send(len(said.data).to_bytes(2) + said.data, said.after_ns))
        return acts

    def hang_up(self) -> list[Act]:
        return []

    def carry_on(self, calls: list[Call], where: Resume) -> list[Act]:
        """Go on at a place of the recorded dialogue that has these calls."""
        self._dialogue = where.dialogue.number
        stood = standing(calls, where, self._pool, lambda call: ending_acts(call.end, call.end_after_ns))
        if stood.half is not None:
            self._held += Timing(where.dialogue).up[stood.half.up[0] : where.up]
        return stood.acts


# -- calls ------------------------------------------------------------------------------------------------------------


def _asked(question: _Question, over: str) -> dict[str, Any]:
    return {"name": question.name, "type": question.type, "over": over}


def _call_of(event: Event, question: _Question) -> Call:
    host, port = event.fields.get("to", NOWHERE)
    took = max(0, int(event.fields.get("ns", 0)))
    return Call(
        kind=_KIND,
        asked=_asked(question, "udp"),
        answer=_decoded(event.data) if event.data else None,
        end=CallEnd.ANSWERED if event.data else CallEnd.OPEN,
        dialogue=0,
        index=event.seq,
        to=(str(host), int(port)),
        asked_mono_ns=event.mono_ns - took,
        ended_mono_ns=event.mono_ns if event.data else None,
        up=(0, len(event.fields["question"])),
        down=(0, len(event.data)),
        pieces=(Timed(took, event.data),) if event.data else (),
    )


def _calls(dialogue: Dialogue) -> list[Call]:
    timing = Timing(dialogue)
    answers = {
        int.from_bytes(message[:2]): (begin, message) for begin, message in reversed(_messages(timing.down))
    }
    how, when = timing.end()
    found: list[Call] = []
    place = up = 0
    for begin, message in _messages(timing.up):
        question = _question(message)
        if question is None:
            break
        up = begin + 2 + len(message)
        known = answers.pop(question.number, None)
        down = (place, place) if known is None else (known[0], known[0] + 2 + len(known[1]))
        place = max(place, down[1])
        found.append(
            Call(
                kind=_KIND,
                asked=_asked(question, "tcp"),
                answer=_decoded(known[1]) if known is not None else None,
                end=CallEnd.ANSWERED if known is not None else how,
                dialogue=dialogue.number,
                index=len(found),
                to=dialogue.to,
                asked_mono_ns=timing.asked_ns(begin),
                ended_mono_ns=timing.answered_ns(down[1] - 1) if known is not None else when,
                up=(begin, up),
                down=down,
                pieces=timing.pieces(up, *down),
                end_after_ns=0 if known is not None else timing.end_after_ns(up, place),
            )
        )
    return found + rest_as_bytes(dialogue, timing, up, place, len(found))


def _messages(data: bytes) -> list[tuple[int, bytes]]:
    """(place, message without its length) of those that are whole."""
    found = []
    at = 0
    while at + 2 <= len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2])
        if end > len(data):
            break
        found.append((at, data[at + 2 : end]))
        at = end
    return found


# -- messages ---------------------------------------------------------------------------------------------------------


def _question(message: bytes) -> _Question | None:
    """None for what is no question, or has none or several."""
    if len(message) < _HEADER.size:
        return None
    number, flags, questions, *_ = _HEADER.unpack_from(message)
    name, at = _name(message, _HEADER.size)
    if questions != 1 or name is None or at + 4 > len(message):
        return None
    kind, family = struct.unpack_from("!2H", message, at)
    shown = _TYPES.get(kind, str(kind)) if family == 1 else f"{kind} of class {family}"
    return _Question(number, flags, name.lower(), shown, at + 4)


def _name(message: bytes, at: int) -> tuple[str | None, int]:
    """A name, and where it ends; None for what is none. Of a pointer only earlier places are followed, so it ends."""
    labels: list[str] = []
    end = None
    limit = at
    while at < len(message) and len(labels) < _MOST_LABELS:
        size = message[at]
        if size == 0:
            return ".".join(labels), end if end is not None else at + 1
        if size & 0xC0 == 0xC0 and at + 1 < len(message):
            end = end if end is not None else at + 2
            at = int.from_bytes(message[at : at + 2]) & 0x3FFF
            if at >= limit:
                return None, 0
            limit = at
        elif size & 0xC0 or at + 1 + size > len(message):
            return None, 0
        else:
            labels.append(message[at + 1 : at + 1 + size].decode("latin-1"))
            at += 1 + size
    return None, 0


def _decoded(message: bytes) -> dict[str, Any]:
    """What is shown of an answer; of a message that is none, as much as can be read."""
    if len(message) < _HEADER.size:
        return {"status": "FORMERR", "records": []}
    _, flags, questions, answers, *_ = _HEADER.unpack_from(message)
    records: list[list[str]] = []
    at = _HEADER.size
    for _ in range(min(questions, 1)):
        at = _name(message, at)[1] + 4
    for _ in range(min(answers, _MOST_RECORDS)):
        name, at = _name(message, at)
        if name is None or at + 10 > len(message):
            break
        kind, _, _, size = struct.unpack_from("!2HIH", message, at)
        value = _value(message, kind, at + 10, size)
        at += 10 + size
        if value is not None:
            records.append([_TYPES.get(kind, str(kind)), value])
    return {"status": _STATUS.get(flags & 15, str(flags & 15)), "records": records}


def _value(message: bytes, kind: int, at: int, size: int) -> str | None:
    data = message[at : at + size]
    if (kind, len(data)) in ((1, 4), (28, 16)):
        return str(ipaddress.ip_address(data))
    return _name(message, at)[0] if kind in (2, 5, 12) else None


def _is_known(pool: Pool, question: _Question) -> bool:
    """The name was asked for with another type, and there was one."""
    return any(
        call.asked["name"] == question.name and call.answer is not None and call.answer["status"] == "NOERROR"
        for call in pool.of(_KIND)
    )


def _fitted(said: bytes, message: bytes, question: _Question) -> bytes:
    """A recorded answer with the id of a question, and with its spelling (some resolvers mix capitals in, and compare)."""
    recorded = _question(said)
    if recorded is None or recorded.end != question.end:
        return message[:2] + said[2:]
    return message[:2] + said[2 : _HEADER.size] + message[_HEADER.size : question.end] + said[question.end :]


def _own(message: bytes, question: _Question | None, status: int) -> bytes:
    """An answer without records."""
    number, flags = struct.unpack_from("!2H", message)
    # An answer, recursion available; opcode and recursion desired kept.
    flags = 0x8080 | (flags & 0x7900) | status
    body = message[_HEADER.size : question.end] if question is not None else b""
    return _HEADER.pack(number, flags, 1 if body else 0, 0, 0, 0) + body
