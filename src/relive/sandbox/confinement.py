"""Proof that restored processes are confined: what they really are and hold, looked at just before they run.

What a commit may say is judged before CRIU is asked (``images.validation``). But names lead through links, and CRIU follows them
with root's rights. So here nothing that the commit says counts, only what the kernel shows. Paths are those of the builder's
thread: its /proc is that of the branch's PID namespace.
"""

from __future__ import annotations

import ctypes
import os
import re
import stat
import struct
from collections.abc import Iterable, Mapping

from relive.errors import RestoreFailed
from relive.images.validation import is_of_the_machine
from relive.kernel import libc, procfs
from relive.kernel.capabilities import WITHHELD
from relive.kernel.mounts import Mount, read_mounts

__all__ = ["host_namespaces", "prove_confined"]

_WITHHELD = sum(1 << number for number in WITHHELD.values())
_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_FIELDS = re.compile(rf"^(State|Seccomp|{'|'.join(_SETS)}):\t(.*)$".encode(), re.MULTILINE)
_NO_FILTER = "0"
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
# CRIU brings System V objects back in an IPC namespace of their own.
_OF_BRANCH = (
    "cgroup",
    "mnt",
    "net",
    "pid",
    "user",
)
_OF_CONTAINER = ("net", "user")  # the others are its own, within the branch's
# Memory devices, terminals, and the ends of pseudo-terminals.
_DEVICES = {(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)}
_TERMINALS = range(136, 144)
_OF_THE_KERNEL = frozenset(
    "sysfs cgroup cgroup2 debugfs tracefs securityfs pstore bpf configfs efivarfs binfmt_misc fusectl devtmpfs".split()
)
_STATX_MODE, _STATX_MNT_ID, _STATX_SIZE, _AT_CWD = 0x3, 0x1000, 256, -100


def host_namespaces() -> dict[str, str]:
    """Those of the calling process, by their kinds, as /proc shows them; called before its thread leaves any."""
    return {name: os.readlink(f"/proc/self/ns/{name}") for name in _NAMESPACES}


def prove_confined(root: int, *, host: Mapping[str, str], is_container: bool) -> None:
    """Look at a restored tree that does not run yet, and at the mounts that it sees.

    Args:
        root: pid of its root in the branch's PID namespace, of which process 1 shows what is right.
        host: the namespaces of the host, of which it is in none but that of users.
        is_container: it has namespaces of its own within those of the branch.

    Raises:
        RestoreFailed: one of them could do more than a branch may.
    """
    named = _OF_CONTAINER if is_container else _OF_BRANCH
    wanted = {name: os.readlink(f"/proc/1/ns/{name}") for name in named}
    groups = procfs.read_file("/proc/1/cgroup")
    known = {entry.identifier for entry in read_mounts(root)} if not is_container else None
    for pid in procfs.tree_of(root):
        # A process whose first thread has ended shows what it has by its others only; a dead one has nothing.
        threads = []
        for place in (f"/proc/{pid}/task/{thread}" for thread in procfs.threads_of(pid)):
            fields = _status(place)
            if fields["State"][0] in "ZX":
                continue
            threads.append(place)
            _check_rights(pid, fields)
            _check_namespaces(pid, place, wanted, host)
            if procfs.read_file(f"{place}/cgroup") != groups:
                raise _loose(pid, "is in other control groups than the branch")
        if threads:
            _check_files(pid, threads[0], known)
    _check_mounts(read_mounts(root))


def _status(place: str) -> dict[str, str]:
    """The fields that count; the kernel writes no newline of a name as one."""
    text = procfs.read_file(f"{place}/status")
    return {name.decode(): value.decode() for name, value in _FIELDS.findall(text)}


def _check_namespaces(pid: int, place: str, wanted: Mapping[str, str], host: Mapping[str, str]) -> None:
    for name in _NAMESPACES:
        found = os.readlink(f"{place}/ns/{name}")
        if name in wanted and found != wanted[name]:
            raise _loose(pid, f"is in another {name} namespace than the branch")
        if name not in wanted and found == host[name]:
            raise _loose(pid, f"is in the {name} namespace of the host")


def _check_rights(pid: int, fields: Mapping[str, str]) -> None:
    for name in _SETS:
        if int(fields[name], 16) & _WITHHELD:
            raise _loose(pid, f"has capabilities that a branch has not ({name} {fields[name]})")
    if fields["Seccomp"].strip() == _NO_FILTER:
        raise _loose(pid, "is under no filter of system calls")


def _check_files(pid: int, place: str, known: set[int] | None) -> None:
    """``known``: the mounts of the branch; None: those of a container, which has some that it cannot see."""
    for path in _files(place):
        try:
            target = os.readlink(path)
        except FileNotFoundError:  # a kernel thread's, or one that has just been closed
            continue
        if not target.startswith("/") or target.startswith("/memfd:"):
            continue  # a socket, a pipe, memory
        mode, device, mounted = _facts(path)
        if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not _is_harmless(device)):
            raise _loose(pid, f"has the device {target} open")
        if is_of_the_machine(target, writable=_is_writable(path)):
            raise _loose(pid, f"has {target} open")
        if known is not None and mounted not in known and not target.endswith(" (deleted)"):
            raise _loose(pid, f"has {target} open, which is none of the branch's files")


def _files(place: str) -> Iterable[str]:
    for name in ("cwd", "root"):
        yield f"{place}/{name}"
    for number in os.listdir(f"{place}/fd"):
        yield f"{place}/fd/{number}"


def _facts(path: str) -> tuple[int, tuple[int, int], int]:
    """Mode, device number and number of the mount of what a link of /proc leads to (statx(2))."""
    buffer = ctypes.create_string_buffer(_STATX_SIZE)
    libc.call("statx", _AT_CWD, path.encode(), 0, _STATX_MODE | _STATX_MNT_ID, buffer)
    (mode,) = struct.unpack_from("<H", buffer, 0x1C)
    major, minor = struct.unpack_from("<II", buffer, 0x80)
    (mounted,) = struct.unpack_from("<Q", buffer, 0x90)
    return mode, (major, minor), mounted


def _is_harmless(device: tuple[int, int]) -> bool:
    return device in _DEVICES or device[0] in _TERMINALS


def _is_writable(path: str) -> bool:
    """Of a descriptor's link; the mode of the link shows how it is open (proc_pid_fd(5))."""
    return "/fd/" in path and bool(os.lstat(path).st_mode & stat.S_IWUSR)


def _check_mounts(mounts: Iterable[Mount]) -> None:
    for entry in mounts:
        is_open = "ro" not in entry.options.split(",")
        if is_open and entry.kind in _OF_THE_KERNEL:
            raise _unsound(f"{entry.kind} can be written at {entry.point}")
        if is_open and entry.kind == "proc" and entry.point != "/proc":
            raise _unsound(f"a /proc can be written at {entry.point}")


def _loose(pid: int, what: str) -> RestoreFailed:
    return RestoreFailed(
        "the commit was restored, but is not confined, so it did not run",
        cause=f"process {pid} {what}",
        remedy="do not trust this commit",
    )


def _unsound(what: str) -> RestoreFailed:
    return RestoreFailed(
        "the commit was restored, but its file systems are not confined, so it did not run",
        cause=what,
        remedy="do not trust this commit",
    )
