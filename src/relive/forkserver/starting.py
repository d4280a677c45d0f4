"""Starting a module of Relive as a process of its own: forked from the fork server where that can be, else executed."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from relive.forkserver.attributes import settable_attributes
from relive.forkserver.rendezvous import connect, meeting_place, started_with
from relive.forkserver.request import MOST_DESCRIPTORS, Request, send_request, take
from relive.kernel import pidfds
from relive.kernel.children import Endable

__all__ = ["ForkedProcess", "StartedProcess", "fork_module", "module_command", "start_module"]

_ANSWER_LIMIT_S = 5.0  # for a child to be there; a server that was stopped never has one
_START_LIMIT_S = 10.0  # for a server to have imported all
_RESTORED = {signal.SIGPIPE, signal.SIGXFSZ}  # what Python ignores for itself and ``subprocess`` gives back
_UNKNOWN = -int(signal.SIGKILL)  # how a process ended whose server was killed


class StartedProcess(Endable, Protocol):
    """As ``subprocess.Popen``."""

    pid: int

    def poll(self) -> int | None:
        """The exit status, or None."""


class ForkedProcess:
    """A child of the fork server."""

    def __init__(self, pid: int, handle: int, connection: socket.socket) -> None:
        self.pid = pid
        self._handle, self._connection = handle, connection
        self._status: int | None = None

    @property
    def returncode(self) -> int | None:
        """As that of ``subprocess.Popen`` after ``poll``; whoever ended while its server was killed has the status of a kill."""
        return self.poll()

    def poll(self) -> int | None:
        """The exit status, or None."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit status; raises subprocess.TimeoutExpired."""
        if self._status is None:
            limit_ms = None if timeout is None else timeout * 1000
            if not _readable(self._handle, limit_ms):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            self._status = self._told()
            self._connection.close()
            os.close(self._handle)
        return self._status

    def _told(self) -> int:
        """By the server, which hears of the end as we do, and says so or ends itself."""
        message: dict[str, int] = {}
        with contextlib.suppress(OSError):
            self._connection.settimeout(_ANSWER_LIMIT_S)
            message, _ = take(self._connection)
        return os.waitstatus_to_exitcode(message["status"]) if "status" in message else _UNKNOWN

    def kill(self) -> None:
        """SIGKILL."""
        if self._status is None:
            pidfds.send_signal(self._handle, signal.SIGKILL)

    def __del__(self) -> None:
        if self._status is None:
            self._connection.close()
            os.close(self._handle)


def _readable(descriptor: int, limit_ms: float | None) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(limit_ms))


def module_command(module: str, options: Sequence[str]) -> list[str]:
    """The words that execute it."""
    return [sys.executable, "-P", "-m", module, *options]


def start_module(
    module: str,
    options: Sequence[str],
    *,
    streams: tuple[int, int, int],
    handed: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
    may_fork: bool,
    patient: bool = False,
) -> StartedProcess:
    """Start ``python -m MODULE OPTIONS`` as the leader of a session of its own.

    Args:
        streams: descriptors that become its standard input, output and error; ``subprocess.DEVNULL`` for none.
        handed: descriptors that it has under the same numbers.
        environment: the whole of it; None: this process's.
        may_fork: from the fork server. One is started where there is none.
        patient: wait for one that is started here.

    Raises:
        OSError: it can be neither forked nor executed.
    """
    if may_fork:
        forked = fork_module(
            module, options, streams=streams, handed=handed, environment=environment, patient=patient
        )
        if forked is not None:
            return forked
    return subprocess.Popen(
        module_command(module, options),
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        pass_fds=handed,
        env=environment,
        start_new_session=True,
    )


def fork_module(
    module: str,
    options: Sequence[str],
    *,
    streams: tuple[int, int, int],
    handed: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
    patient: bool = False,
) -> ForkedProcess | None:
    """As ``start_module``, from the fork server; None where that cannot be, and then nothing has been started."""
    variables = dict(os.environ if environment is None else environment)
    try:
        place = meeting_place(variables)
        connection = connect(place)
        if connection is None:
            is_ready = _start_server(place, variables, patient=patient)
            connection = connect(place) if is_ready else None
        if connection is None:
            return None
        request = Request(
            module=module,
            options=list(options),
            environment=variables,
            attributes=settable_attributes(),
            ignored=_ignored(),
            blocked=sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
            descriptors=[0, 1, 2, *handed],
            new_session=True,
        )
        return _ask(connection, request, streams, handed)
    except (OSError, ValueError):
        return None


def _ignored() -> list[int]:
    return [
        int(number)
        for number in sorted(signal.valid_signals() - _RESTORED)
        if signal.getsignal(number) is signal.SIG_IGN
    ]


def _ask(
    connection: socket.socket, request: Request, streams: Sequence[int], handed: Sequence[int]
) -> ForkedProcess | None:
    """Ask for a process; the connection becomes its, or is closed."""
    try:
        with contextlib.ExitStack() as opened:

            def held(descriptor: int) -> int:
                opened.callback(os.close, descriptor)
                return descriptor

            nowhere = held(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
            directory = held(os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            given = [nowhere if one == subprocess.DEVNULL else one for one in streams]
            if len(given) + len(handed) + 2 > MOST_DESCRIPTORS:
                return None
            connection.settimeout(_ANSWER_LIMIT_S)
            send_request(connection, request, directory, [*given, *handed])
            message, handle = take(connection)
            if handle is None or "pid" not in message:
                return None
            forked = ForkedProcess(message["pid"], handle, connection.dup())
            # From here on it runs, unless it has ended before.
            connection.send(b"\0")
            return forked
    finally:
        connection.close()


def _start_server(place: Path, environment: Mapping[str, str], *, patient: bool) -> bool:
    """Start a server, as one that belongs to nobody; True where it was waited for and listens."""
    reading, writing = os.pipe()
    try:
        subprocess.run(
            [sys.executable, "-P", "-m", "relive.forkserver", place, str(writing)],
            pass_fds=[writing],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=started_with(environment),
            check=False,
            timeout=_START_LIMIT_S,
        )
        os.close(writing)
        writing = -1
        return patient and _readable(reading, _START_LIMIT_S * 1000) and os.read(reading, 1) != b""
    except subprocess.TimeoutExpired:
        return False
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)
