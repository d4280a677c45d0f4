"""A service as ``relive run`` shows it in the foreground: its output, its signals, its end.

Under a supervisor the command stands for the service: every signal a supervisor can send is handed on, only whole lines are
passed through (two streams that meet in one journal do not cut each other's lines), the first process's end is the end, and
whoever kills the command kills the service. At a terminal the service is another process: should the command die, it goes on.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from relive.agent.capsule.agent_process import agent_lives
from relive.agent.capsule.lives import Capsule
from relive.agent.capsule.stopping import signal_all
from relive.agent.control.client import ask_agent
from relive.config import Settings
from relive.errors import ReliveError
from relive.kernel import libc, procfs
from relive.kernel.pidfds import has_ended, open_member, open_process, send_signal
from relive.operations.respawning import tend_capsules

__all__ = ["Foreground", "end_like"]

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_AT_A_TERMINAL = (*_ENDING, signal.SIGUSR1, signal.SIGUSR2)
# A supervisor may send any: WatchdogSignal= is ABRT, ExecReload= mostly HUP; gunicorn takes TTIN and TTOU, Apache WINCH.
_UNDER_A_SUPERVISOR = (
    *_AT_A_TERMINAL,
    *(
        signal.SIGABRT,
        signal.SIGALRM,
        signal.SIGCONT,
        signal.SIGIO,
        signal.SIGPROF,
        signal.SIGPWR,
        signal.SIGTTIN,
    ),
    *(signal.SIGTTOU, signal.SIGURG, signal.SIGVTALRM, signal.SIGWINCH),
    *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
)
_POLL = 0.05  # [s]
_AGENT_LIMIT = 30.0  # [s] for the agent to write down how the service ended
_REST_LIMIT = 10.0  # [s] for what the first process left behind to end after SIGTERM
_LINE_MOST = 1 << 16  # [bytes] a longer line is passed through in parts
_PR_SET_DUMPABLE = 4


class Foreground:
    """Make it before the service is started, so that no signal is lost; then ``stay``. In the main thread.

    Args:
        is_supervised: see the module.
        to_all: this signal goes to every process of the service; None: none does.
        line: our end of the line by which the service ends with this process.
        hands_on: signals go to the service; else they are this process's own.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        is_supervised: bool,
        to_all: int | None,
        line: socket.socket | None,
        hands_on: bool = True,
    ) -> None:
        self._settings = settings
        self._is_supervised = is_supervised
        self._to_all = to_all
        self._line = line
        self._capsule: Capsule | None = None
        self._main: int | None = None
        self._pending: list[int] = []
        self._is_handing_on = False
        self._deferred: int | None = None
        self._awaited: list[int] = []
        for number in (_UNDER_A_SUPERVISOR if is_supervised else _AT_A_TERMINAL) if hands_on else ():
            signal.signal(number, self._hear)

    def stay(
        self, capsule: Capsule, output: list[int], each_look: Callable[[], None], *, takes_over: bool = False
    ) -> int | None:
        """Wait for the end of the service and of its agent; the service's raw wait status, None where nobody could note it.

        Args:
            output: descriptors for its standard output and error.
            each_look: called now and then.
            takes_over: another command has started it; what it said until now is not shown again.
        """
        streams = [
            _Stream(log, descriptor, whole_lines=self._is_supervised, from_now=takes_over)
            for log, descriptor in zip(capsule.paths.logs, output, strict=True)
        ]
        self._main = open_member(capsule.lead if takes_over else capsule.facts.root, capsule.facts.init)
        self._capsule = capsule
        handle = open_process(capsule.facts.init, capsule.facts.init_started)
        end_by: float | None = None
        while handle is not None:
            each_look()
            self._hand_on_in_order()
            self._send_deferred()
            ended = has_ended(handle, _POLL)
            for stream in streams:
                stream.pass_on()
            if ended:
                break
            if self._is_supervised and (self._main is None or has_ended(self._main)):
                end_by = end_by or self._end_the_rest(capsule)
                if time.monotonic() > end_by:
                    self._let_go()
            if not agent_lives(capsule.paths) and capsule.is_alive:
                with contextlib.suppress(ReliveError):
                    tend_capsules(self._settings, only=capsule.facts.spec.name)
        for stream in streams:
            stream.pass_on(last=True)
        until = time.monotonic() + _AGENT_LIMIT
        while agent_lives(capsule.paths) and time.monotonic() < until:
            time.sleep(_POLL)
        self._let_go()
        return capsule.wait_status

    def _end_the_rest(self, capsule: Capsule) -> float:
        """The first process has ended and left others; returns until when they may live."""
        signal_all(procfs.tree_of(capsule.facts.init)[1:], capsule.facts.init, signal.SIGTERM)
        return time.monotonic() + _REST_LIMIT

    def _let_go(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def _hear(self, number: int, _frame: object) -> None:
        self._pending.append(number)
        if self._capsule is not None:
            self._hand_on_in_order()

    def _hand_on_in_order(self) -> None:
        """A signal that comes while another is handed on waits for that: a reload before an end must not come behind it."""
        if self._is_handing_on:
            return
        self._is_handing_on = True
        try:
            while self._pending:
                self._hand_on(self._pending.pop(0))
        finally:
            self._is_handing_on = False

    def _hand_on(self, number: int) -> None:
        assert self._capsule is not None
        # To a daemon SIGHUP means to read its configuration again; what fails after that is a failure.
        if number in _ENDING and not (self._is_supervised and number == signal.SIGHUP):
            with contextlib.suppress(ReliveError):
                ask_agent(self._capsule.paths.agent_socket, {"op": "stopping"}, limit=2)
        if number != self._to_all:
            self._signal_main(number)
            return
        others = signal_all(self._others(self._capsule), self._capsule.facts.init, number)
        # A shell dies of it at once, and whatever is left then is killed with the capsule: let the others end first.
        if others and not _catches(self._capsule.facts.root, number):
            self._deferred, self._awaited = number, others
        else:
            self._signal_main(number)

    def _signal_main(self, number: int) -> None:
        if self._main is not None and send_signal(self._main, number):
            return
        if self._capsule is not None:  # it is a daemon: its first process has ended
            signal_all(self._capsule.heads(), self._capsule.facts.init, number)

    @staticmethod
    def _others(capsule: Capsule) -> list[int]:
        """The service's processes but for the first."""
        there = procfs.tree_of(capsule.facts.init)[1:]
        return [pid for pid in there if pid != capsule.facts.root and procfs.exists(pid)]

    def _send_deferred(self) -> None:
        if self._deferred is not None and not any(procfs.exists(pid) for pid in self._awaited):
            number, self._deferred = self._deferred, None
            self._signal_main(number)


def _catches(pid: int, number: int) -> bool:
    """The process has a handler for the signal, or ignores it."""
    masks = [procfs.status_field(pid, name) for name in ("SigCgt", "SigIgn")]
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks if mask is not None)


def end_like(status: int) -> int:
    """End this process as the one of that raw wait status ended; returns what is left to exit with if it cannot.

    A core is not written: it would be this process's.
    """
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    libc.call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)
    with contextlib.suppress(OSError):  # SIGKILL has no handler
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code  # process 1 of a container does not die of signals


class _Stream:
    """One of the service's output files, passed through to a descriptor."""

    def __init__(self, log: Path, descriptor: int, *, whole_lines: bool, from_now: bool) -> None:
        self._log = log
        self._descriptor: int | None = descriptor
        self._whole_lines = whole_lines
        self._offset = log.stat().st_size if from_now else 0

    def pass_on(self, *, last: bool = False) -> None:
        """Pass on what has come; ``last``: also a line that was not ended."""
        try:
            with self._log.open("rb") as file:
                file.seek(self._offset)
                while data := file.read(_LINE_MOST):
                    if self._whole_lines and not last:
                        is_too_long = len(data) == _LINE_MOST
                        data = data[: data.rfind(b"\n") + 1] or (data if is_too_long else b"")
                    if not data:
                        return
                    self._write(data)
                    self._offset += len(data)
                    file.seek(self._offset)
        except FileNotFoundError:
            return

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest and self._descriptor is not None:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])
            except OSError:  # nobody reads there any more, which is no reason to end the service
                self._descriptor = None
