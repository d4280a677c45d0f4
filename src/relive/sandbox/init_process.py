"""Process 1 of a branch, from the moment its namespaces exist: it waits for orders while they are furnished around it.

The program is ``relive-init --start``, then ``--await``; its source specifies the orders. It is a native program, since forking a
process as large as this one, twice, costs more than all the mounts of a branch.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import signal
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from relive.kernel.children import StartedProcess
from relive.sandbox.limits import Room

__all__ = ["FirstProcess"]

_ORDERS_FD = 3
_ANSWER_WITHIN = 10.0  # [s]
_ANSWER_MOST, _STARTED_MOST = 16, 32  # [bytes]
_RIGHTS_MOST = 250  # one message carries at most SCM_MAX_FD = 253 descriptors


class FirstProcess:
    """Process 1 of a new PID namespace. It ends, with the namespace, when this is closed before ``become``.

    It is made by a helper (``relive-init --start``), which can have processes born in control groups; the helper ends when this is
    closed. Every order raises OSError when process 1 refuses it (errno is what stood in its way) or is gone (ECONNRESET).
    """

    def __init__(self, program: Path, groups: Iterable[Path] = ()) -> None:
        """Start it, in the other namespaces of the calling thread.

        Args:
            groups: directories of control groups in which it shall be, where the kernel lets a process be born in them.

        Raises:
            OSError: it cannot be started.
        """
        self._program = program
        self._is_killed = False
        with contextlib.ExitStack() as stack:
            self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.callback(self._orders.close)
            self._orders.settimeout(_ANSWER_WITHIN)
            with theirs:
                self._starter = _Starter(program)
                stack.callback(self._starter.close)
                names = b"".join(os.fsencode(group) + b"\0" for group in groups)
                self.pid = self._starter.order(b"b" + names, [theirs.fileno()])
            stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._starter.close()
        self._orders.close()
        if self._is_killed:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)

    def execute(
        self, command: Sequence[str], environment: Mapping[str, str], keep: Sequence[int]
    ) -> StartedProcess:
        """A program in its PID namespace and cgroup namespace, and in the groups in which it was born; a child of the caller.

        Args:
            keep: descriptors that it has under the same numbers.

        Raises:
            OSError: it cannot be executed.
        """
        words = [*command, "", *(f"{name}={value}" for name, value in environment.items())]
        text = " ".join(map(str, keep)).encode() + b"".join(b"\0" + os.fsencode(word) for word in words)
        return StartedProcess(self._starter.order(b"e" + text + b"\0", keep))

    def set_last_number(self, number: int) -> None:
        """Its next process gets the number after this one."""
        self._order(f"n{number}".encode())

    def mount_proc(self, point: Path) -> None:
        """Mount /proc of its PID namespace."""
        self._order(b"p" + os.fsencode(point))

    def own_groups(self) -> None:
        """Give it a cgroup namespace whose roots are the control groups that it is in."""
        self._order(b"g")

    def give_up_capabilities(self) -> None:
        """Make it harmless, before anything runs that might take it over; no numbers, mounts and namespaces afterwards."""
        self._order(b"c")

    def hold(self, descriptors: Sequence[int]) -> None:
        """Give it descriptors, in this order; the caller keeps its own."""
        for start in range(0, len(descriptors), _RIGHTS_MOST):
            part = array.array("i", descriptors[start : start + _RIGHTS_MOST])
            self._order(b"d", [(socket.SOL_SOCKET, socket.SCM_RIGHTS, part)])

    def hold_lifeline(self, descriptor: int) -> None:
        """Give it the socket whose hanging up ends everything in its namespace; the caller keeps its own."""
        self._order(b"l", [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))])

    def hold_owner(self, descriptor: int) -> None:
        """Give it the owner's line, whose hanging up ends everything once it is the lasting process 1; the caller keeps its own."""
        self._order(b"o", [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))])

    def leave_room(self, room: Room) -> None:
        """End everything once it is the lasting process 1 and the disk of the file for the end of ``main`` has less room."""
        self._order(f"r{room.bytes} {room.files}".encode())

    def become(self, main: int, kept: int) -> None:
        """Let it become the lasting process 1, from the program's file in its own file system.

        The descriptors it holds are, in order: the file for the end of ``main``; ``kept`` that are only kept open; pairs
        of something to listen to and the log for what comes. ``main`` must be its child by now.
        """
        self._orders.send(f"x{main} {kept} {self._program}".encode())
        # The new program has not got the socket: no answer is the good one.
        answer = self._orders.recv(_ANSWER_MOST)
        if answer:
            raise _refusal("x", int(answer))

    def kill(self) -> None:
        """End it and all that lives in its namespaces; it is reaped when this is closed.

        Whoever has children there must reap them first: the kernel ends process 1 after all others are gone
        (zap_pid_ns_processes).
        """
        self._is_killed = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def _order(self, text: bytes, rights: Sequence[tuple[int, int, array.array[int]]] = ()) -> None:
        try:
            self._orders.sendmsg([text], rights)
            answer = self._orders.recv(_ANSWER_MOST)
        except BrokenPipeError:
            answer = b""
        if not answer:
            raise ConnectionResetError(
                f"process 1 of the branch ended before order {chr(text[0])!r} was done"
            )
        if int(answer):
            raise _refusal(chr(text[0]), int(answer))


class _Starter:
    """The helper; see ``relive-init --start``."""

    def __init__(self, program: Path) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._orders.settimeout(_ANSWER_WITHIN)
        streams = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in range(3)]
        try:
            with theirs:
                self._pid = os.posix_spawn(
                    program,
                    [program.name, "--start", str(_ORDERS_FD)],
                    {},
                    file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), _ORDERS_FD), *streams],
                    setsid=True,
                )
        except BaseException:
            self._orders.close()
            raise

    def order(self, text: bytes, descriptors: Sequence[int]) -> int:
        """The pid of what was started; raises OSError where it was not."""
        try:
            socket.send_fds(self._orders, [text], descriptors)
            answer = self._orders.recv(_STARTED_MOST)
        except BrokenPipeError:
            answer = b""
        pid, failure = map(int, (answer or b"%d 0" % -errno.ESRCH).split())
        if failure:
            os.waitpid(pid, 0)
        if failure or pid < 0:
            number = failure or -pid
            raise OSError(number, f"the starter, order {chr(text[0])!r}: {os.strerror(number)}")
        return pid

    def close(self) -> None:
        self._orders.close()
        if self._pid:
            os.waitpid(self._pid, 0)
            self._pid = 0


def _refusal(order: str, number: int) -> OSError:
    return OSError(number, f"process 1 of the branch, order {order!r}: {os.strerror(number)}")
