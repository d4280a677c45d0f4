"""Starting a module of Relive as a process of its own: forked from the fork server where that can be, else executed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from relive.forkserver.asking import Fork, ask, readable
from relive.forkserver.rendezvous import connect, meeting_place, started_with
from relive.kernel.children import Endable

__all__ = ["ForkedProcess", "StartedProcess", "fork_module", "module_command", "start_module"]

_START_LIMIT_S = 10.0  # for a server to have imported all


class StartedProcess(Endable, Protocol):
    """As ``subprocess.Popen``."""

    pid: int

    def poll(self) -> int | None:
        """The exit status, or None."""

    def terminate(self) -> None:
        """SIGTERM."""


class ForkedProcess:
    """A child of the fork server, as ``subprocess.Popen`` has its own."""

    def __init__(self, fork: Fork) -> None:
        self.pid = fork.pid
        self._fork = fork

    @property
    def returncode(self) -> int | None:
        """As that of ``subprocess.Popen`` after ``poll``; whoever ended while its server was killed has the status of a kill."""
        return self.poll()

    def poll(self) -> int | None:
        """The exit status, or None."""
        status = self._fork.status()
        if status is not None:
            self._fork.close()
        return status

    def wait(self, timeout: float | None = None) -> int:
        """The exit status; raises subprocess.TimeoutExpired."""
        status = self.poll()
        if status is None:
            readable(self._fork.fileno(), None if timeout is None else timeout * 1000)
            status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return status

    def terminate(self) -> None:
        """SIGTERM."""
        self._fork.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self._fork.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        self._fork.close()


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
        with Path(os.devnull).open("r+b", buffering=0) as nowhere:
            fork = ask(
                connection,
                module,
                options,
                environment=variables,
                streams=[nowhere.fileno() if one == subprocess.DEVNULL else one for one in streams],
                handed=handed,
            )
        return ForkedProcess(fork) if fork is not None else None
    except (OSError, ValueError):
        return None


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
        return patient and readable(reading, _START_LIMIT_S * 1000) and os.read(reading, 1) != b""
    except subprocess.TimeoutExpired:
        return False
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)
