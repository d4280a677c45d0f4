"""ptrace(2) and the waiting that belongs to it, as thin typed calls; x86-64 and arm64 Linux 5.4 or later.

Tracing is bound to the *thread* that seized: only that thread may give orders, and when it ends the kernel
lets go of all its tracees without stopping those that run. What is done with a stop is decided in
``relive.signals``.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final, NamedTuple

__all__ = [
    "EVENT_CLONE",
    "EVENT_EXEC",
    "EVENT_FORK",
    "EVENT_STOP",
    "EVENT_VFORK",
    "FOLLOW_ALL",
    "SIGINFO_SIZE",
    "Registers",
    "Wait",
    "accept",
    "detach",
    "event_message",
    "has_failed",
    "interrupt",
    "kept_registers",
    "listen",
    "peek",
    "reap",
    "registers",
    "resume",
    "seize",
    "set_registers",
    "siginfo",
]

# Requests: linux/ptrace.h, ptrace(2) "DESCRIPTION".
_CONT: Final = 7
_GETREGS: Final = 12  # x86 only, as the next
_SETREGS: Final = 13
_DETACH: Final = 17
_GETEVENTMSG: Final = 0x4201
_GETSIGINFO: Final = 0x4202
_SEIZE: Final = 0x4206
_INTERRUPT: Final = 0x4207
_LISTEN: Final = 0x4208

# PTRACE_O_TRACEFORK | TRACEVFORK | TRACECLONE | TRACEEXEC: what a tracee starts is seized at birth.
# PTRACE_O_EXITKILL is absent on purpose: when the tracer dies, its tracees must live.
FOLLOW_ALL: Final = 0x02 | 0x04 | 0x08 | 0x10

# Events: the third byte of a stop's status, ptrace(2) "PTRACE_EVENT stops".
EVENT_FORK: Final = 1
EVENT_VFORK: Final = 2
EVENT_CLONE: Final = 3
EVENT_EXEC: Final = 4
EVENT_STOP: Final = 128  # group-stop, PTRACE_INTERRUPT, or the first stop of a task that was seized at birth

# Of struct user_regs_struct, all of 8 bytes.
_REGISTERS: Final = (
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs"
).split()
_KEPT: Final = 6

SIGINFO_SIZE: Final = 128  # [bytes] siginfo_t, sigaction(2)

_WALL: Final = 0x40000000  # __WALL, waitpid(2): threads too, and children that do not signal SIGCHLD
_PEEK_FLAGS: Final = os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT | _WALL
_STOPPED_CODES: Final = (os.CLD_TRAPPED, os.CLD_STOPPED)

_libc = ctypes.CDLL(None, use_errno=True)
_ptrace = _libc.ptrace
_ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_ptrace.restype = ctypes.c_long


def _request(request: int, tid: int, address: int = 0, data: int = 0) -> None:
    if _ptrace(request, tid, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace({request:#x}, {tid}): {os.strerror(number)}")


def seize(tid: int, options: int = FOLLOW_ALL) -> None:
    """Trace a task from now on, without stopping it.

    Raises:
        PermissionError: it is traced already, is a zombie, a kernel thread, of this very process, or not ours
            to trace.
        ProcessLookupError: there is no such task.
    """
    _request(_SEIZE, tid, 0, options)


def resume(tid: int, signal: int = 0) -> None:
    """Let a stopped tracee run; in a signal-delivery-stop it gets ``signal``, or none if 0.

    Raises:
        ProcessLookupError: it is not stopped; if it has been seen stopped, it was killed meanwhile.
    """
    _request(_CONT, tid, 0, signal)


def listen(tid: int) -> None:
    """Leave a tracee in the group-stop that it reported; SIGCONT wakes it as if it were not traced."""
    _request(_LISTEN, tid)


def interrupt(tid: int) -> None:
    """Ask a running tracee to stop; a system call in which it sleeps may return EINTR (signal(7))."""
    _request(_INTERRUPT, tid)


def detach(tid: int, signal: int = 0) -> None:
    """Let go of a *stopped* tracee. Running ones are let go by ending the tracing thread."""
    _request(_DETACH, tid, 0, signal)


def event_message(tid: int) -> int:
    """The number that belongs to an event stop: the new task's id, or after exec the former thread id."""
    value = ctypes.c_ulong()
    _request(_GETEVENTMSG, tid, 0, ctypes.addressof(value))
    return value.value


def siginfo(tid: int) -> bytes:
    """``SIGINFO_SIZE`` bytes: the siginfo_t of the signal at whose delivery the tracee is stopped."""
    buffer = ctypes.create_string_buffer(SIGINFO_SIZE)
    _request(_GETSIGINFO, tid, 0, ctypes.addressof(buffer))
    return buffer.raw


class Registers(ctypes.Structure):
    """struct user_regs_struct of x86-64, sys/user.h."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in _REGISTERS)


def registers(tid: int) -> Registers:
    """Of a stopped tracee; x86-64 only. Raises ProcessLookupError: it is not stopped, or was killed."""
    found = Registers()
    _request(_GETREGS, tid, 0, ctypes.addressof(found))
    return found


def set_registers(tid: int, wanted: Registers) -> None:
    """Of a stopped tracee; raises as ``registers``."""
    _request(_SETREGS, tid, 0, ctypes.addressof(wanted))


def kept_registers(tid: int) -> tuple[int, ...]:
    """r15, r14, r13, r12, rbp and rbx of a stopped tracee: those that functions keep. Empty on other machines than x86-64."""
    if os.uname().machine != "x86_64":
        return ()
    found = registers(tid)
    return tuple(getattr(found, name) for name in _REGISTERS[:_KEPT])


class Wait(NamedTuple):
    """One thing that waits to be handled.

    Attributes:
        ended: the task is a zombie; ``signal`` and ``event`` are 0.
        signal: of the stop: SIGTRAP or a stop signal where ``event`` is not 0, else what is to be delivered.
        event: one of ``EVENT_*``, or 0 in a signal-delivery-stop.
    """

    tid: int
    ended: bool
    signal: int
    event: int


def peek() -> Wait | None:
    """The next tracee that has stopped or ended, or None. Never blocks, and takes nothing away.

    A stop stays reported until it is answered with ``resume``, ``listen`` or ``detach``, an end until
    ``reap``; a stop for EVENT_EXEC needs ``accept`` before it can be answered. This is what makes the sudden
    death of a tracer harmless: waitpid(2) would move the signal out of the kernel, and a tracer killed before
    it hands the signal on would take it along.
    """
    try:
        found = os.waitid(os.P_ALL, 0, _PEEK_FLAGS)
    except ChildProcessError:
        return None
    if found is None:
        return None
    if found.si_code in _STOPPED_CODES:
        return Wait(found.si_pid, False, found.si_status & 0xFF, found.si_status >> 8)
    return Wait(found.si_pid, True, 0, 0)


def accept(tid: int) -> None:
    """Take the report of an EVENT_EXEC stop away; the task stays stopped.

    Until then the kernel answers every request with ESRCH, lest a tracer means the former owner of the
    number, which is gone (``looks_like_a_spurious_pid`` in kernel/ptrace.c, Linux 5.13).
    """
    # Only the stop: if the task was killed meanwhile, its end is still to be reported.
    os.waitid(os.P_PID, tid, os.WSTOPPED | os.WNOHANG | _WALL)


def has_failed(tid: int) -> bool:
    """An ended tracee, not yet reaped, died of a signal, or exited with a status other than 0."""
    try:
        found = os.waitid(os.P_PID, tid, _PEEK_FLAGS & ~os.WSTOPPED)
    except ChildProcessError:
        return False
    return found is not None and (found.si_code != os.CLD_EXITED or found.si_status != 0)


def reap(tid: int) -> int | None:
    """Take an ended tracee away, so that its parent sees the end: its raw wait status, None if not there."""
    try:
        found, status = os.waitpid(tid, os.WNOHANG | _WALL)
    except ChildProcessError:
        return None
    return status if found == tid else None
