"""``python -m relive.signals.tracer --socket FD``: the process that waits for fatal signals in a tree.

It has one thread that does anything at a time. The main thread talks with the agent while nothing is traced;
on ``attach`` it starts a second one, which traces and talks until it is told to let go, and then *ends*: the
kernel lets go of all tasks of a thread that ends, in microseconds and without stopping any, which no sequence
of PTRACE_DETACH can do.

    idle --attach--> tracing --detach--> idle
                     tracing --crash---> held --release--> tracing (what is left of the tree) or idle
    any  --socket closed, SIGTERM, SIGINT, SIGHUP--> held processes released, end

The protocol is in ``messages``.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from dataclasses import asdict
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

from relive.errors import ProcessGone, ReliveError, UsageError
from relive.kernel import libc, procfs
from relive.signals.accounting import TracedProcess, ends, forget
from relive.signals.crash import HOLD_LIMIT, Crash
from relive.signals.messages import Fatal, TracerChannel
from relive.signals.release import let_die
from relive.signals.tasks import state_of
from relive.signals.tracing import Tracing

__all__ = ["main"]

_FREEZE_LIMIT: Final = 1.0  # [s] for all threads of a crashed process to stop
_BATCH: Final = 256  # stops that are answered before the agent is listened to again
_END_SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_SIGNALFD_SIZE: Final = 128  # [bytes] struct signalfd_siginfo, signalfd(2)


class _End(Enum):
    """Why the tracing thread ended."""

    DETACHED = auto()
    CRASHED = auto()
    CLOSED = auto()
    FAILED = auto()


class _Signals:
    """SIGCHLD and the signals that end the tracer, as a file descriptor; they are blocked in every thread."""

    def __init__(self) -> None:
        wanted = {signal.SIGCHLD, *_END_SIGNALS}
        # An agent that ignores SIGCHLD bequeaths that, and then the kernel would not tell of any stop.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
        mask = sum(1 << (number - 1) for number in wanted)
        buffer = ctypes.create_string_buffer(mask.to_bytes(8, sys.byteorder), 128)
        self._fd = libc.call("signalfd", -1, buffer, os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def drain(self) -> bool:
        """Empty it; True when the tracer is asked to end."""
        data = os.read(self._fd, _SIGNALFD_SIZE * 4)  # each of them is pending once at most
        numbers = {
            int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, len(data), _SIGNALFD_SIZE)
        }
        return not numbers.isdisjoint(_END_SIGNALS)


class _Agent:
    """What comes in: commands of the agent, and signals."""

    def __init__(self, channel: TracerChannel, signals: _Signals) -> None:
        self._channel = channel
        self._signals = signals
        self._commands: list[dict[str, Any]] = []
        self._poll = select.poll()
        self._poll.register(signals.fileno(), select.POLLIN)
        self._writing = False
        self._poll.register(channel.fileno(), select.POLLIN)
        self.gone = False

    def wait(self, seconds: float | None) -> None:
        """Wait until something comes in, at most so long; 0 only looks."""
        if self._writing != self._channel.has_unsent:
            self._writing = self._channel.has_unsent
            self._poll.modify(
                self._channel.fileno(), select.POLLIN | (select.POLLOUT if self._writing else 0)
            )
        if self._commands:
            seconds = 0
        ready = self._poll.poll(None if seconds is None else seconds * 1000)
        for descriptor, events in ready:
            if descriptor == self._signals.fileno():
                self.gone |= self._signals.drain()
                continue
            if events & select.POLLOUT:
                self._channel.flush()
            if events & ~select.POLLOUT:
                self._receive()
        self.gone |= self._channel.closed

    def _receive(self) -> None:
        try:
            self._commands += self._channel.receive()
        except ValueError as error:
            self._channel.error(UsageError("the tracer got no command", cause=str(error)))

    def command(self) -> dict[str, Any] | None:
        """The next command, if one has come in."""
        return self._commands.pop(0) if self._commands else None


class Tracer:
    """The whole state between two commands."""

    def __init__(self, channel: TracerChannel, hold_limit: float) -> None:
        self._channel = channel
        self._hold_limit = hold_limit
        self._agent = _Agent(channel, _Signals())
        self._root: int | None = None
        self._known: list[TracedProcess] = []
        self._held: list[Crash] = []
        self._resumes_tracing = False
        self._stopped_before: set[int] = set()

    # -- main thread -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve the agent until it is gone."""
        while True:
            command = self._agent.command()
            if command is not None:
                self._obey(command)
            elif self._agent.gone:
                break
            else:
                self._agent.wait(None)
        if self._held:
            let_die(self._held)
            self._wake_tree()

    def _obey(self, command: dict[str, Any]) -> None:
        """A command while nothing is traced. Tracing, once begun, takes the commands itself until it ends."""
        op = command["op"]
        if op == "detach":
            self._resumes_tracing = False
            self._channel.reply("detached", held=bool(self._held))
        elif op == "attach" and isinstance(command.get("root"), int):
            self._root = command["root"]
            if self._held:
                self._resumes_tracing = True
                self._channel.reply("attached", tasks=0, held=True, skipped=[])
            else:
                self._trace(releasing=None)
        elif op == "release":
            died = let_die(self._held)
            for crash in self._held:
                crash.close()
            released = {crash.pid for crash in self._held}
            self._held = []
            # Of their ends the reply tells.
            gone = [one for one in self._known if one.pid in released and not one.lives]
            self._known = [one for one in self._known if one not in gone]
            forget(gone)
            if released and self._resumes_tracing:
                self._trace(releasing=died)
            else:
                self._channel.reply("released", died=died, tasks=0)
        else:
            self._channel.error(_unknown(command))

    def _trace(self, *, releasing: bool | None) -> None:
        """Trace in a thread of its own until that ends, and go on from its end.

        Args:
            releasing: None for the command ``attach``. For ``release``, whether the process died.
        """
        assert self._root is not None
        session = _Session(self._channel, self._agent, releasing, self._known, self._hold_limit)
        thread = threading.Thread(target=session.run, args=(self._root,), daemon=True)
        thread.start()
        thread.join()
        # join() returns a little before the system's thread is gone, and only with that are the tasks let go.
        while Path(f"/proc/self/task/{session.native_id}").exists():
            os.sched_yield()
        if session.end is _End.DETACHED:
            # Before anything else: somebody waits to begin a commit.
            self._channel.reply("detached", held=False)
        forget(self._known)
        self._known = session.left
        if session.end is _End.CRASHED:
            self._stopped_before = {one.pid for one in self._known if state_of(one.pid) == "T"}
            self._hold(list(session.tracing.crashes.values()))
            if session.detaches:
                self._resumes_tracing = False
                self._channel.reply("detached", held=True)

    def _hold(self, crashes: list[Crash]) -> None:
        self._held = crashes
        self._resumes_tracing = True
        deadline = time.monotonic() + _FREEZE_LIMIT
        for crash in crashes:
            # Let go of, its tasks turn from "traced" to "stopped" by themselves, each on its own way.
            stopped = all(_await_stop(tid, deadline) for tid in procfs.threads_of(crash.pid))
            info = crash.info
            self._channel.event(
                Fatal(
                    pid=crash.pid,
                    tid=crash.tid,
                    signal=info.number,
                    name=info.name,
                    code=info.code,
                    code_name=info.code_name,
                    address=info.address,
                    sender=info.sender,
                    comm=crash.comm,
                    stopped=stopped,
                    kept=crash.kept,
                )
            )

    def _wake_tree(self) -> None:
        """The agent died while it committed: whatever of the tree was stopped since the crash shall run."""
        for one in self._known:
            if one.lives and one.pid not in self._stopped_before and state_of(one.pid) == "T":
                os.kill(one.pid, signal.SIGCONT)


class _Session:
    """One life of the tracing thread.

    Args:
        releasing: as for ``Tracer._trace``. known: who was traced before; daemons that forked twice no longer
            descend from the root. hold_limit: see ``guardian``.

    Attributes:
        tracing: what was traced; ``native_id`` the thread that did; ``end`` why it ended; ``left`` who was traced last. For after
            its end.
        detaches: somebody waits for the answer to ``detach``, which is due when the thread has ended, since until then it traces.
    """

    tracing: Tracing
    native_id: int
    end: _End = _End.FAILED

    def __init__(
        self,
        channel: TracerChannel,
        agent: _Agent,
        releasing: bool | None,
        known: Iterable[TracedProcess],
        hold_limit: float,
    ) -> None:
        self._channel = channel
        self._agent = agent
        self._releasing = releasing
        self._known = list(known)
        self._hold_limit = hold_limit
        self.left: list[TracedProcess] = []
        self.detaches = False

    def run(self, root: int) -> None:
        """The thread. Whatever goes wrong in it, its end sets the whole tree free."""
        self.native_id = threading.get_native_id()
        self.tracing = Tracing(self._channel.event, self._hold_limit)
        try:
            self.end = self._run(root)
        except ReliveError as error:
            self._channel.error(error)
        except Exception as error:
            traceback.print_exc()
            failure = ReliveError("the tracer failed", cause=f"{type(error).__name__}: {error}")
            self._channel.error(failure)
        # Still traced, none of them can vanish: whoever ends from now on is accounted for when tracing goes on.
        pids = {*self.tracing.processes(), *(one.pid for one in self._known if one.lives)}
        self.left = TracedProcess.of_all(pids)

    def _run(self, root: int) -> _End:
        try:
            self._begin(root, [one.pid for one in self._known if one.lives])
        finally:
            for exited in ends(self._known):
                if exited.pid not in self.tracing.tasks:  # else its end is told when it is reaped
                    self._channel.event(exited)
        deadline: float | None = None
        while True:
            idle = self._handle_batch()
            if self.tracing.crashes:
                now = time.monotonic()
                deadline = deadline or now + _FREEZE_LIMIT
                if (idle and self.tracing.is_frozen()) or now > deadline:
                    return _End.CRASHED
            elif self.detaches and idle:
                return _End.DETACHED
            else:
                deadline = None
            self._agent.wait(0 if not idle else max(0.001, deadline - time.monotonic()) if deadline else None)
            if self._agent.gone:
                # A process that is being stopped must not stay so: it is held, and released by the main thread.
                return _End.CRASHED if self.tracing.crashes else _End.CLOSED
            while (command := self._agent.command()) is not None:
                self.detaches |= self._obey(command)

    def _begin(self, root: int, others: Iterable[int]) -> None:
        if self._releasing is None:
            skipped = self.tracing.follow(others)
            try:
                skipped += self.tracing.attach(root)
            except ProcessGone:
                if not self.tracing.tasks:
                    raise  # else it has left daemons
            self._reply_attached(asdict(refusal) for refusal in skipped)
        else:
            self.tracing.follow([root, *others])
            self._channel.reply("released", died=self._releasing, tasks=len(self.tracing.tasks))

    def _handle_batch(self) -> bool:
        """Answer what waits, up to a limit; True when nothing was left."""
        return not all(self.tracing.handle_next() for _ in range(_BATCH))

    def _obey(self, command: dict[str, Any]) -> bool:
        """A command while tracing; True for ``detach``."""
        op = command["op"]
        if op == "detach":
            return True
        if op == "attach" and isinstance(command.get("root"), int):
            try:
                skipped = self.tracing.attach(command["root"])
            except ReliveError as error:
                self._channel.error(error)
            else:
                self._reply_attached(asdict(refusal) for refusal in skipped)
        elif op == "release":
            self._channel.reply("released", died=True, tasks=len(self.tracing.tasks))
        else:
            self._channel.error(_unknown(command))
        return False

    def _reply_attached(self, skipped: Iterable[dict[str, Any]]) -> None:
        self._channel.reply("attached", tasks=len(self.tracing.tasks), held=False, skipped=list(skipped))


def _unknown(command: dict[str, Any]) -> UsageError:
    return UsageError(f"the tracer does not know how to {command['op']!r}", cause=str(command)[:200])


def _await_stop(tid: int, deadline: float) -> bool:
    """Wait until a task is in state T or has ended; False when it is not by then. Takes microseconds."""
    while state_of(tid) not in "TZX":
        if time.monotonic() > deadline:
            return False
        os.sched_yield()
    return True


def main() -> None:
    """Run the tracer until its socket closes."""
    parser = argparse.ArgumentParser(prog="relive.signals.tracer", description=__doc__)
    parser.add_argument("--socket", type=int, required=True, metavar="FD", help="inherited stream socket")
    parser.add_argument(
        "--hold-limit",
        type=float,
        default=HOLD_LIMIT,
        metavar="SECONDS",
        help="after which a process that is held is let go",
    )
    parser.add_argument("--agent", type=int, metavar="PID", help="whose it is, for who looks at processes")
    arguments = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    # It has a handle of each process while it is aside.
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    Tracer(TracerChannel(socket.socket(fileno=arguments.socket)), arguments.hold_limit).run()


if __name__ == "__main__":
    main()
