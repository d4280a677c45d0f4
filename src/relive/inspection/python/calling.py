"""Calling a function in another process: a thread of it is stopped, set onto the function, and stopped again when that returns.

Only for processes of branches that are thrown away: one whose call does not end is killed. The other threads run on meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

from relive.kernel import procfs, ptrace

__all__ = ["CallDied", "CallLate", "StoppedThread"]

_RED_ZONE = 256  # [bytes] below the stack pointer that a function without a frame may use, and a little more
_NOWHERE = 0  # where calls return to: nothing is mapped there, so the kernel stops the thread with SIGSEGV
_SOON = 0.0003  # [s] in which most calls return: the processor is given away meanwhile, since a sleep takes longer than the call
_POLL = 0.0005, 0.01  # [s] first and longest
_NO_CALL = (1 << 64) - 1  # as orig_rax: the kernel makes no interrupted system call again
_DIRECTION = 1 << 10  # of eflags: the ABI wants it clear at calls
_ALL = 0x40000000  # __WALL: threads too
_DEADLY = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT})


class CallLate(Exception):
    """The time was over."""


class CallDied(Exception):
    """The process died in the call, or was about to; ``signal``: of what, 0 where it is just gone."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


@dataclass(slots=True)
class StoppedThread:
    """A thread that this thread traces and has stopped; a context manager, at whose end it is let go.

    Args:
        until: monotonic seconds; what lasts longer raises CallLate.
    """

    pid: int
    tid: int
    until: float
    _saved: ptrace.Registers = field(init=False)
    _memory: int = field(init=False, default=-1)

    def __enter__(self) -> Self:
        try:
            ptrace.seize(self.tid, 0)
        except (ProcessLookupError, PermissionError) as error:  # of a zombie, the latter
            raise CallDied(0) from error
        try:
            with _alive():
                ptrace.interrupt(self.tid)
                self.await_signal(None)
                self._saved = ptrace.registers(self.tid)
                self._memory = os.open(f"/proc/{self.pid}/mem", os.O_RDWR | os.O_CLOEXEC)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        if self._memory >= 0:
            os.close(self._memory)
        try:
            ptrace.set_registers(self.tid, self._saved)
            ptrace.detach(self.tid)
        except ProcessLookupError:
            self._end()  # it is still within a call, or gone

    def _end(self) -> None:
        """Kill the process. Who traces a thread must take its end away, else its PID namespace cannot end."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitid(os.P_PID, self.tid, os.WEXITED | _ALL)

    def call(self, function: int, *arguments: int) -> int:
        """Call a function of up to four whole numbers; returns what is in rax then.

        Raises:
            CallLate, CallDied.
        """
        wanted = ptrace.Registers.from_buffer_copy(self._saved)
        stack = ((self._saved.rsp - _RED_ZONE) & ~0xF) - 8
        self.write(stack, _NOWHERE.to_bytes(8, "little"))
        wanted.rsp, wanted.rip, wanted.rax, wanted.orig_rax = stack, function, 0, _NO_CALL
        wanted.eflags &= ~_DIRECTION
        for name, value in zip(("rdi", "rsi", "rdx", "rcx"), arguments, strict=False):
            setattr(wanted, name, value)
        with _alive():
            ptrace.set_registers(self.tid, wanted)
            ptrace.resume(self.tid)
            self.await_signal(signal.SIGSEGV)
            found = ptrace.registers(self.tid)
        if found.rip != _NOWHERE:
            raise CallDied(signal.SIGSEGV)
        return int(found.rax)

    def go_on(self, number: int) -> None:
        """Run as before the first call until it gets a signal of that number, and call from there on; raises as ``call``."""
        with _alive():
            ptrace.set_registers(self.tid, self._saved)
            ptrace.resume(self.tid)
            self.await_signal(number)
            self._saved = ptrace.registers(self.tid)

    def far_below(self, data: bytes) -> int:
        """Put a few bytes to the far end of its stack, where running on does not soon come; returns where."""
        place = next(
            one.start for one in procfs.read_maps(self.pid) if one.start <= self._saved.rsp < one.end
        )
        self.write(place, data)
        return place

    def write(self, address: int, data: bytes) -> None:
        """Put bytes into its memory; raises CallDied where there is none."""
        try:
            os.pwrite(self._memory, data, address)
        except OSError as error:
            raise CallDied(0) from error

    def read(self, address: int, size: int) -> bytes:
        """Bytes of its memory; raises CallDied where there is none."""
        parts, at = [], address
        while at < address + size:
            try:
                data = os.pread(self._memory, min(size - (at - address), 1 << 20), at)
            except OSError as error:
                raise CallDied(0) from error
            if not data:
                raise CallDied(0)
            parts.append(data)
            at += len(data)
        return b"".join(parts)

    def await_signal(self, wanted: int | None) -> None:
        """Wait until it is stopped by a signal; others it is given on the way, but deadly ones. None: until it is stopped at all.

        Raises:
            CallLate, CallDied.
        """
        pause, soon = _POLL[0], time.monotonic() + _SOON
        while True:
            found = os.waitid(os.P_PID, self.tid, os.WEXITED | os.WSTOPPED | os.WNOHANG | _ALL)
            if found is None:
                now = time.monotonic()
                if now > self.until:
                    raise CallLate
                if now < soon:
                    os.sched_yield()
                    continue
                time.sleep(pause)
                pause = min(2 * pause, _POLL[1])
                continue
            if found.si_code in (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED):
                raise CallDied(found.si_status if found.si_code != os.CLD_EXITED else 0)
            number, event = found.si_status & 0xFF, found.si_status >> 8
            if wanted is None or (number == wanted and not event):
                return
            if number in _DEADLY and not event:
                raise CallDied(number)
            ptrace.resume(self.tid, 0 if event else number)
            pause = _POLL[0]


@contextlib.contextmanager
def _alive() -> Iterator[None]:
    """What the kernel says of a thread that was killed while it stood still, as CallDied."""
    try:
        yield
    except ProcessLookupError as error:
        raise CallDied(0) from error
