"""The guardian of a held process: a process of its own that lets it die when the tracer, which was to, is killed.

A process that is held stands in group-stop, which outlives whoever caused it. So from before the stop until the release there is a
second one that ends it. It shares nothing with the tracer but a pipe, and acts when that closes without a word, or when the time of
a hold is over. It is forked from the tracer at the moment it is needed, and costs nothing at other times.
"""

from __future__ import annotations

import os
import select
import warnings

from relive.signals.crash import DISMISSED, Crash
from relive.signals.release import let_die
from relive.signals.tasks import state_of

__all__ = ["guard"]


def guard(crash: Crash, limit: float) -> int:
    """Set a guardian over a process that is about to be stopped; returns ``Crash.guard``.

    Args:
        limit: seconds after which the process is let go though the tracer lives: whoever asked for the hold hangs.

    Raises:
        OSError: there cannot be one; the process must not be stopped.
    """
    reading, writing = os.pipe()
    try:
        with warnings.catch_warnings():
            # The tracer's other thread waits for this one.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if child == 0:
        _leave(crash, reading, limit)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if status != 0:
        os.close(writing)
        raise OSError("the guardian could not be started")
    return writing


def _leave(crash: Crash, reading: int, limit: float) -> None:
    """The forked child: become nobody's child, so that its end is not taken for that of a traced process. Never returns."""
    status = 1
    try:
        child = os.fork()
        if child == 0:
            os.setsid()  # what kills the tracer's group does not mean this one
            _close_all_but(reading, crash.pidfd)
            if _is_needed(reading, limit):
                _give_back(crash)
        status = 0
    finally:
        os._exit(status)


def _close_all_but(*kept: int) -> None:
    """Above all the socket of the agent, which would not see the tracer's end, and the pipes of other guardians."""
    begin = 0
    for number in sorted(kept):
        os.closerange(begin, number)
        begin = number + 1
    os.closerange(begin, os.sysconf("SC_OPEN_MAX"))


def _is_needed(reading: int, limit: float) -> bool:
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    return not poll.poll(limit * 1000) or os.read(reading, 1) != DISMISSED


def _give_back(crash: Crash) -> None:
    """CRIU stops again whom it found stopped; so as long as it stands still, it is woken again."""
    while not let_die([crash]) and state_of(crash.pid) in "Tt":
        pass
