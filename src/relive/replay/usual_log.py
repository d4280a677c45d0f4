"""What a service writes to its log also where nothing fails: it shows the cause of no failure.

A server that names each connection, a warning that is printed at each request, a harmless traceback: after the failure they stand
last in the log of both sides, whatever the cause was. It is what was written from the beginning of one request to that of the
next, while none was open that failed. Only the latest requests are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relive.errors import RecordingError
from relive.model.outcome import Stack
from relive.model.stack import find_stacks
from relive.recording.events import EventKind
from relive.recording.reader import Recording
from relive.replay.outcomes import read_log

__all__ = ["NOTHING_USUAL", "UsualLog", "plain_line", "usual_log"]

_MOST = 200  # requests
_MOST_BYTES = 16 << 20  # of segments
_FAILING = 500
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"\d+")


def plain_line(line: str) -> str:
    """The line without numbers and addresses."""
    return _NUMBER.sub("N", _ADDRESS.sub("A", line))


@dataclass(slots=True)
class _Requests:
    """Of one segment: (number, offset in the log) of each that began, how many had begun when each ended, and which went well."""

    begun: list[tuple[int, int]] = field(default_factory=list)
    ended: dict[int, int] = field(default_factory=dict)
    good: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class UsualLog:
    """Lines as ``plain_line`` makes them, and stacks."""

    lines: frozenset[str] = frozenset()
    stacks: Sequence[Stack] = ()


NOTHING_USUAL = UsualLog()


def usual_log(recording: Recording, log: Path, until_seq: int) -> UsualLog:
    """What was written beside requests that went well; nothing where that cannot be read.

    Args:
        log: the file of the service's standard error.
        until_seq: of the beginning of the failing request.
    """
    lines: set[str] = set()
    stacks: dict[tuple[str, tuple[tuple[str, int, str], ...]], Stack] = {}
    left = _MOST
    try:
        for requests, end in _segments(recording, log, until_seq):
            for begin, until in list(_quiet(requests, end))[-left:]:
                left -= 1
                written = read_log(log, begin, until)
                lines.update(map(plain_line, written))
                stacks |= {(one.exception, tuple(one.frames)): one for one in find_stacks(written)}
            if left <= 0:
                break
    except (RecordingError, OSError):  # whoever needs the recording tells of this
        pass
    return UsualLog(frozenset(lines), list(stacks.values()))


def _segments(recording: Recording, log: Path, until_seq: int) -> Iterator[tuple[_Requests, int | None]]:
    """Of the latest segments, the last first: their requests, and the offset at which the next request began behind them."""
    left, end = _MOST_BYTES, None
    for path in reversed(recording.segments()):
        after = int(path.stem) - 1
        if after >= until_seq:
            continue
        if left <= 0:
            return
        left -= path.stat().st_size
        requests, last = _read(recording, log, after, until_seq)
        yield requests, last if last is not None else end
        until_seq = after + 1
        end = requests.begun[0][1] if requests.begun else end


def _read(recording: Recording, log: Path, after: int, until_seq: int) -> tuple[_Requests, int | None]:
    """The requests before ``until_seq``, and where the log was at that event, if it is the beginning of one."""
    requests = _Requests()
    for event in recording.events_naming([b"status", b"log_offsets"], after=after):
        if event.seq > until_seq:
            break
        offset = event.fields.get("log_offsets", {}).get(str(log))
        if event.kind is EventKind.REQUEST_STARTED and isinstance(offset, int):
            if event.seq == until_seq:
                return requests, offset
            requests.begun.append((event.request, offset))
        elif event.kind is EventKind.ANSWER_STARTED:
            status = event.fields.get("status")
            if isinstance(status, int) and status < _FAILING and event.fields.get("by") != "relive":
                requests.good.add(event.request)
        elif event.kind is EventKind.ANSWER_ENDED:
            requests.ended[event.request] = len(requests.begun)
    return requests, None


def _quiet(requests: _Requests, end: int | None) -> Iterator[tuple[int, int]]:
    """(begin, end) in the log of each stretch between two requests in which none was open that failed."""
    failing_until = 0
    for place, (number, begin) in enumerate(requests.begun):
        until = requests.begun[place + 1][1] if place + 1 < len(requests.begun) else end
        ended = requests.ended.get(number, len(requests.begun))
        if number not in requests.good:
            failing_until = max(failing_until, ended)
        if place >= failing_until and until is not None:
            yield begin, until
