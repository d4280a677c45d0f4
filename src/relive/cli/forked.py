"""A command that a fork of the fork server runs, which has imported Relive already; here signals are passed on, and its end.

Only what is there is used: no command starts a server for itself. Where there is none, or it refuses, nothing has been done and
the command runs in its own process, which is always right. What is imported here takes most of the time, so it is little.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress

from relive.forkserver.asking import Fork, ask
from relive.forkserver.rendezvous import connect, meeting_place

__all__ = ["COMMANDS", "run_forked"]

# Those that talk to nobody: they have no terminal of their own there, only descriptors of it.
COMMANDS = frozenset({"commit", "exec", "health", "incidents", "log", "ps", "restore", "show", "stop"})
_SETTING = "RELIVE_FORK_SERVER"
_FILES = ("/etc/relive.toml", "relive.toml")
_PASSED_ON = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGALRM, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT),
)


def run_forked() -> int | None:
    """Have the command that the words of this process say run by a fork; its exit status, negative for a signal's number.

    None: nothing has been done.
    """
    words = sys.argv[1:]
    if not (words and words[0] in COMMANDS and _is_as_a_fork_would_be() and _is_allowed()):
        return None
    try:
        fork = _asked(words)
    except (OSError, ValueError):
        return None
    if fork is None:
        return None
    # From here on it is never begun a second time: whatever fails here, the fork may have done it.
    with _Signals() as signals:
        status = signals.passed_on_to(fork)
    if status == 0 and fork.successor is not None:
        with suppress(OSError):
            fork.successor.execute()
        return None  # it is not begun; this process says why
    return status


def _asked(words: list[str]) -> Fork | None:
    """Signals do meanwhile what they do to a process of its own: whoever has gone leaves no fork behind."""
    connection = connect(meeting_place(os.environ))
    if connection is None:
        return None
    return ask(
        connection,
        "relive.cli",
        words,
        environment=dict(os.environ),
        streams=(0, 1, 2),
        ends_with_asker=True,
    )


def _is_as_a_fork_would_be() -> bool:
    """The interpreter has no options of its own, nobody traces it, and it has all three streams."""
    if sys.orig_argv[1:] != sys.argv or sys.gettrace() is not None or sys.getprofile() is not None:
        return False
    return None not in (sys.stdin, sys.stdout, sys.stderr)


def _is_allowed() -> bool:
    """By the setting ``fork_server``; where it stands in a file, that file is left to be read as a whole."""
    if os.environ.get(_SETTING, "1") != "1":
        return False
    for path in _FILES:
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes long to import
                if b"fork_server" in file.read():
                    return False
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return False
    return True


class _Signals:
    """Within, signals that would end or stop this process are passed on to the fork instead, in their order."""

    def __enter__(self) -> _Signals:
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._before = {
            number: signal.getsignal(number)
            for number in _PASSED_ON
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in self._before:
            signal.signal(number, _noted)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        os.close(self._writing)
        with os.fdopen(self._reading, "rb") as left:
            came = left.read()  # when the fork had ended: they are this process's
        for late in came:
            os.kill(os.getpid(), late)

    def passed_on_to(self, fork: Fork) -> int:
        """Until it has ended; its exit status."""
        poller = select.poll()
        poller.register(fork, select.POLLIN)
        poller.register(self._reading, select.POLLIN)
        while (status := fork.status()) is None:
            for descriptor, _ in poller.poll():
                if descriptor == self._reading:
                    for number in os.read(self._reading, 512):
                        self._pass_on(fork, number)
        fork.close()
        return status

    def _pass_on(self, fork: Fork, number: int) -> None:
        if number != signal.SIGTSTP:
            fork.send_signal(number)
            return
        fork.send_signal(signal.SIGSTOP)  # no terminal can stop it by itself
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # until somebody continues this process
        signal.signal(number, _noted)
        fork.send_signal(signal.SIGCONT)


def _noted(_number: int, _frame: object) -> None:
    """It has been written to the pipe."""
