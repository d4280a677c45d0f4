"""Which of the proxy's requests is the one that a Python process has numbered for itself."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Container
from typing import Any

from relive.errors import RecordingError
from relive.recording.events import Event, EventKind
from relive.recording.exchanges import ExchangeEnd, Exchanges
from relive.recording.reader import Recording

__all__ = ["failed_meanwhile", "find_request", "served_at"]

_FAILING = 500
_SERVED_MOST = 64  # recent requests that are looked at
_ENDS = (EventKind.ANSWER_ENDED, EventKind.REQUEST_ABANDONED, EventKind.ANSWER_BROKEN)


def find_request(recording: Recording, failure: Event) -> dict[str, Any]:
    """``request``, ``method``, ``target``, ``sequence``, ``began_wall_ns`` and ``log_offsets`` of the request in which it failed.

    Empty if it failed in none.

    The peer that the service's server saw is the proxy's end of a connection: of the requests on it, it is the last that began
    before the failure. Where the server did not tell the port, it is the one open request of that method and target.
    """
    peer = list(failure.fields.get("peer") or [])
    port = peer[1] if len(peer) == 2 and isinstance(peer[1], int) else 0
    wanted = str(failure.fields.get("method")), str(failure.fields.get("target"))
    if not failure.request:
        return {}
    begun, ended, last = _until(recording, failure.mono_ns)
    if port:  # an answer may have ended before the exception reached the place where it is seen
        fits = [event for event in begun.values() if event.fields.get("local_port") == port]
    else:
        fits = [one for number, one in begun.items() if number not in ended and _line(one) == wanted]
    if not fits or (len(fits) > 1 and not port):
        return {}
    about = _about(fits[-1])
    if failure.fields.get("method") == "WEBSOCKET" and last is not None:
        # It failed at something that was said since: a commit after the beginning is before that, too.
        about |= {"sequence": last.seq, "began_wall_ns": last.wall_ns}
    return about


def failed_meanwhile(
    recording: Recording, mono_ns: int, taken: Container[int]
) -> tuple[dict[str, Any], bool]:
    """As ``find_request``, for a failure of which nobody knows the request: of those that were open then, one that failed since.

    Args:
        mono_ns: when it failed.
        taken: requests that other failures are known to be of.

    Returns:
        The request, with ``ended_mono_ns``, or nothing; and whether another look may find one: some have no answer yet.
    """
    begun, ended, _ = _until(recording, mono_ns)
    waiting = False
    for number in begun.keys() - ended:
        try:
            exchange = Exchanges(recording).by_number(number)
        except RecordingError:
            continue
        has_failed = exchange.ended is ExchangeEnd.BROKEN or (exchange.status or 0) >= _FAILING
        has_failed = has_failed or (exchange.grpc is not None and exchange.grpc.is_failure)
        if has_failed and number not in taken:
            return {**_about(begun[number]), "ended_mono_ns": exchange.ended_mono_ns}, False
        waiting = waiting or exchange.ended is ExchangeEnd.OPEN
    return {}, waiting


def served_at(recording: Recording, log: str, size: int) -> tuple[set[int], bool]:
    """The requests that were being served when a log had that size, and whether some of them has no answer yet.

    Of the recent ones, as far as that can be read.
    """
    begun, ended, _ = _until(recording, time.monotonic_ns())
    found, waiting = set(), False
    for number, event in list(begun.items())[-_SERVED_MOST:]:
        begin = (event.fields.get("log_offsets") or {}).get(log)
        if begin is None or size < begin:
            continue
        end = None
        if number in ended:
            with contextlib.suppress(RecordingError):
                end = Exchanges(recording).by_number(number).log_offsets_after.get(log)
            if end is None or size >= end:
                continue
        found.add(number)
        waiting = waiting or number not in ended
    return found, waiting


def _until(recording: Recording, mono_ns: int) -> tuple[dict[int, Event], set[int], Event | None]:
    """The beginnings of recent requests up to a moment, by number, the numbers of those that had ended, and the last event."""
    begun: dict[int, Event] = {}
    ended: set[int] = set()
    last: Event | None = None
    segments = recording.segments()[-2:]
    if not segments:
        return begun, ended, None
    try:
        for event in recording.events(after=int(segments[0].stem) - 1):
            if event.mono_ns > mono_ns:
                continue  # not the end: what waited for a commit's place is recorded behind what came later
            last = event
            if event.kind is EventKind.REQUEST_STARTED:
                begun[event.request] = event
            elif event.kind in _ENDS:
                ended.add(event.request)
    except RecordingError:
        pass  # what was read until then has to do
    return begun, ended, last


def _about(found: Event) -> dict[str, Any]:
    method, target = _line(found)
    return {
        "request": found.request,
        "method": method,
        "target": target,
        "sequence": found.seq,
        "began_wall_ns": found.wall_ns,
        "log_offsets": dict(found.fields.get("log_offsets") or {}),
    }


def _line(event: Event) -> tuple[str, str]:
    words = event.data.lstrip(b"\r\n").split(b"\n", 1)[0].split(b" ")
    return words[0].decode("latin-1"), words[1].decode("latin-1") if len(words) > 1 else ""
