"""In which system call a thread was, from its registers (x86-64).

CRIU sets a thread that it took out of a call back, so that the call is made again: its number is in rax and orig_rax. Of calls
with a time limit of their own (nanosleep, poll, futex) rax says EINTR instead.
"""

from __future__ import annotations

from relive.images import criu_images_pb2 as pb

__all__ = ["FCNTL", "FLOCK", "FUTEX", "call_number", "call_text"]

FCNTL, FLOCK, FUTEX = 72, 73, 202
_INTERRUPTED = (1 << 64) - 4  # -EINTR
# Calls that threads wait in, and how many of their arguments tell something (linux/arch/x86/entry/syscalls/syscall_64.tbl).
_WAITS = {
    **{
        0: ("read", 1),
        1: ("write", 1),
        7: ("poll", 2),
        16: ("ioctl", 2),
        19: ("readv", 1),
        20: ("writev", 1),
    },
    **{17: ("pread64", 1), 18: ("pwrite64", 1), 23: ("select", 1), 34: ("pause", 0), 35: ("nanosleep", 0)},
    **{42: ("connect", 1), 43: ("accept", 1), 44: ("sendto", 1), 45: ("recvfrom", 1), 46: ("sendmsg", 1)},
    **{47: ("recvmsg", 1), 61: ("wait4", 1), 65: ("semop", 1), 69: ("msgsnd", 1), 70: ("msgrcv", 1)},
    **{
        72: ("fcntl", 2),
        73: ("flock", 1),
        74: ("fsync", 1),
        75: ("fdatasync", 1),
        128: ("rt_sigtimedwait", 0),
    },
    **{130: ("rt_sigsuspend", 0), 202: ("futex", 1), 208: ("io_getevents", 1), 219: ("restart_syscall", 0)},
    **{220: ("semtimedop", 1), 230: ("clock_nanosleep", 1), 232: ("epoll_wait", 1), 242: ("mq_timedsend", 1)},
    **{243: ("mq_timedreceive", 1), 247: ("waitid", 2), 270: ("pselect6", 1), 271: ("ppoll", 2)},
    **{281: ("epoll_pwait", 1), 288: ("accept4", 1), 299: ("recvmmsg", 1), 307: ("sendmmsg", 1)},
    **{426: ("io_uring_enter", 1), 441: ("epoll_pwait2", 1), 449: ("futex_waitv", 1)},
}
_POINTERS = frozenset({FUTEX})


def call_number(registers: pb.UserX86RegsEntry) -> int | None:
    """The call that a thread was in; None: in none, or that cannot be told."""
    number = registers.orig_ax
    if number >> 63 or registers.ax not in (number, _INTERRUPTED):
        return None
    return number


def call_text(registers: pb.UserX86RegsEntry) -> str | None:
    """The same in words, such as ``epoll_wait(5)``."""
    number = call_number(registers)
    if number is None:
        return None
    name, count = _WAITS.get(number, (f"system call {number}", 0))
    arguments = (registers.di, registers.si)[:count]
    shown = ", ".join(hex(one) if number in _POINTERS or one >> 32 else str(one) for one in arguments)
    return f"{name}({shown})"
