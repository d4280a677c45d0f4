"""One thing that a service asked over a connection, and what it was answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from relive.recording.events import EventKind

__all__ = ["Call", "CallEnd", "Timed"]


class CallEnd(StrEnum):
    """How a call ended."""

    ANSWERED = "answered"
    CLOSED = "closed"  # the other end closed the connection before the answer was whole
    RESET = "reset"  # or broke it
    GIVEN_UP = "given-up"  # the service closed it before the answer was whole, as after a time-out of its own
    OPEN = "open"  # the recording ends before the answer does


@dataclass(frozen=True, slots=True)
class Timed:
    """Bytes of an answer.

    Attributes:
        after_ns: since the piece before; of the first one since the last byte of the question, or since the end of the answer
            before on this connection where that was later, as it is when questions are not waited for. Never negative.
    """

    after_ns: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Call:
    """A call, with what it is found by, what is shown of it, and what is sent when it is asked again.

    Attributes:
        kind: QUERY, REDIS_COMMAND, HTTP_CALL, S3_CALL, NAME_LOOKUP, or DIALOGUE_UP for protocols that are only bytes.
        asked: what it is found by and shown as, JSON values. The names are those of the recorder in Python processes
            (``src/relive_inprocess/relive_recorder/kinds``), so that a timeline reads the same, whoever recorded it.
        answer: the same way, what is shown of the answer, a JSON value; None without one (and for Redis's null).
        dialogue: number of its connection; index: its place among the calls of that, from 0.
        to: (address, port) it was sent to.
        asked_mono_ns: of the first byte of the question; ended_mono_ns: of the last of the answer, or of the end of the
            connection; None while open.
        up, down: begin and end of question and answer as places in the dialogue.
        pieces: the answer as it came, chunk by chunk; what is sent again where the protocol needs no other bytes.
        end_after_ns: since the last piece (or the question) to the end of the connection, where that ended the call.
        extra: what only the protocol itself understands.
    """

    kind: EventKind
    asked: Mapping[str, Any]
    answer: Any
    end: CallEnd
    dialogue: int
    index: int
    to: tuple[str, int]
    asked_mono_ns: int
    ended_mono_ns: int | None
    up: tuple[int, int]
    down: tuple[int, int]
    pieces: tuple[Timed, ...] = ()
    end_after_ns: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)
