"""Outcomes made from what was recorded and from what a branch did."""

from __future__ import annotations

import base64
import codecs
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from relive.kernel.plainfile import open_plain
from relive.model.failure_stack import lines_of_request, stack_of_end
from relive.model.incident import FailureKind, Sighting
from relive.model.outcome import End, Fault, Outcome
from relive.model.stack import last_stack
from relive.recording.chunked import dechunk
from relive.recording.exchanges import Exchange, ExchangeEnd
from relive.recording.heads import parse_headers
from relive.replay.received import ReceivedAnswer

__all__ = [
    "died_outcome",
    "read_log",
    "read_log_of",
    "read_open_log",
    "recorded_answer",
    "recorded_outcome",
    "replayed_answer",
    "with_fault",
]

_LOG_MOST = 1 << 18  # [bytes] of log that one outcome keeps
_BEHIND_MOST = 1 << 16  # [bytes] of log behind an answer
_ANSWERED = frozenset({FailureKind.ANSWER, FailureKind.EXCEPTION, FailureKind.LOG})
_BODY_MOST = 1 << 20  # [bytes] of body that one outcome shows


def read_log(log: Path, begin: int, end: int | None = None) -> list[str]:
    """Lines of a log file between two offsets, at most the last 256 KiB of them; empty when it is gone, or no file.

    Without what was freed of it (``relive.agent.capsule.log_rotation``).
    """
    try:
        with open_plain(log) as file:
            return read_open_log(file.fileno(), begin, end)
    except OSError:
        return []


def read_open_log(descriptor: int, begin: int, end: int | None = None) -> list[str]:
    """As ``read_log``, of a file that is open; raises OSError."""
    size = os.fstat(descriptor).st_size if end is None else end
    begin = max(begin, size - _LOG_MOST)
    text = os.pread(descriptor, max(0, size - begin), begin).lstrip(b"\0")
    return text.decode(errors="replace").splitlines()


def _body(data: bytes, *, is_cut: bool = False) -> tuple[str, bool, int]:
    """The body as shown, whether that is base64, and how many bytes are not shown; ``is_cut``: it may end within a character."""
    shown = data[:_BODY_MOST]
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, final=not is_cut)
    except UnicodeDecodeError:
        return base64.b64encode(shown).decode(), True, len(data) - len(shown)
    text = shown.decode(errors="ignore")  # the cut may go through a character
    return text, False, len(data) - len(text.encode())


def _headers(head: bytes) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in parse_headers(head)]


def recorded_answer(exchange: Exchange, log: list[str]) -> Outcome:
    """The outcome of one request as the recording holds it."""
    ends = {
        ExchangeEnd.ANSWERED: End.ANSWERED,
        ExchangeEnd.UPGRADED: End.ANSWERED,
        ExchangeEnd.BROKEN: End.BROKEN,
    }
    text, is_base64, cut = _body(exchange.answer_body(), is_cut=exchange.answer_cut > 0)
    return Outcome(
        end=ends.get(exchange.ended, End.NO_ANSWER),
        status=exchange.status,
        headers=_headers(exchange.answer_head) + exchange.answer_trailers,
        body=text,
        body_is_base64=is_base64,
        body_cut=cut + exchange.answer_cut,
        seconds=exchange.seconds,
        log=log,
        stack=last_stack(log),
    )


def read_log_of(
    log: Path, sighting: Sighting, begin: int, end: int | None, exchange: Exchange | None
) -> tuple[list[str], list[str]]:
    """The lines of a failure, and what others wrote after a worker's exit."""
    if sighting.log_held is not None:
        return read_log(log, begin, sighting.log_held), read_log(log, sighting.log_held, end)
    is_answered = (
        exchange is not None and exchange.ended is ExchangeEnd.ANSWERED and sighting.kind in _ANSWERED
    )
    answered = exchange.log_offsets_after.get(str(log)) if exchange is not None and is_answered else None
    if answered is None:
        return read_log(log, begin, end), []
    end = min(end, answered + _BEHIND_MOST) if end is not None else answered + _BEHIND_MOST
    lines, behind = read_log(log, begin, max(end, answered)), read_log(log, answered, max(end, answered))
    return lines_of_request(lines, len(lines) - len(behind)), []


def recorded_outcome(
    sighting: Sighting, exchange: Exchange | None, log: list[str], after: Sequence[str] = ()
) -> Outcome:
    """The outcome of an incident: of its request, or of the service itself where it died; ``after``: as ``Outcome.log_after``."""
    ends_service = sighting.kind is FailureKind.EXCEPTION and sighting.exit_status is not None
    if ends_service or sighting.kind in (FailureKind.SIGNAL, FailureKind.EXIT, FailureKind.MEMORY):
        return Outcome(
            end=End.DIED,
            signal=sighting.signal,
            exit_status=sighting.exit_status if sighting.signal is None else 128 + sighting.signal,
            out_of_memory=sighting.kind is FailureKind.MEMORY,
            worker=sighting.kind is FailureKind.EXIT and sighting.worker,
            log=log,
            log_after=list(after),
            stack=stack_of_end(sighting.signal, log),
        )
    if exchange is None:
        return Outcome(end=End.NO_ANSWER, log=log, stack=last_stack(log))
    if sighting.kind is FailureKind.HANG:  # whatever came of it later
        return Outcome(end=End.NO_ANSWER, log=log, stack=last_stack(log))
    return recorded_answer(exchange, log)


def replayed_answer(answer: ReceivedAnswer, log: list[str]) -> Outcome:
    """The outcome of a request in a branch."""
    headers = _headers(answer.head) + answer.trailers
    raw = bytes(answer.body)
    chunked = any(name == "transfer-encoding" and "chunked" in value.lower() for name, value in headers)
    text, is_base64, cut = _body(dechunk(raw) if chunked else raw)
    return Outcome(
        end=answer.end,
        status=answer.status,
        headers=headers,
        body=text,
        body_is_base64=is_base64,
        body_cut=cut,
        seconds=answer.seconds,
        log=log,
        stack=last_stack(log),
    )


def died_outcome(wait_status: int | None, log: list[str], seconds: float) -> Outcome:
    """The outcome of a branch whose service was judged as a whole; ``wait_status`` None: it lives."""
    code = os.waitstatus_to_exitcode(wait_status) if wait_status is not None else None
    number = -code if code is not None and code < 0 else None
    return Outcome(
        end=End.NOTHING if code is None else End.DIED,
        signal=number,
        exit_status=None if code is None else code if code >= 0 else 128 - code,
        seconds=seconds,
        log=log,
        stack=stack_of_end(number, log),
    )


def with_memory_used_up(outcome: Outcome) -> Outcome:
    """The outcome of a branch in which the kernel killed a process for want of memory, whether or not the service's first one."""
    number = int(signal.SIGKILL)
    return outcome.model_copy(
        update={
            "end": End.DIED,
            "signal": number,
            "exit_status": 128 + number,
            "out_of_memory": True,
            "stack": None,
        }
    )


def with_worker_exit(outcome: Outcome, status: int) -> Outcome:
    """The outcome of a branch in which a process that is not the service's first one ended with that status."""
    return outcome.model_copy(update={"end": End.DIED, "signal": None, "exit_status": status, "worker": True})


def with_fault(outcome: Outcome, fault: Fault) -> Outcome:
    """The outcome of a branch in which a process got a fatal signal, whether or not the service's first one."""
    return outcome.model_copy(
        update={
            "end": End.DIED,
            "signal": fault.signal,
            "exit_status": 128 + fault.signal,
            "fault": fault,
            "stack": stack_of_end(fault.signal, outcome.log),
        }
    )
