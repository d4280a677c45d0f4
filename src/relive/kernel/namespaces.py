"""Namespaces: leaving and entering them (unshare(2), setns(2), namespaces(7))."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from enum import IntFlag
from pathlib import Path
from typing import TypeVar

from relive.kernel import libc

__all__ = [
    "Namespace",
    "enter",
    "enter_file",
    "enter_namespaces",
    "holds_ipc",
    "in_network",
    "in_network_of",
    "in_new_mounts",
    "in_new_network",
    "namespace_id",
    "unshare",
]

Result = TypeVar("Result")


class Namespace(IntFlag):
    """CLONE_NEW* flags of sched.h."""

    MOUNT = 0x00020000
    CGROUP = 0x02000000
    UTS = 0x04000000
    IPC = 0x08000000
    PID = 0x20000000
    NETWORK = 0x40000000


_FILES = {
    Namespace.MOUNT: "mnt",
    Namespace.CGROUP: "cgroup",
    Namespace.UTS: "uts",
    Namespace.IPC: "ipc",
    Namespace.PID: "pid",
    Namespace.NETWORK: "net",
}


def unshare(flags: Namespace) -> None:
    """Leave the caller's namespaces of the given kinds; PID takes effect for children only.

    Raises:
        OSError: EPERM without CAP_SYS_ADMIN; EINVAL for MOUNT in a process that shares its file-system state.
    """
    libc.call("unshare", int(flags))


def enter(pid: int, kind: Namespace) -> None:
    """Enter one namespace of another process; for PID only later children are in it.

    Raises:
        OSError: the process is gone (ENOENT) or the caller has no right to (EPERM).
    """
    enter_file(f"/proc/{pid}/ns/{_FILES[kind]}", kind)


def enter_namespaces(pid: int, kinds: Namespace) -> None:
    """As ``enter``, without /proc, all of them or none (setns(2) with a pidfd, Linux 5.8)."""
    descriptor = os.pidfd_open(pid)
    try:
        libc.call("setns", descriptor, int(kinds))
    finally:
        os.close(descriptor)


def enter_file(name: str, kind: Namespace) -> None:
    """Enter the namespace that a file names, such as one that ``ip netns`` made; raises OSError as ``enter`` does."""
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc.call("setns", descriptor, int(kind))
    finally:
        os.close(descriptor)


def namespace_id(pid: int | str, kind: Namespace) -> int:
    """The inode number that names a namespace; equal numbers mean the same namespace."""
    return os.stat(f"/proc/{pid}/ns/{_FILES[kind]}").st_ino


def in_network_of(pid: int, action: Callable[[], Result]) -> Result:
    """Run ``action`` in the network namespace of ``pid`` and return what it returns.

    A socket stays in the namespace in which it was made, so the action's sockets can be used afterwards by any thread.

    Raises:
        OSError: the process is gone.
        Exception: whatever ``action`` raises.
    """
    return _within(pid, Namespace.NETWORK, action)


def in_network(descriptor: int, action: Callable[[], Result]) -> Result:
    """As ``in_network_of``, in the namespace that ``descriptor``, of a ``/proc/PID/ns/net``, keeps alive."""
    return _in_thread(
        "within-network", lambda: libc.call("setns", descriptor, int(Namespace.NETWORK)), action
    )


def in_new_network(action: Callable[[], Result]) -> Result:
    """As ``in_network_of``, in a new namespace that has loopback only; it lives on where the action keeps it."""
    return _in_thread("new-network", lambda: unshare(Namespace.NETWORK), action)


def in_new_mounts(action: Callable[[], Result]) -> Result:
    """As ``in_network_of``, in a mount namespace that is a copy of the caller's; what is mounted there is gone afterwards."""
    return _in_thread("new-mounts", lambda: unshare(Namespace.MOUNT), action)


def holds_ipc(pid: int) -> bool:
    """There are System V shared memory segments, semaphores or message queues in the IPC namespace of ``pid``.

    Raises:
        OSError: the process is gone.
    """

    def look() -> bool:
        # Each file has a line of headings (proc_sysvipc(5)); what it lists is what the thread that opens it may see.
        return any(
            Path(f"/proc/sysvipc/{name}").read_text().count("\n") > 1 for name in ("shm", "sem", "msg")
        )

    return _within(pid, Namespace.IPC, look)


def _within(pid: int, kind: Namespace, action: Callable[[], Result]) -> Result:
    return _in_thread(f"within-{pid}", lambda: enter(pid, kind), action)


def _in_thread(name: str, go: Callable[[], object], action: Callable[[], Result]) -> Result:
    """Run ``action`` in a thread of its own: a namespace is a property of a thread and cannot always be left again."""
    outcome: list[Result] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            go()
            outcome.append(action())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=work, name=name)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]
