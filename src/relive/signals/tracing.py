"""Tracing of one process tree by the calling thread: who is seized, and what is done at each stop.

Terms: a *task* is a thread as the kernel sees it. A *crash* is a process whose fatal signal has been
withheld; it is *frozen* once every task of it stands in group-stop. There is no method to let go: the thread
that traces ends, and the kernel lets go of all tasks at once, those that run without stopping them, those in
a stop with their signal unchanged, those in group-stop still stopped. So the ordinary way out is the same as
the sudden death of the tracer.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from relive.errors import PermissionMissing, ProcessGone, UsageError
from relive.kernel import procfs, ptrace
from relive.signals import signals
from relive.signals.crash import HOLD_LIMIT, Crash
from relive.signals.guardian import guard
from relive.signals.messages import Exited
from relive.signals.tasks import read, send_to_task, state_of

__all__ = ["Identity", "Skipped", "Tracing", "is_leader"]

_TICKS = os.sysconf("SC_CLK_TCK")


def is_leader(tid: int) -> bool:
    """The task, which may be a zombie, is the first thread of its process. Cheaper than reading /proc."""
    try:
        send_to_task(tid, tid, 0)
    except ProcessLookupError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Skipped:
    """A process of the tree that could not be traced.

    Attributes:
        tracer: the task that traces it already, or None when the reason is another.
    """

    pid: int
    tracer: int | None
    reason: str


class Tracing:
    """Belongs to one thread; after its end others may use ``processes`` and ``crashes``.

    Attributes:
        tasks: every traced task that is not known to have ended.
        crashes: by process id; none of them is traced again by this object.
    """

    def __init__(self, on_exit: Callable[[Exited], None], hold_limit: float = HOLD_LIMIT) -> None:
        """``on_exit`` is told of each traced process that ends; ``hold_limit``: seconds (``guardian``)."""
        self.tasks: set[int] = set()
        self.crashes: dict[int, Crash] = {}
        self._on_exit = on_exit
        self._hold_limit = hold_limit
        self._me = threading.get_native_id()

    # -- who is traced ---------------------------------------------------------------------------------------

    def attach(self, root: int) -> list[Skipped]:
        """Trace a process and all its descendants, none of which is stopped for it.

        Raises:
            ProcessGone: there is no such process, or it ended meanwhile.
            PermissionMissing: the root process must not be traced, or is traced by somebody else.
            UsageError: it is a kernel thread.
        """
        stat = procfs.read_stat(root)
        if stat is None:
            raise ProcessGone(f"there is no process {root}")
        if stat.kernel_thread:
            raise UsageError(f"{root} is a kernel thread ({stat.comm})")
        skipped = self.follow([root])
        for refusal in skipped:
            if refusal.pid == root:
                raise PermissionMissing(
                    f"process {root} cannot be traced",
                    cause=refusal.reason,
                    remedy=None if refusal.tracer is None else f"End the debugger, process {refusal.tracer}.",
                )
        # A zombie leader counts as alive as long as other threads of its process are.
        if all(state_of(tid) in "ZX" for tid in procfs.threads_of(root)):
            raise ProcessGone(f"process {root} has ended")
        return skipped

    def follow(self, roots: Iterable[int]) -> list[Skipped]:
        """Trace the trees of those roots that still live. Attaching races with forks: see the steps.

        1. Go down the tree; seize each thread and only then read its children. What a seized task starts is
           seized at birth, so a task can only be missed if its maker was not yet seized, or ended before its
           children were read.
        2. Done if meanwhile no task anywhere on the machine began and none of these ended; else go down once
           more until nothing new is found.
        """
        roots = list(roots)
        refused: dict[int, Skipped] = {}
        while roots:
            census = _census()
            news, losses = self._descend(roots, refused)
            ended = ptrace.peek()
            if not news or (census == _census() and not losses and not (ended and ended.ended)):
                break
        return list(refused.values())

    def _descend(self, roots: list[int], refused: dict[int, Skipped]) -> tuple[int, int]:
        """Once through the trees: how many tasks were seized, and how many had ended before it."""
        news = losses = 0
        processes = list(dict.fromkeys(roots))
        seen = set(processes)
        for pid in processes:
            for tid in _threads(pid):
                if tid not in self.tasks and pid not in refused:
                    try:
                        ptrace.seize(tid)
                        self.tasks.add(tid)
                        news += 1
                    except ProcessLookupError:
                        losses += 1
                    except PermissionError:
                        refusal = self._why_refused(pid, tid)
                        if refusal is not None:
                            refused[pid] = refusal
                        else:
                            losses += tid not in self.tasks
                for child in _children(pid, tid):
                    if child not in seen:
                        seen.add(child)
                        processes.append(child)
        return news, losses

    def _why_refused(self, pid: int, tid: int) -> Skipped | None:
        """Why a task could not be seized; None for one that is ours from birth, or a zombie."""
        if pid == os.getpid():
            return Skipped(pid, None, "it is the tracer itself")
        stat = procfs.read_stat(tid)
        if stat is None or stat.state in "ZX":
            return None
        tracer = int(procfs.status_field(tid, "TracerPid") or 0)
        if tracer == self._me:
            self.tasks.add(tid)
            return None
        if tracer:
            return Skipped(pid, tracer, f"process {tracer} traces it already")
        return Skipped(pid, None, "the kernel does not allow it (CAP_SYS_PTRACE, Yama, or a security module)")

    def processes(self) -> list[int]:
        """Ids of the traced processes; may be called after the thread's end."""
        return [tid for tid in self.tasks if is_leader(tid)]

    # -- what happens to them --------------------------------------------------------------------------------

    def handle_next(self) -> bool:
        """Answer one stop or end; False when nothing waits. Never blocks."""
        found = ptrace.peek()
        if found is None:
            return False
        if found.ended:
            self._end(found.tid)
            return True
        self.tasks.add(found.tid)
        # Only SIGKILL takes a tracee out of a stop behind the tracer's back; its end is reported next.
        with contextlib.suppress(ProcessLookupError):
            if found.event == 0:
                self._deliver(found.tid, found.signal)
            elif found.event == ptrace.EVENT_STOP and found.signal in signals.STOP_SIGNALS:
                self._group_stop(found.tid)
            else:
                if found.event == ptrace.EVENT_EXEC:
                    self._exec(found.tid)
                for crash in self.crashes.values():
                    crash.stopped.discard(found.tid)
                ptrace.resume(found.tid)
        return True

    def _end(self, tid: int) -> None:
        leads = is_leader(tid)
        # Nobody can be asked after it is reaped.
        who = Identity.of(tid) if leads and ptrace.has_failed(tid) else None
        status = ptrace.reap(tid)
        self.tasks.discard(tid)
        if not leads or status is None:
            return
        crash = self.crashes.pop(tid, None)  # killed while it was being stopped
        if crash is not None:
            crash.close()
        self._on_exit(Exited(tid, status) if who is None else who.ended(status))

    def _exec(self, tid: int) -> None:
        """The thread that called execve has taken the number of the leader, and all other threads are gone.

        Their ends are reported one by one, but never that of the number which the calling thread had before.
        """
        ptrace.accept(tid)
        former = ptrace.event_message(tid)
        if former != tid:
            self.tasks.discard(former)

    def _group_stop(self, tid: int) -> None:
        ptrace.listen(tid)
        for crash in self.crashes.values():
            # Numbers of threads are unique, so it does not matter whose it is.
            crash.stopped.add(tid)

    def _deliver(self, tid: int, number: int) -> None:
        if number not in signals.CRASH_SIGNALS:
            ptrace.resume(tid, number)
            return
        try:
            task = signals.Dispositions.parse(read(f"/proc/{tid}/status"))
        except FileNotFoundError:
            return  # killed this very moment
        info = signals.SignalInfo.decode(ptrace.siginfo(tid))
        if not signals.is_crash(info, task):
            ptrace.resume(tid, number)
            return
        comes_back = signals.comes_back(info, namespace_init=task.namespace_init)
        known = self.crashes.get(task.process)
        if known is None:
            crash = Crash(
                pid=task.process,
                tid=tid,
                info=info,
                comm=read(f"/proc/{tid}/comm").rstrip("\n"),
                pidfd=os.pidfd_open(task.process),
                comes_back=comes_back,
                kept=ptrace.kept_registers(tid),
            )
            try:
                crash.guard = guard(crash, self._hold_limit)
            except OSError:  # too many processes, no memory: it dies as if nobody watched
                os.close(crash.pidfd)
                ptrace.resume(tid, number)
                return
            self.crashes[task.process] = crash
            # In place of the signal the thread gets SIGSTOP, which stops the whole process. Sent from outside
            # instead, it would be pending when CRIU seizes, and CRIU would throw away the wrong signal.
            ptrace.resume(tid, signal.SIGSTOP)
            return
        # A second thread of a process that is being stopped: it must not die of this before it is committed.
        if not comes_back:
            known.withheld.append((tid, number))
        ptrace.resume(tid, 0)

    def is_frozen(self) -> bool:
        """Every live task of every crashed process stands in group-stop. True when nothing crashed."""
        return all(
            tid in crash.stopped or state_of(tid) in "ZX"
            for crash in self.crashes.values()
            for tid in procfs.threads_of(crash.pid)
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """What names a process for good, and who started it.

    Attributes:
        pid, parent: as the caller sees them. start_ticks: since boot, as in proc(5).
        inside: its number in its own PID namespace.
    """

    pid: int
    parent: int
    start_ticks: int
    comm: str
    inside: int

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """Of a process that is there, be it a zombie."""
        stat, inside = procfs.read_stat(pid), procfs.innermost_pid(pid)
        if stat is None:
            return None
        return cls(pid, stat.parent, stat.start_ticks, stat.comm, pid if inside is None else inside)

    def ended(self, status: int | None) -> Exited:
        """Its end, now; ``status`` as in ``Exited``."""
        lived = time.clock_gettime(time.CLOCK_BOOTTIME) - self.start_ticks / _TICKS
        return Exited(self.pid, status, self.comm, self.inside, lived, self.parent)


def _threads(pid: int) -> Iterator[int]:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        yield from [int(name) for name in os.listdir(f"/proc/{pid}/task")]


def _children(pid: int, tid: int) -> list[int]:
    """Children that this thread started; the file comes a page at a time."""
    try:
        descriptor = os.open(f"/proc/{pid}/task/{tid}/children", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    text = b""
    try:
        while part := os.read(descriptor, 65536):
            text += part
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)
    return [int(word) for word in text.split()]


def _census() -> tuple[str, str]:
    """Number of tasks on the machine and the last id given to one (proc(5), loadavg): equal if none began."""
    *_, tasks, last = read("/proc/loadavg").split()
    return tasks.partition("/")[2], last
