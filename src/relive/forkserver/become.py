"""The child of a fork server on its way to be the process that was asked for, as if it had been executed."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import io
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TextIO

from relive.forkserver.attributes import apply_attributes
from relive.forkserver.entries import ENTRIES, entry
from relive.forkserver.request import HERE, ProcessRequest, receive_request, say
from relive.forkserver.successor import replace_asker
from relive.kernel.process_title import set_title

__all__ = ["reset_signals", "run_child"]

# Python ignores them from its start on.
_PYTHON_IGNORES = {signal.SIGPIPE, signal.SIGXFSZ}
_PATIENCE_S = 20.0  # more than any who asks has
_F_SETSIG = 10  # linux/fcntl.h; Python's module has it only from 3.12 on every build


class _Refused(Exception):
    """It cannot become what was asked for; who asks executes it instead."""


def run_child(connection: socket.socket) -> int:
    """Become what is asked for on this connection, run it, and return its exit status; in one thread, with no other descriptor.

    Raises:
        SystemExit, and whatever else ends what is run.
    """
    connection.settimeout(_PATIENCE_S)
    try:
        connection.send(HERE)
    except OSError:  # who asks has gone
        return 0
    received = receive_request(connection)
    if received is None:
        return 0
    request, directory, descriptors = received
    os.fchdir(directory)
    os.close(directory)  # another descriptor may be due to its number
    with _place(connection, descriptors, request.descriptors) as talks:
        talks.settimeout(_PATIENCE_S)
        try:
            _become(request)
        except (_Refused, OSError, ValueError) as error:
            with contextlib.suppress(OSError):
                say(talks, {"refused": str(error)})
            return 0
        if not _is_wanted(talks):
            return 0
        if request.ends_with_asker:
            replace_asker(talks.dup())
            _end_with(talks.dup())
    _attach_streams()
    gc.enable()
    return entry(request.module)() or 0


def _become(request: ProcessRequest) -> None:
    if request.module not in ENTRIES:
        raise _Refused(f"nobody runs {request.module} so")
    if request.new_session:
        os.setsid()
    _apply_environment(request.environment)
    words = [sys.executable, "-P", "-m", request.module, *request.options]
    set_title(list(map(os.fsencode, words)), os.environb)
    sys.orig_argv = words
    sys.argv = [sys.modules[ENTRIES[request.module]].__file__ or request.module, *request.options]
    _apply_signals(request)
    different = apply_attributes(request.attributes)
    if different:
        raise _Refused(f"different here: {', '.join(different)}")


def _is_wanted(talks: socket.socket) -> bool:
    """Say who this is; True only where who asked says "go on": one who has gone, or has lost patience, may have executed it."""
    handle = os.pidfd_open(os.getpid())
    try:
        say(talks, {"pid": os.getpid()}, handle)
        return talks.recv(1) != b""
    except OSError:
        return False
    finally:
        os.close(handle)


def _end_with(talks: socket.socket) -> None:
    """SIGKILL, which who asks cannot pass on, when the other end is closed; nothing else is said there any more."""
    descriptor = talks.detach()
    fcntl.fcntl(descriptor, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([descriptor], [], [], 0)[0]:  # closed before
        os.kill(os.getpid(), signal.SIGKILL)


def _apply_environment(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()


def reset_signals() -> None:
    """Every signal has its default again, as Python's start has it, and none is blocked."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP} - _PYTHON_IGNORES:
        with contextlib.suppress(OSError, ValueError):  # of the C library's own
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _apply_signals(request: ProcessRequest) -> None:
    for number in request.ignored:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, request.blocked)


def _place(connection: socket.socket, descriptors: Sequence[int], numbers: Sequence[int]) -> socket.socket:
    """Give descriptors the numbers that they shall have, over whatever has them; returns the connection, which made way."""
    above = max([*numbers, 2]) + 1
    talks = socket.socket(fileno=fcntl.fcntl(connection, fcntl.F_DUPFD_CLOEXEC, above))
    connection.close()
    aside = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, above) for one in descriptors]
    for one in descriptors:
        os.close(one)
    for one, number in zip(aside, numbers, strict=True):
        os.dup2(one, number)
        os.close(one)
    return talks


def _attach_streams() -> None:
    """Python's streams, as it makes them at its start for what the descriptors are now."""
    sys.stdin = sys.__stdin__ = _stream(0, "r", sys.stdin)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, "w", sys.stdout)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "w", sys.stderr)  # type: ignore[misc]


def _stream(number: int, mode: str, like: TextIO) -> io.TextIOWrapper:
    """``like``: the one before, which has the encoding, and the buffering where PYTHONUNBUFFERED decides on it."""
    assert isinstance(like, io.TextIOWrapper)
    through = mode == "w" and like.write_through
    return io.TextIOWrapper(
        open(number, f"{mode}b", buffering=0 if through else -1, closefd=False),
        encoding=like.encoding,
        errors=like.errors,
        newline="\n",
        line_buffering=not through and (number == 2 or os.isatty(number)),
        write_through=through,
    )
