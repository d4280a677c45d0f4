"""How a crashed process, held for its commit, gets the death it was about to die; needs no tracing."""

from __future__ import annotations

import contextlib
import select
import signal
import time
from collections.abc import Sequence

from relive.kernel import procfs
from relive.signals.crash import Crash
from relive.signals.tasks import send_to_task

__all__ = ["DEATH_LIMIT", "let_die"]

DEATH_LIMIT = 5.0  # [s] after which a process that will not die of its signal is left to live
_RESEND_AFTER = 0.2  # [s]


def let_die(crashes: Sequence[Crash], *, limit: float = DEATH_LIMIT) -> bool:
    """Resume each process so that it ends by the signal that was withheld from it.

    A fault is simply executed again. Any other signal is sent again, to the same thread, before the process
    is resumed, so that not one more instruction of that thread runs. Where that does not end the process
    within 0.2 s, the signal is sent again. A process that is writing its core counts as dead.

    Returns:
        Whether all of them are dead. Whatever did not die within the limit runs; nothing is left stopped.
    """
    for crash in crashes:
        for tid, number in [] if crash.comes_back else [(crash.tid, crash.info.number), *crash.withheld]:
            _send(crash, tid, number)
        _resume(crash)
    deadline = time.monotonic() + limit
    deaths = [_await_death(crash, deadline) for crash in crashes]  # of every one, also after one that lives
    return all(deaths)


def _await_death(crash: Crash, deadline: float) -> bool:
    poll = select.poll()
    poll.register(crash.pidfd, select.POLLIN)
    while True:
        left = deadline - time.monotonic()
        if poll.poll(max(0.0, min(_RESEND_AFTER, left)) * 1000):
            return True
        if procfs.status_field(crash.pid, "CoreDumping") == "1":
            return True
        if left <= 0:
            return False
        _send(crash, crash.tid, crash.info.number)
        _resume(crash)


def _send(crash: Crash, tid: int, number: int) -> None:
    try:
        # The number may belong to another process by now, unless this one is alive.
        signal.pidfd_send_signal(crash.pidfd, 0)
        send_to_task(crash.pid, tid, number)
    except ProcessLookupError:
        # The thread is gone but the process may not be: then any thread will do.
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(crash.pidfd, number)


def _resume(crash: Crash) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(crash.pidfd, signal.SIGCONT)
