"""Starting process 1 of a capsule, which sets its namespaces up in Python and then becomes ``relive-init``."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from relive.errors import CapsuleStartFailed, ReliveError
from relive.kernel.namespaces import Namespace, unshare

__all__ = ["FileTracking", "Front", "SpawnChannel", "become_init", "spawn_first_process", "standard_streams"]

_MESSAGE_MOST = 1 << 20  # [bytes]
_DESCRIPTORS_MOST = 1


class SpawnChannel:
    """The line over which process 1 reports, either values or an error."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.received: list[int] = []

    def send_values(self, values: dict[str, object], descriptors: Sequence[int] = ()) -> None:
        """Called in process 1."""
        self._send({"values": values}, descriptors)

    def send_error(self, error: BaseException) -> None:
        """Called in process 1; an error of Relive arrives as itself, others as CapsuleStartFailed."""
        if not isinstance(error, ReliveError):
            error = CapsuleStartFailed(
                "the namespaces could not be set up",
                cause=f"{type(error).__name__}: {error}",
                remedy="run `relive doctor`",
            )
        with contextlib.suppress(OSError):
            self._send({"error": error.as_json()})

    def _send(self, message: dict[str, object], descriptors: Sequence[int] = ()) -> None:
        socket.send_fds(self.theirs, [json.dumps(message).encode()], descriptors)

    def receive(self, deadline: float) -> dict[str, object] | None:
        """Wait for the report until a moment of the monotonic clock; None when it did not come.

        Descriptors that came with it are in ``received`` then, and the caller's.

        Raises:
            ReliveError: the error that process 1 reported; CapsuleStartFailed if it ended without a word.
        """
        readable, _, _ = select.select([self.ours], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            return None
        data, self.received, _, _ = socket.recv_fds(self.ours, _MESSAGE_MOST, _DESCRIPTORS_MOST)
        if not data:
            raise CapsuleStartFailed(
                "the namespaces could not be set up",
                cause="their first process was killed",
                remedy="for want of memory, mostly: `dmesg` tells, and --memory may be too little for a process to begin",
            )
        message = json.loads(data)
        if "error" in message:
            raise ReliveError.from_json(message["error"])
        values: dict[str, object] = message["values"]
        return values

    def wait_for_go(self) -> None:
        """Called in process 1, after a report, until ``go`` is called outside; the process ends when that never comes."""
        if not self.theirs.recv(1):
            os._exit(1)

    def go(self) -> None:
        """Let process 1 go on."""
        self.ours.send(b"g")

    def close(self) -> None:
        """Close both ends."""
        self.ours.close()
        self.theirs.close()


def spawn_first_process(namespaces: Namespace, work: Callable[[], NoReturn], channel: SpawnChannel) -> int:
    """Fork process 1 of new namespaces, which runs ``work`` and never returns; the caller gets its host pid.

    It is a grandchild: its parent leaves at once, so that it does not depend on the caller's life.
    Must be called from a process with one thread only: the child runs Python code after fork(2).

    Raises:
        OSError: the namespaces cannot be made.
    """
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        _middle(namespaces, work, channel, writing)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(middle, 0)
    if not text.isdigit():
        raise OSError(
            int(text.removeprefix("-") or 1),
            f"cannot make namespaces: {os.strerror(int(text.removeprefix('-') or 1))}",
        )
    return int(text)


def _middle(
    namespaces: Namespace, work: Callable[[], NoReturn], channel: SpawnChannel, writing: int
) -> NoReturn:
    try:
        os.setsid()
        unshare(namespaces)
        first = os.fork()
    except OSError as error:
        os.write(writing, f"-{error.errno}".encode())
        os._exit(1)
    if first:
        os.write(writing, str(first).encode())
        os._exit(0)
    os.close(writing)
    try:
        channel.ours.close()
        work()
    except BaseException as error:
        channel.send_error(error)
    os._exit(1)


def standard_streams(stdout: Path | None, stderr: Path | None) -> None:
    """Point descriptors 0, 1 and 2 at /dev/null and the given files, opened here and now.

    They must be opened in the mount namespace in which the process lives, or CRIU cannot find them again.
    """
    for number, path in ((0, None), (1, stdout), (2, stderr)):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = os.open(path or "/dev/null", flags, 0o644)
        os.dup2(descriptor, number)
        if descriptor != number:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class FileTracking:
    """How process 1 follows which files the service changes.

    Attributes:
        listener: of the service's seccomp filter (see ``kernel.seccomp.ask_supervisor``).
        directory: a descriptor of where that is written down (``LifePaths.files``).
        home: nothing below it is followed.
        limit: bytes; of a larger file no copy is made while the service waits.
    """

    listener: int
    directory: int
    home: Path
    limit: int


@dataclass(frozen=True, slots=True)
class Front:
    """The port at which clients reach the service, as process 1 keeps it (``native/init/front.h``).

    Attributes:
        listener: a listening TCP socket.
        control: a listening unix socket, where a recording proxy gets ``listener``.
        upstream: numeric address and port where the service listens.
    """

    listener: socket.socket
    control: socket.socket
    upstream: tuple[str, int]

    def close(self) -> None:
        """Close this process's ends."""
        self.listener.close()
        self.control.close()


def become_init(
    program: Path,
    status: int,
    main: int,
    lifeline: int | None = None,
    following: FileTracking | None = None,
    owner: int | None = None,
    front: Front | None = None,
) -> NoReturn:
    """Turn the calling process 1 into ``relive-init``, with only 0, 1, 2 and what is given here open.

    Args:
        status: where it writes how ``main`` ended.
        lifeline: a socket (SOCK_SEQPACKET) by whose hanging up everything in its PID namespace ends.
        owner: the same, for a service that ends with the command that started it.
    """
    lines = {"--lifeline": lifeline, "--owner": owner}
    kept = [status, *(line for line in lines.values() if line is not None)]
    if following is not None:
        kept += [following.listener, following.directory]
    if front is not None:
        kept += [front.listener.fileno(), front.control.fileno()]
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
    for descriptor in kept:
        os.set_inheritable(descriptor, True)
    options = [word for name, line in lines.items() if line is not None for word in (name, str(line))]
    if following is not None:
        options += ["--track", str(following.listener), str(following.directory)]
        options += [str(following.home), str(following.limit)]
    if front is not None:
        address, port = front.upstream
        options += ["--front", str(front.listener.fileno()), str(front.control.fileno()), address, str(port)]
    os.execv(program, [program.name, *options, str(status), str(main)])
