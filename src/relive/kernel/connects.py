"""Seeing who in a tree of processes wants to connect, whatever its language: connect(2), told by a seccomp filter.

A UNIX domain socket sends no packets, so nothing of the network shows that nobody was there. Each connect waits until the
supervisor has looked, and then goes on as ever (SECCOMP_USER_NOTIF_FLAG_CONTINUE). What the supervisor finds is told, never
enforced: the caller's memory may change between the two looks (seccomp_unotify(2)).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
from dataclasses import dataclass
from enum import Enum, auto

from relive.kernel.openat2 import look_as_below
from relive.kernel.unixdiag import unix_sockets

__all__ = ["CONNECT_FILTER", "Connect", "NameOwner", "answer", "look", "receive"]

_ARCHITECTURE_64 = 0xC000003E  # AUDIT_ARCH_X86_64
_CONNECT = (42, 362)  # syscall_64.tbl and syscall_32.tbl; a branch's other filter forbids socketcall(2)
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _ARCHITECTURE = 0, 4  # places in struct seccomp_data
_ASK, _ALLOW = 0x7FC00000, 0x7FFF0000  # SECCOMP_RET_USER_NOTIF, _ALLOW
CONNECT_FILTER = b"".join(
    struct.pack("<HBBI", *step)
    for step in (
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 0, 2, _ARCHITECTURE_64),
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 2, 3, _CONNECT[0]),
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 0, 1, _CONNECT[1]),
        (_RETURN, 0, 0, _ASK),
        (_RETURN, 0, 0, _ALLOW),
    )
)
"""struct sock_filter[] for ``kernel.seccomp.ask_supervisor``."""

_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV, _SEND
# struct seccomp_notif: id, pid, flags, then the call: number, architecture, instruction, six arguments.
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_RESPONSE = struct.Struct("=QqiI")
_CONTINUE = 1
_ADDRESS_MOST = 110  # [bytes] sizeof(struct sockaddr_un)


@dataclass(frozen=True, slots=True)
class Connect:
    """A connect(2) that waits. ``thread``: as the supervisor's PID namespace numbers it."""

    number: int
    thread: int
    address: int
    length: int


class NameOwner(Enum):
    """Whether somebody has bound the name that is connected to."""

    SERVED = auto()
    MISSING = auto()  # ENOENT, or ECONNREFUSED: a name that nobody has bound (any more)
    UNKNOWN = auto()


def receive(listener: int) -> Connect | None:
    """The next one, waiting for it; None where it has gone meanwhile. Raises OSError when the listener is closed."""
    buffer = bytearray(_NOTIFICATION.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, buffer)
    except FileNotFoundError:
        return None
    number, thread, _, _, _, _, _, address, length, _, _, _ = _NOTIFICATION.unpack(buffer)
    return Connect(number, thread, address, length & 0xFFFFFFFF)


def answer(listener: int, connect: Connect) -> None:
    """Let it go on; nothing happens where its thread has been killed meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        fcntl.ioctl(listener, _SEND, bytearray(_RESPONSE.pack(connect.number, 0, 0, _CONTINUE)))


def look(connect: Connect) -> tuple[str, NameOwner] | None:
    """The name of the UNIX domain socket, ``@`` before an abstract one, and who is there; None for other families.

    The calling thread must be in the network namespace of the one that waits: abstract names are its.
    """
    name = _name(connect)
    if name is None:
        return None
    if name.startswith(b"\0"):
        words = "@" + name[1:].decode(errors="backslashreplace")
        # An abstract name is one of sockets of its own kind only, so there is no other kind to ask with.
        is_bound = any(one.name == words for one in unix_sockets().values())
        return words, NameOwner.SERVED if is_bound else NameOwner.MISSING
    path = os.fsdecode(name)
    return path, _probe_path(connect.thread, path)


def _name(connect: Connect) -> bytes | None:
    length = min(connect.length, _ADDRESS_MOST)
    try:
        memory = os.open(f"/proc/{connect.thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        address = os.pread(memory, length, connect.address)
    except (OSError, OverflowError):
        return None
    finally:
        os.close(memory)
    if len(address) <= 2 or struct.unpack_from("=H", address)[0] != socket.AF_UNIX:
        return None
    name = address[2:]
    return name if name.startswith(b"\0") else name.partition(b"\0")[0]


def _probe_path(thread: int, path: str) -> NameOwner:
    """As the thread resolves it: in its root, or from its working directory, by links that are its own."""
    try:
        begin = f"/proc/{thread}/{'root' if path.startswith('/') else 'cwd'}"
        start = os.open(begin, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return NameOwner.UNKNOWN
    try:
        found = look_as_below(start, path)
    except (FileNotFoundError, NotADirectoryError):
        return NameOwner.MISSING
    except OSError:
        return NameOwner.UNKNOWN
    finally:
        os.close(start)
    try:
        return _probe(f"/proc/self/fd/{found}")
    finally:
        os.close(found)


def _probe(path: str) -> NameOwner:
    """Ask with a socket of datagrams: at a server of streams it gets no further than EPROTOTYPE, and makes no connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        try:
            sock.connect(path)
        except ConnectionRefusedError:
            return NameOwner.MISSING
        except OSError as error:
            return NameOwner.SERVED if error.errno == errno.EPROTOTYPE else NameOwner.UNKNOWN
    return NameOwner.SERVED
