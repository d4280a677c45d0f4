"""Stopping the service of a capsule, as a whole.

1. Its first process gets the stop signal; where that has ended, the daemons that it left do.
2. When the first process has ended, SIGTERM goes to those who are then without a parent.
3. Whatever lives when the time is up is killed (SIGKILL), and with process 1 the PID namespace ends.

Every signal goes through a handle of the process (``kernel.pidfds``), which was seen to belong to the capsule.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from enum import Enum, auto

from relive.agent.capsule.agent_process import agent_lives
from relive.agent.capsule.lives import Capsule
from relive.agent.control.client import ask_agent
from relive.errors import CapsuleError, ReliveError
from relive.kernel import procfs
from relive.kernel.pidfds import has_ended, open_member, open_process, send_signal
from relive.kernel.wait_status import signal_name

__all__ = ["STOP_LIMIT", "StopResult", "signal_all", "stop_service"]

STOP_LIMIT = 30.0  # [s] podman gives 10, systemd 90
_SAY_AFTER = 1.0  # [s]
_POLL = 0.05  # [s]
_KILL_LIMIT = 10.0  # [s] for the kernel to take a killed namespace down
_CLOSE_LIMIT = 60.0  # [s] for the agent to write down how it ended
_AGENT_LIMIT = 5.0  # [s]


class StopResult(Enum):
    """How a stop went."""

    HAD_ENDED = auto()
    ENDED = auto()
    KILLED = auto()


def signal_all(pids: Iterable[int], first: int, number: int) -> list[int]:
    """Signal processes of the PID namespace of ``first``; returns who got it. Others, and those who have ended, get nothing."""
    reached = []
    for pid in pids:
        handle = open_member(pid, first)
        if handle is None:
            continue
        try:
            if send_signal(handle, number):
                reached.append(pid)
        finally:
            os.close(handle)
    return reached


def stop_service(capsule: Capsule, *, number: int, limit: float, say: Callable[[str], None]) -> StopResult:
    """Have the service end, and wait until the capsule has: its name and its port are free then.

    Args:
        number: the stop signal.
        limit: seconds until what still lives is killed; 0: at once.
        say: told what goes on, in sentences.

    Raises:
        CapsuleError: it does not even end by SIGKILL.
    """
    facts = capsule.facts
    init = open_process(facts.init, facts.init_started)
    if init is None:
        _await_close(capsule)
        return StopResult.HAD_ENDED
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, init)
        main = open_member(facts.root, facts.init)
        if main is not None:
            stack.callback(os.close, main)
        _notify_agent(capsule)
        ending = StopResult.ENDED
        if limit <= 0 or not _ends_by_asking(capsule, init, main, number, limit, say):
            ending = StopResult.KILLED
            _notify_agent(capsule)  # what it is told counts for a while only
            _kill(capsule, init, main)
    _await_close(capsule)
    return ending


def _ends_by_asking(
    capsule: Capsule, init: int, main: int | None, number: int, limit: float, say: Callable[[str], None]
) -> bool:
    name, first = capsule.facts.spec.name, capsule.facts.init
    asked: set[int] = set()
    if main is not None:
        send_signal(main, number)
    else:
        asked.update(signal_all(capsule.heads(), first, number))
    began = time.monotonic()
    said = False
    while not has_ended(init, _POLL):
        if main is None or has_ended(main):
            # Each once: a second TERM cuts the orderly end of many a service short.
            asked.update(
                signal_all((pid for pid in capsule.heads() if pid not in asked), first, signal.SIGTERM)
            )
        past = time.monotonic() - began
        if past > limit:
            say(
                f"{name} has not ended {limit:g} s after {signal_name(number)}; what is left of it is killed."
            )
            return False
        if past > _SAY_AFTER and not said:
            say(
                f"{name} was asked to end ({signal_name(number)}); it is killed unless it ends within {limit:g} s."
            )
            said = True
    return True


def _kill(capsule: Capsule, init: int, main: int | None) -> None:
    """The first process before all others: process 1 then writes down that it was killed, and ends by itself."""
    if main is not None:
        send_signal(main, signal.SIGKILL)
    if not has_ended(init, _POLL):
        signal_all(procfs.tree_of(capsule.facts.init)[1:], capsule.facts.init, signal.SIGKILL)
    if has_ended(init, 2 * _POLL):
        return
    send_signal(init, signal.SIGKILL)
    if not has_ended(init, _KILL_LIMIT):
        raise CapsuleError(
            f"{capsule.facts.spec.name} does not end, although it was killed",
            cause="a process of it waits in the kernel, mostly for a disk or a network file system",
            remedy=f"`ps -o pid,stat,wchan:30,args --ppid {capsule.facts.init}` shows where",
        )


def _notify_agent(capsule: Capsule) -> None:
    """An end that was asked for is no failure; an agent that does not answer is no reason to let the service run."""
    with contextlib.suppress(ReliveError):
        ask_agent(capsule.paths.agent_socket, {"op": "stopping"}, limit=_AGENT_LIMIT)


def _await_close(capsule: Capsule) -> None:
    """The proxy has the port until the agent has written down all that came before the end."""
    until = time.monotonic() + _CLOSE_LIMIT
    while time.monotonic() < until and agent_lives(capsule.paths) and not capsule.paths.closed.exists():
        time.sleep(_POLL)
