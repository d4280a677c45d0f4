"""What a signal means for a process: pure decisions over a siginfo_t and the text of /proc/PID/status.

A *crash* is a signal that will end the process by its default action and that nobody asked for. Nothing here
reads /proc or sends a signal; that is done in ``tracing`` and ``release``.
"""

from __future__ import annotations

import signal
import struct
from dataclasses import dataclass
from typing import Final

__all__ = [
    "CRASH_SIGNALS",
    "FAULT_SIGNALS",
    "STOP_SIGNALS",
    "Dispositions",
    "SignalInfo",
    "code_name",
    "comes_back",
    "is_crash",
    "signal_name",
]

# Raised by the processor at an instruction, or in its name by the kernel.
FAULT_SIGNALS: Final = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}
)

# The default action ends the process, and a program that gets one has failed: a fault, abort(), a limit.
#
# Not here, since somebody wanted the end and the state at that moment explains nothing:
#   SIGTERM, SIGINT, SIGHUP, SIGQUIT: a supervisor or a terminal stops the service (QUIT: by choice with a core);
#   SIGKILL: no tracer is told before it, the memory killer's included; the last commit stands;
#   SIGPIPE: every `... | head` ends so;
#   SIGALRM, SIGUSR1, SIGUSR2, SIGPROF, real-time signals, ...: somebody set a timer or sent them.
# An end by any of these is still seen, as an exit with that signal in its status.
CRASH_SIGNALS: Final = FAULT_SIGNALS | {signal.SIGABRT, signal.SIGXCPU, signal.SIGXFSZ}

STOP_SIGNALS: Final = frozenset({signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})

_SI_KERNEL: Final = 0x80
_BUS_MCEERR_AO: Final = 5

# sigaction(2), asm-generic/siginfo.h.
_GENERAL_CODES: Final = {
    0: "SI_USER",
    _SI_KERNEL: "SI_KERNEL",
    -1: "SI_QUEUE",
    -2: "SI_TIMER",
    -3: "SI_MESGQ",
    -4: "SI_ASYNCIO",
    -5: "SI_SIGIO",
    -6: "SI_TKILL",
    -7: "SI_DETHREAD",
    -60: "SI_ASYNCNL",
}
_SENDER_CODES: Final = frozenset({0, -1, -6})  # si_pid is the sender's
_FAULT_CODES: Final[dict[int, dict[int, str]]] = {
    signal.SIGILL: {
        1: "ILL_ILLOPC",
        2: "ILL_ILLOPN",
        3: "ILL_ILLADR",
        4: "ILL_ILLTRP",
        5: "ILL_PRVOPC",
        6: "ILL_PRVREG",
        7: "ILL_COPROC",
        8: "ILL_BADSTK",
        9: "ILL_BADIADDR",
    },
    signal.SIGFPE: {
        1: "FPE_INTDIV",
        2: "FPE_INTOVF",
        3: "FPE_FLTDIV",
        4: "FPE_FLTOVF",
        5: "FPE_FLTUND",
        6: "FPE_FLTRES",
        7: "FPE_FLTINV",
        8: "FPE_FLTSUB",
        14: "FPE_FLTUNK",
        15: "FPE_CONDTRAP",
    },
    signal.SIGSEGV: {
        1: "SEGV_MAPERR",
        2: "SEGV_ACCERR",
        3: "SEGV_BNDERR",
        4: "SEGV_PKUERR",
        8: "SEGV_MTEAERR",
        9: "SEGV_MTESERR",
        10: "SEGV_CPERR",
    },
    signal.SIGBUS: {
        1: "BUS_ADRALN",
        2: "BUS_ADRERR",
        3: "BUS_OBJERR",
        4: "BUS_MCEERR_AR",
        5: "BUS_MCEERR_AO",
    },
    signal.SIGTRAP: {
        1: "TRAP_BRKPT",
        2: "TRAP_TRACE",
        3: "TRAP_BRANCH",
        4: "TRAP_HWBKPT",
        5: "TRAP_UNK",
        6: "TRAP_PERF",
    },
    signal.SIGSYS: {1: "SYS_SECCOMP", 2: "SYS_USER_DISPATCH"},
}

# si_signo, si_errno, si_code, and the union that begins on the next multiple of 8: si_addr, or si_pid.
_HEAD: Final = struct.Struct("=iii4x")
_ADDRESS: Final = struct.Struct("=Q")
_SENDER: Final = struct.Struct("=i")


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11; ``SIGRTMIN+3`` for real-time signals; ``signal 99`` for what is none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        low, high = signal.SIGRTMIN, signal.SIGRTMAX
        return f"SIGRTMIN+{number - low}" if low <= number <= high else f"signal {number}"


def code_name(number: int, code: int) -> str:
    """The name of an si_code, which for positive codes depends on the signal; ``code 77`` if unknown."""
    if code <= 0 or code == _SI_KERNEL:
        return _GENERAL_CODES.get(code, f"code {code}")
    return _FAULT_CODES.get(number, {}).get(code, f"code {code}")


@dataclass(frozen=True, slots=True)
class SignalInfo:
    """What a siginfo_t says that matters at a crash.

    Attributes:
        number: si_signo.
        code: si_code: above 0 the kernel raised it, 0 and below some process or timer sent it.
        address: where the fault happened (SIGSYS: the address of the call); None when the kernel gives none.
        sender: process that sent it, numbered as in the *receiver's* PID namespace, 0 when it lies outside of
            that; None when nobody sent it.
    """

    number: int
    code: int
    address: int | None
    sender: int | None

    @classmethod
    def decode(cls, data: bytes) -> SignalInfo:
        """Read the first 24 bytes of a 64-bit siginfo_t.

        Raises:
            ValueError: fewer bytes.
        """
        if len(data) < _HEAD.size + _ADDRESS.size:
            raise ValueError(f"a siginfo_t has at least {_HEAD.size + _ADDRESS.size} bytes, not {len(data)}")
        number, _, code = _HEAD.unpack_from(data)
        is_fault = code > 0 and code != _SI_KERNEL and number in FAULT_SIGNALS
        return cls(
            number=number,
            code=code,
            address=_ADDRESS.unpack_from(data, _HEAD.size)[0] if is_fault else None,
            sender=_SENDER.unpack_from(data, _HEAD.size)[0] if code in _SENDER_CODES else None,
        )

    @property
    def name(self) -> str:
        """``SIGSEGV``."""
        return signal_name(self.number)

    @property
    def code_name(self) -> str:
        """``SEGV_MAPERR``."""
        return code_name(self.number, self.code)


@dataclass(frozen=True, slots=True)
class Dispositions:
    """What a task does with each signal, as /proc/TID/status shows it; bit n - 1 of a mask is signal n.

    Attributes:
        process: thread-group id.
        blocked: mask of this thread.
        ignored, caught: masks of the whole process.
        namespace_init: it is process 1 of a PID namespace (a container's service often is). The kernel drops
            every signal for it that has no handler, unless it raised the signal itself at an instruction
            (pid_namespaces(7)).
    """

    process: int
    blocked: int
    ignored: int
    caught: int
    namespace_init: bool

    @classmethod
    def parse(cls, status: str) -> Dispositions:
        """Read the text of /proc/TID/status.

        Raises:
            ValueError: a field that the kernel always writes is absent: the text was cut.
        """
        fields: dict[str, str] = {}
        for line in status.splitlines():
            key, _, value = line.partition(":")
            fields[key] = value
        try:
            return cls(
                process=int(fields["Tgid"]),
                blocked=int(fields["SigBlk"], 16),
                ignored=int(fields["SigIgn"], 16),
                caught=int(fields["SigCgt"], 16),
                # Absent in a kernel without PID namespaces, where only the machine's init is number 1.
                namespace_init=fields.get("NStgid", fields["Tgid"]).split()[-1:] == ["1"],
            )
        except KeyError as error:
            raise ValueError(f"no {error} in /proc/TID/status") from None

    def catches(self, number: int) -> bool:
        """A handler is installed."""
        return bool(self.caught >> (number - 1) & 1)

    def ignores(self, number: int) -> bool:
        """Set to SIG_IGN."""
        return bool(self.ignored >> (number - 1) & 1)

    def blocks(self, number: int) -> bool:
        """Blocked in this thread."""
        return bool(self.blocked >> (number - 1) & 1)


def is_crash(info: SignalInfo, task: Dispositions) -> bool:
    """The signal, now about to be delivered to the task, will end its process, and nobody asked for that.

    Blocked signals need no rule: they are not delivered, and a fault that is blocked or ignored is made
    deliverable and fatal by the kernel before the tracer hears of it.
    """
    if info.number not in CRASH_SIGNALS or task.catches(info.number) or task.ignores(info.number):
        return False
    if task.namespace_init:
        return info.number in FAULT_SIGNALS and info.code > 0
    return True


def comes_back(info: SignalInfo, *, namespace_init: bool = False) -> bool:
    """The signal, once withheld, is raised again when the task runs on; otherwise it has to be sent again.

    True for faults, where the processor stays before the instruction. False for what somebody sent, and for
    SIGTRAP (the breakpoint is passed already), SIGSYS (the call is skipped already), an early warning of a
    memory error, and limits. SIGSEGV with SI_KERNEL is either (a protection fault comes back, a broken signal
    frame does not): sending it again is right for both, but never ends process 1 of a namespace, so there it
    is left to come back.
    """
    if info.code <= 0 or info.number not in FAULT_SIGNALS:
        return False
    if info.number in (signal.SIGTRAP, signal.SIGSYS):
        return False
    if info.code == _SI_KERNEL:
        return namespace_init
    return not (info.number == signal.SIGBUS and info.code == _BUS_MCEERR_AO)
