"""Asking a fork server for a process, and what is known of that. It imports little: commands wait for it."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress

from relive.forkserver.attributes import settable_attributes
from relive.forkserver.request import HERE, MOST_DESCRIPTORS, ProcessRequest, receive_message, send_request
from relive.forkserver.successor import Successor

__all__ = ["ANSWER_LIMIT_S", "UNKNOWN", "Fork", "ask", "readable"]

ANSWER_LIMIT_S = 5.0  # for a child to be there; a server that was stopped never has one
UNKNOWN = -int(signal.SIGKILL)  # how a process ended whose server was killed with it
_RESTORED = {signal.SIGPIPE, signal.SIGXFSZ}  # what Python ignores for itself and ``subprocess`` gives back
# Field of proc_pid_stat(5), from 0; of them behind the name, which may hold blanks, the first is 2.
_EXIT_CODE = 51


class Fork:
    """A child of the fork server, which is held until ``close``.

    Attributes:
        successor: what who asked for it shall be replaced by, once it has ended without a failure; mostly None.
    """

    def __init__(self, pid: int, handle: int, connection: socket.socket) -> None:
        self.pid = pid
        self._handle, self._connection = handle, connection
        self._status: int | None = None
        self.successor: Successor | None = None
        connection.setblocking(False)

    def fileno(self) -> int:
        """Can be read (poll(2)) when it has ended."""
        return self._handle

    def status(self) -> int | None:
        """As ``subprocess.Popen.poll``, at once; ``UNKNOWN`` where nobody is left who knows."""
        if self._status is None and readable(self._handle, 0):
            self._status = (
                os.waitstatus_to_exitcode(raw) if (raw := self._raw_status()) is not None else UNKNOWN
            )
        return self._status

    def _raw_status(self) -> int | None:
        reported = self._reported_status()
        if reported is not None:
            return reported
        left = self._left()
        # None: it was reaped meanwhile, before which the server has told, or by another, as the server is no more.
        return left if left is not None else self._reported_status()

    def _reported_status(self) -> int | None:
        """By the server; before it perhaps by the process itself."""
        with suppress(OSError, ValueError):
            message, file = receive_message(self._connection)
            if file is not None:
                self.successor = Successor.read(file)
                message, _ = receive_message(self._connection)
            return int(message["status"]) if "status" in message else None
        return None

    def _left(self) -> int | None:
        """In the process table, where a server that is stopped leaves it."""
        try:
            with open(f"/proc/{self.pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib takes long to import
                fields = file.read().rpartition(b")")[2].split()
            # What was read was of no other: its number is still its own.
            signal.pidfd_send_signal(self._handle, 0)
            return int(fields[_EXIT_CODE - 2]) if fields[0] == b"Z" else None
        except (OSError, IndexError, ValueError):
            return None

    def send_signal(self, number: int) -> None:
        """Nothing happens where it has ended."""
        if self._status is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def close(self) -> None:
        """Let go of it; one that ``ends_with_asker`` is killed. May be called again."""
        self._connection.close()
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def readable(descriptor: int, limit_ms: float | None) -> bool:
    """Something can be read there, within so many milliseconds; None: whenever."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(limit_ms))


def ask(
    connection: socket.socket,
    module: str,
    options: Sequence[str],
    *,
    environment: Mapping[str, str],
    streams: Sequence[int],
    handed: Sequence[int] = (),
    ends_with_asker: bool = False,
) -> Fork | None:
    """Ask for ``python -m MODULE OPTIONS``; None where that cannot be so in a fork, and then nothing has been started.

    Args:
        connection: to the server; closed, or the process's.
        streams: descriptors that become its standard input, output and error.
        handed: descriptors that it has under the same numbers.

    Raises:
        OSError, ValueError: as None.
    """
    request = ProcessRequest(
        module=module,
        options=list(options),
        environment=environment,
        attributes=settable_attributes(),
        ignored=_ignored(),
        blocked=sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
        descriptors=[0, 1, 2, *handed],
        new_session=True,
        ends_with_asker=ends_with_asker,
    )
    with connection, ExitStack() as opened:
        directory = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        opened.callback(os.close, directory)
        if len(streams) + len(handed) + 2 > MOST_DESCRIPTORS:
            return None
        connection.settimeout(ANSWER_LIMIT_S)
        if connection.recv(1) != HERE:
            return None
        send_request(connection, request, directory, [*streams, *handed])
        message, handle = receive_message(connection)
        if handle is None or "pid" not in message:
            return None
        with ExitStack() as refused:
            fork = Fork(message["pid"], handle, connection.dup())
            refused.callback(fork.close)
            connection.send(b"\0")  # from here on it runs, unless it has ended before
            refused.pop_all()
        return fork


def _ignored() -> list[int]:
    return [
        int(number)
        for number in sorted(signal.valid_signals() - _RESTORED)
        if signal.getsignal(number) is signal.SIG_IGN
    ]
