"""How processes are followed: ptrace without stopping them, their children in /proc, descriptors of processes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
from collections.abc import Iterator
from pathlib import Path

from relive.doctor.finding import Obstacle, ProbeResult, in_words, works
from relive.doctor.probe import ProbeContext, root_remedy
from relive.kernel import procfs, ptrace
from relive.kernel.pidfds import has_ended

__all__ = ["pidfd", "proc_children", "tracing"]

_ANSWER = 1.0  # [s]
_FATAL = signal.SIGUSR2  # ends a process like SIGSEGV, but no core is dumped
_KNOWN = b"what the child holds in its memory"


@contextlib.contextmanager
def _child() -> Iterator[int]:
    """A process that waits until it is killed; ended and reaped in any case."""
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def tracing(_ground: ProbeContext) -> ProbeResult:
    """As the failure watch does: seize a running process, see a fatal signal before it does, let it die of it."""
    buffer = ctypes.create_string_buffer(_KNOWN)
    known = ctypes.addressof(buffer)  # the same in the child, which is a copy
    signal.signal(_FATAL, signal.SIG_DFL)
    with _child() as pid:
        try:
            ptrace.seize(pid)
        except PermissionError as error:
            raise Obstacle("refused", cause=in_words(error), remedy=_tracing_remedy()) from None
        os.kill(pid, _FATAL)
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        seen = ptrace.peek()
        if seen is None or (seen.tid, seen.signal, seen.event) != (pid, _FATAL, 0):
            raise Obstacle(
                "seized, but nothing is seen", cause=f"a fatal signal was sent, {seen} was reported"
            )
        (number,) = struct.unpack_from("i", ptrace.siginfo(pid))
        if number != _FATAL:
            raise Obstacle("seized, but not readable", cause=f"signal {_FATAL} reads as {number}")
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            read = os.pread(memory, len(_KNOWN), known)
        finally:
            os.close(memory)
        if read != _KNOWN:
            raise Obstacle("seized, but not readable", cause=f"its memory reads as {read!r}, not {_KNOWN!r}")
        ptrace.resume(pid, _FATAL)
        _, status = os.waitpid(pid, 0)
    if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != _FATAL:
        raise Obstacle(
            "a traced process is harmed", cause=f"it should have died of its own signal; wait status {status}"
        )
    return works("a fatal signal is seen before the process dies of it")


def _tracing_remedy() -> str:
    if os.geteuid() != 0:
        return root_remedy()
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if scope.exists() and scope.read_text().strip() == "3":
        return "kernel.yama.ptrace_scope is 3, which forbids tracing until the next boot; set it to 1 in /etc/sysctl.d"
    return (
        "give this container or virtual machine CAP_SYS_PTRACE, and a seccomp profile that allows ptrace(2)"
    )


def proc_children(_ground: ProbeContext) -> ProbeResult:
    """/proc/PID/task/TID/children, by which CRIU and Relive find the members of a process tree."""
    with _child() as pid:
        path = Path(f"/proc/self/task/{os.getpid()}/children")
        if not path.exists():
            raise Obstacle(
                "none", cause=f"{path} does not exist", remedy="use a kernel with CONFIG_PROC_CHILDREN"
            )
        if pid not in procfs.children_of(os.getpid()):
            raise Obstacle("wrong", cause=f"{path} does not name the child {pid}")
    return works("/proc/PID/task/TID/children names them")


def pidfd(_ground: ProbeContext) -> ProbeResult:
    """Open, signal and await a process by descriptor, so that a number that is used again harms nobody."""
    with _child() as pid:
        handle = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            ended = has_ended(handle, _ANSWER)
        finally:
            os.close(handle)
    if not ended:
        raise Obstacle(
            "no news of its end", cause="the descriptor of a process that was killed did not become readable"
        )
    return works("opened, signalled, awaited")
