"""What was seen, turned into sightings: pure decisions over plain values."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from relive.kernel.wait_status import shell_status, signal_name
from relive.model.incident import FailureKind, Sighting
from relive.recording.grpc import GrpcStatus

__all__ = [
    "answer_sighting",
    "broken_sighting",
    "exception_sighting",
    "exit_sighting",
    "fatal_sighting",
    "hang_sighting",
    "health_sighting",
    "held_by_dead_criu",
    "is_due_to_stop",
    "log_sighting",
    "loop_sighting",
    "memory_sighting",
    "sender_of",
    "took_along",
    "unseen_end_sighting",
    "worker_end_sighting",
    "worker_exit_sighting",
]

_ASKED_FOR = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_SENT_BY = {"SI_USER": "kill", "SI_QUEUE": "sigqueue", "SI_TKILL": "tgkill, raise or abort"}
_STOP_COUNTS = 90.0  # [s] what systemd gives a service to end


def _request_words(message: dict[str, Any]) -> str:
    method, target = message.get("method"), message.get("target")
    return f"request {message['request']}" + (f" ({method} {target})" if method and target else "")


def _route(message: dict[str, Any]) -> str:
    """``route`` of the message, or else its method and path."""
    path = f"{message.get('method', '')} {str(message.get('target', '')).partition('?')[0]}"
    return str(message.get("route", path.strip()))


def answer_sighting(message: dict[str, Any], now_ns: int) -> Sighting:
    """The proxy saw an answer with a 5xx status, or one of gRPC that says of a failure."""
    status = message["status"]
    grpc = GrpcStatus(message["grpc"]) if "grpc" in message else None
    which = f"gRPC {grpc.code}" if grpc is not None else status
    return Sighting(
        kind=FailureKind.ANSWER,
        fingerprint=f"answer {which} {_route(message)}".strip(),
        summary=f"{_request_words(message)} was answered with {grpc or f'status {status}'}",
        seen_wall_ns=now_ns,
        request=message["request"],
        sequence=message.get("sequence"),
        began_wall_ns=message.get("began_wall_ns"),
        log_begin=message.get("log_begin"),
        answer_status=status,
    )


def broken_sighting(message: dict[str, Any], now_ns: int) -> Sighting:
    """The service ended a connection before its answer was whole, or took none for the request."""
    what = _request_words(message)
    match message.get("how"):
        case "refused":
            summary = f"the service refused the connection for {what}"
        case "timed-out":
            summary = f"the service took no connection for {what}, which waited as long as the kernel tries"
        case how:
            summary = f"the service {'reset' if how == 'reset' else 'closed'} the connection before {what} was answered"
    return Sighting(
        kind=FailureKind.BROKEN,
        fingerprint=f"broken {_route(message)}".strip(),
        summary=summary,
        seen_wall_ns=now_ns,
        request=message["request"],
        sequence=message.get("sequence"),
        began_wall_ns=message.get("began_wall_ns"),
        log_begin=message.get("log_begin"),
    )


def hang_sighting(message: dict[str, Any], now_ns: int) -> Sighting:
    """A request got no answer within the limit."""
    return Sighting(
        kind=FailureKind.HANG,
        fingerprint=f"hang {_route(message)}".strip(),
        summary=f"{_request_words(message)} had no answer after {message['seconds']:.0f} s",
        seen_wall_ns=now_ns,
        request=message["request"],
        sequence=message.get("sequence"),
        began_wall_ns=message.get("began_wall_ns"),
        log_begin=message.get("log_begin"),
    )


def exception_sighting(
    fields: Mapping[str, Any], about: dict[str, Any], now_ns: int, *, throw: str | None, ends_service: bool
) -> Sighting:
    """The recorder inside told that an exception escaped.

    Args:
        fields: of its ``failure`` event; everything in them is the service's word.
        about: ``request``, ``method``, ``target``, ``sequence``, ``began_wall_ns``, ``log_begin`` of the recorded request, as far
            as there is one.
        ends_service: it escaped from the main program of the service's root process.
    """
    kind, text = str(fields.get("type", "?")), str(fields.get("text", ""))
    summary = kind.removeprefix("builtins.") + (f": {text.splitlines()[0][:200]}" if text.strip() else "")
    match fields.get("at"):
        case (str(file), int(line), str(function)):
            summary += f" in {function} ({PurePosixPath(file).name}:{line})"
    if about.get("request") is not None:
        summary += f", {_request_words(about)}"
    elif fields.get("method") or fields.get("target"):
        summary += f", {fields.get('method')} {fields.get('target')}"
    elif fields.get("where") in ("thread", "task"):
        summary += f", in a {fields['where']}"
    pid = fields.get("pid")
    return Sighting(
        kind=FailureKind.EXCEPTION,
        fingerprint=f"exception {str(fields.get('fingerprint'))[:64]}",
        summary=summary[:1000],
        seen_wall_ns=now_ns,
        request=about.get("request"),
        sequence=about.get("sequence"),
        began_wall_ns=about.get("began_wall_ns"),
        log_begin=about.get("log_begin"),
        pid=pid if isinstance(pid, int) else None,
        exit_status=1 if ends_service else None,  # as Python ends then
        where=str(fields.get("where")),
        throw=throw,
    )


def sender_of(
    code: str | None, sender: int | None, receiver: int, members: Mapping[int, str], *, own_namespace: bool
) -> tuple[str | None, bool]:
    """Who sent a signal, in words, and whether that was a process outside of the service.

    Args:
        code: name of the si_code. sender: si_pid, 0 for one that the receiver's PID namespace does not show; None: nobody sent it.
        members: {number: name} of the service's processes, numbered as ``sender``.
        own_namespace: the service has a PID namespace of its own, so that whoever has a number there belongs to it.
    """
    if sender is None:
        return None, False
    how = _SENT_BY.get(code or "", code)
    if sender == receiver:
        return f"by the process itself ({how})", False
    if sender == 0:
        return f"from outside, by a process that its PID namespace does not show ({how})", True
    name = members.get(sender)
    if name is not None:
        return f"by pid {sender}, {name} ({how})", False
    if own_namespace:
        return f"by pid {sender}, which is gone ({how})", False
    return f"from outside, by pid {sender} ({how})", True


def fatal_sighting(
    number: int,
    code: str | None,
    address: int | None,
    comm: str,
    pid: int,
    thread: int,
    now_ns: int,
    *,
    worker_of: str | None = None,
    sender: tuple[str | None, bool] = (None, False),
) -> Sighting:
    """A fatal signal was about to kill a process; pids as inside the capsule.

    Args:
        worker_of: name of the service's first process, where it is another. sender: see ``sender_of``.
    """
    where = f" at address {address:#x}" if address is not None else ""
    sent = f", sent {sender[0]}" if sender[0] is not None else ""
    return Sighting(
        kind=FailureKind.SIGNAL,
        fingerprint=f"signal {number} {comm}",
        summary=f"{_process(comm, pid, worker_of)} got {signal_name(number)}{where}{sent}",
        seen_wall_ns=now_ns,
        signal=number,
        signal_code=code,
        address=address,
        pid=pid,
        thread=thread,
        worker=worker_of is not None,
        sender=sender[0],
        from_outside=sender[1],
    )


def took_along(end: Sighting, requests: list[int], about: Mapping[str, Any]) -> Sighting:
    """The end of a process with the requests that it took along; ``about``: the first of them.

    Of several any can be to blame: the oldest one's commit is before them all.
    """
    known = {key: about.get(key) for key in ("sequence", "began_wall_ns", "log_begin")}
    request = requests[0] if len(requests) == 1 else None
    return end.model_copy(update={**known, "request": request, "open_requests": requests})


def worker_end_sighting(
    wait_status: int | None, comm: str | None, pid: int | None, worker_of: str, now_ns: int
) -> Sighting | None:
    """A process of a service that goes on has ended without having been stopped before; None when that is no failure.

    Args:
        wait_status: raw; None: nobody saw how.
    """
    code = os.waitstatus_to_exitcode(wait_status) if wait_status is not None else 0
    if code > 0:
        return worker_exit_sighting(code, comm or worker_of, pid, worker_of, now_ns)
    ended_by = -code or None
    process = _process(comm or worker_of, pid, worker_of)
    if ended_by is None:
        summary = f"{process} ended during the commit; how is not known, since nobody traced it then"
    elif ended_by == signal.SIGKILL:
        summary = f"{process} was killed by SIGKILL; the kernel does not tell who sent it"
    else:
        summary = f"{process} died of {signal_name(ended_by)}"
    return Sighting(
        kind=FailureKind.EXIT if ended_by is None else FailureKind.SIGNAL,
        fingerprint=f"end {ended_by or 'unseen'} {comm}",
        summary=summary,
        seen_wall_ns=now_ns,
        signal=ended_by,
        pid=pid,
        worker=True,
    )


def worker_exit_sighting(
    status: int, comm: str, pid: int | None, worker_of: str, now_ns: int
) -> Sighting | None:
    """A process of a service that goes on is about to exit; None when that is no failure.

    Args:
        status: 1 to 255; what shells and runtimes give a process that a signal asked to end is none.
    """
    if status - 128 in _ASKED_FOR:
        return None
    return Sighting(
        kind=FailureKind.EXIT,
        fingerprint=f"exit {status} of {comm}",
        summary=f"{_process(comm, pid, worker_of)} ended with status {status}",
        seen_wall_ns=now_ns,
        exit_status=status,
        pid=pid,
        worker=True,
    )


def _process(comm: str, pid: int | None, worker_of: str | None) -> str:
    if worker_of is None:
        return f"{comm} (pid {pid})"
    named = f"worker {pid} of {worker_of}" if pid is not None else f"a worker of {worker_of}"
    return named if comm == worker_of else f"{named} ({comm})"


def memory_sighting(kills: int, now_ns: int, exit_status: int | None = None) -> Sighting:
    """The kernel killed processes of the capsule for want of memory."""
    return Sighting(
        kind=FailureKind.MEMORY,
        fingerprint="out of memory",
        summary=f"the kernel killed {'a process' if kills == 1 else f'{kills} processes'} of the service for want of memory",
        seen_wall_ns=now_ns,
        signal=int(signal.SIGKILL),
        exit_status=exit_status,
    )


def is_due_to_stop(asked: float | None, ended: float) -> bool:
    """An end is what a stop had asked for; long afterwards the service had gone on instead.

    Both are monotonic [s]; None: nobody asked.
    """
    return asked is not None and ended - asked < _STOP_COUNTS


def exit_sighting(wait_status: int | None, *, stop_asked: bool, now_ns: int) -> Sighting | None:
    """The service ended; None when that is no failure: status 0, or a signal that asks a service to end."""
    if wait_status is None:
        return Sighting(
            kind=FailureKind.SIGNAL,
            fingerprint="signal 9 capsule",
            summary="the capsule was killed (SIGKILL)",
            seen_wall_ns=now_ns,
            signal=int(signal.SIGKILL),
        )
    code = os.waitstatus_to_exitcode(wait_status)
    if code == 0 or -code in _ASKED_FOR or stop_asked:
        return None
    if code < 0:
        return Sighting(
            kind=FailureKind.SIGNAL,
            fingerprint=f"signal {-code} exit",
            summary=f"the service was killed by {signal_name(-code)}",
            seen_wall_ns=now_ns,
            signal=-code,
            exit_status=shell_status(wait_status),
        )
    return Sighting(
        kind=FailureKind.EXIT,
        fingerprint=f"exit {code}",
        summary=f"the service ended with status {code}",
        seen_wall_ns=now_ns,
        exit_status=code,
    )


def held_by_dead_criu(end: Sighting) -> Sighting:
    """An end by a fault, at the moment at which CRIU was killed that held the service: its code is what faulted, most likely."""
    return end.model_copy(
        update={
            "fingerprint": f"{end.fingerprint} held by CRIU",
            "summary": f"{end.summary} when CRIU, which held it for a commit, was killed; that is most likely the cause",
            "sender": "most likely by CRIU's code in it, since CRIU was killed in a commit",
            "from_outside": True,
        }
    )


def unseen_end_sighting(now_ns: int) -> Sighting:
    """The service ended, and nobody is left who knows how: it was not ours, and the tracer was away at that moment."""
    return Sighting(
        kind=FailureKind.EXIT,
        fingerprint="exit unseen",
        summary="the service ended; how was not seen",
        seen_wall_ns=now_ns,
    )


def health_sighting(streak: int, said: str, now_ns: int) -> Sighting:
    """A health check began to fail for good; ``said``: first line of what it printed."""
    checks = "a health check" if streak <= 1 else f"{streak} health checks in a row"
    return Sighting(
        kind=FailureKind.HEALTH,
        fingerprint="unhealthy",
        summary=f"it is unhealthy: {checks} failed" + (f": {said}" if said else ""),
        seen_wall_ns=now_ns,
    )


def loop_sighting(times: int, seconds: float, exit_status: int, now_ns: int) -> Sighting:
    """A container or unit is restarted again and again; ``exit_status``: of its last start."""
    return Sighting(
        kind=FailureKind.RESTARTS,
        fingerprint="restart loop",
        summary=f"it was restarted {times} times within {seconds:.0f} s; its last start ended with status {exit_status}",
        seen_wall_ns=now_ns,
        exit_status=exit_status,
    )


def log_sighting(pattern: str, line: str, log_begin: int, now_ns: int) -> Sighting:
    """A line of the output matched a pattern that stands for a failure."""
    return Sighting(
        kind=FailureKind.LOG,
        fingerprint=f"log {pattern}"[:200],
        summary=f"its output matched {pattern!r}: {line[:300]}",
        seen_wall_ns=now_ns,
        log_begin=log_begin,
    )
