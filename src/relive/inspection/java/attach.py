"""Asking a living JVM of a branch by its attach mechanism, as jcmd does, which need not be installed for it.

1. Where the JVM has no socket ``/tmp/.java_pidN`` yet, a file ``/tmp/.attach_pidN`` is made and it gets SIGQUIT: then it makes the
   socket. N is its own number in its PID namespace; the file belongs to its user.
2. Each question is a connection, on which five texts are sent, each with a zero byte behind it: ``1``, ``jcmd``, the command, and
   two empty ones. The answer is a line with a status, then text, to the end.

See ``src/hotspot/os/posix/attachListener_posix.cpp`` of OpenJDK. The branch's files are hostile input: paths are looked up within
its root, and nothing outside of it is opened.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import PurePath

from relive.errors import RestoreFailed, UsageError
from relive.kernel import procfs
from relive.kernel.openat2 import create_as_below, look_as_below

__all__ = ["JvmGone", "JvmLate", "ask_jvm", "is_java"]

_MOST = 64 << 20  # [bytes] of an answer
_PIECE = 1 << 20
_POLL = 0.02  # [s]
_LIBRARY = "libjvm.so"


class JvmLate(Exception):
    """It did not answer in time."""


class JvmGone(Exception):
    """It ended."""


def is_java(pid: int) -> bool:
    """A process runs a JVM."""
    return any(PurePath(one.path).name == _LIBRARY for one in procfs.read_maps(pid))


def ask_jvm(pid: int, command: str, until: float) -> str:
    """What a diagnostic command, such as ``Thread.print``, says; the process runs a JVM.

    Args:
        until: monotonic seconds.

    Raises:
        JvmLate, JvmGone. UsageError: it cannot be attached to. RestoreFailed: it refuses the command.
    """
    data = b"".join(part.encode() + b"\0" for part in ("1", "jcmd", command, "", ""))
    with _connected(pid, until) as sock, _told_as_late():
        sock.settimeout(max(_POLL, until - time.monotonic()))
        sock.sendall(data)
        answer = _whole(sock, until)
    status, _, text = answer.partition("\n")
    if status != "0":
        raise RestoreFailed(
            f"the JVM of process {procfs.innermost_pid(pid)} of the branch does not answer {command}",
            cause=text.strip()[:200] or f"status {status[:20]}",
            remedy="`relive restore` brings the commit back to look at it by hand",
        )
    return text


def _whole(sock: socket.socket, until: float) -> str:
    parts, size = [], 0
    while (data := sock.recv(_PIECE)) and size < _MOST:
        parts.append(data)
        size += len(data)
        if time.monotonic() > until:
            raise JvmLate
    return b"".join(parts).decode(errors="replace")


@contextlib.contextmanager
def _connected(pid: int, until: float) -> Iterator[socket.socket]:
    number = procfs.innermost_pid(pid)
    path = f"/tmp/.java_pid{number}"
    sock = _try_connect(pid, path)
    if sock is None:
        with _trigger(pid, f".attach_pid{number}"):
            while sock is None:
                if time.monotonic() > until:
                    raise JvmLate
                if not procfs.exists(pid):
                    raise JvmGone
                time.sleep(_POLL)
                sock = _try_connect(pid, path)
    with sock:
        yield sock


@contextlib.contextmanager
def _trigger(pid: int, name: str) -> Iterator[None]:
    """Have the JVM listen, for which it has until the block ends."""
    if not int(procfs.status_field(pid, "SigCgt") or "0", 16) >> (signal.SIGQUIT - 1) & 1:
        raise UsageError(
            f"the JVM of process {procfs.innermost_pid(pid)} cannot be attached to",
            cause="it does not catch SIGQUIT, as with -Xrs",
            remedy="`relive inspect REF` shows its threads, descriptors and memory",
        )
    if "-XX:+DisableAttachMechanism" in procfs.command_of(pid):
        raise UsageError(
            f"the JVM of process {procfs.innermost_pid(pid)} cannot be attached to",
            cause="it was started with -XX:+DisableAttachMechanism",
            remedy="`relive inspect REF` shows its threads, descriptors and memory",
        )
    with _root(pid) as root:
        owner, group = _owner(pid)
        create_as_below(root, f"/tmp/{name}", owner, group)
        os.kill(pid, signal.SIGQUIT)
        if procfs.is_stopped(pid):
            os.kill(pid, signal.SIGCONT)
        yield


def _owner(pid: int) -> tuple[int, int]:
    """Its effective user and group, which the file must belong to."""
    try:
        return tuple(int((procfs.status_field(pid, name) or "").split()[1]) for name in ("Uid", "Gid"))  # type: ignore[return-value]
    except IndexError as error:
        raise JvmGone from error


@contextlib.contextmanager
def _root(pid: int) -> Iterator[int]:
    try:
        descriptor = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise JvmGone from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _try_connect(pid: int, path: str) -> socket.socket | None:
    """A connection to the socket at a path of the process's root; None: nobody listens there."""
    with _root(pid) as root:
        try:
            place = look_as_below(root, path)
        except OSError:
            return None
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(f"/proc/self/fd/{place}")
    except OSError:
        sock.close()
        return None
    finally:
        os.close(place)
    return sock


@contextlib.contextmanager
def _told_as_late() -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise JvmLate from error
    except ConnectionError as error:
        raise JvmGone from error
