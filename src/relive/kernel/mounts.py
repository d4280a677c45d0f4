"""Mounts: making them (mount(2), pivot_root(2)) and reading the table of them (proc_pid_mountinfo(5))."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from dataclasses import dataclass
from enum import IntFlag
from functools import lru_cache
from pathlib import Path

from relive.kernel import libc
from relive.kernel.procfs import read_file

__all__ = [
    "Mount",
    "MountFlag",
    "bind",
    "detached",
    "forget_names",
    "make_private",
    "make_slave",
    "mount",
    "mount_overlay",
    "pivot_root",
    "read_mounts",
    "unmount",
]

_MNT_DETACH = 2
_OCTAL = re.compile(r"\\([0-7]{3})")
_SYS_PIVOT_ROOT = 155
_SYS_OPEN_TREE, _OPEN_TREE_CLONE, _AT_CWD = 428, 1, -100
_SYS_FSCONFIG, _CMD_RECONFIGURE, _SYS_FSPICK = 431, 7, 433
_STATFS_SIZE, _OVERLAY_MAGIC = 120, 0x794C7630  # [bytes]; f_type is the first word (statfs(2))


class MountFlag(IntFlag):
    """MS_* flags of sys/mount.h."""

    NONE = 0
    READ_ONLY = 0x1
    NO_SUID = 0x2
    NO_DEVICES = 0x4
    NO_EXEC = 0x8
    REMOUNT = 0x20
    BIND = 0x1000
    RECURSIVE = 0x4000
    PRIVATE = 0x40000
    SLAVE = 0x80000


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo.

    Attributes:
        point: where it is mounted, as the reading process sees it.
        root: what part of the file system is mounted there ("/" for all of it).
        kind: file system type, such as "ext4".
        device: "major:minor".
    """

    identifier: int
    device: str
    root: str
    point: str
    kind: str
    source: str
    options: str


def mount(
    source: str, point: Path, kind: str | None, flags: MountFlag = MountFlag.NONE, data: str = ""
) -> None:
    """mount(2).

    Raises:
        OSError: as mount(2) says; its file name is the mount point.
    """
    try:
        libc.call(
            "mount",
            source.encode(),
            os.fsencode(point),
            kind.encode() if kind else None,
            int(flags),
            data.encode(),
        )
    except OSError as error:
        raise OSError(
            error.errno, f"mount {kind or 'bind'}: {os.strerror(error.errno or 0)}", str(point)
        ) from None


def bind(source: Path, point: Path, *, recursive: bool = False, read_only: bool = False) -> None:
    """Make ``source`` appear at ``point`` too, which must exist and be of the same kind (file or directory)."""
    flags = MountFlag.BIND | (MountFlag.RECURSIVE if recursive else MountFlag.NONE)
    mount(str(source), point, None, flags)
    if read_only:
        mount("none", point, None, MountFlag.REMOUNT | MountFlag.BIND | MountFlag.READ_ONLY)


def detached(directory: Path) -> int:
    """A descriptor of a directory through a mount of its own that is mounted nowhere: no ``..`` leads out of it (open_tree(2)).

    For a process that may be led astray by names that others chose.

    Raises:
        OSError: as open_tree(2).
    """
    name = ctypes.create_string_buffer(os.fsencode(directory))
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC
    mounted = libc.syscall(_SYS_OPEN_TREE, _AT_CWD, ctypes.addressof(name), flags)
    try:
        return os.open(f"/proc/thread-self/fd/{mounted}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(mounted)


def make_private(point: Path = Path("/")) -> None:
    """Stop mounts below ``point`` from spreading to, or coming from, other namespaces."""
    mount("none", point, None, MountFlag.PRIVATE | MountFlag.RECURSIVE)


def make_slave(point: Path = Path("/")) -> None:
    """Have mounts below ``point`` come from the namespace that this one was made of, but none go there."""
    mount("none", point, None, MountFlag.SLAVE | MountFlag.RECURSIVE)


def mount_overlay(
    point: Path,
    *,
    lower: list[Path],
    upper: Path | None,
    work: Path | None,
    flags: MountFlag = MountFlag.NONE,
    volatile: bool = False,
) -> None:
    """Mount an overlay; with no ``upper`` it is read-only and needs two lower directories.

    With ``volatile`` nothing in it is ever brought to the disk for its own sake (Linux 5.10): its end need not wait until all the
    host has written is there. It cannot be mounted a second time then.

    The first lower directory is the topmost. Paths with ``:`` or ``,`` are escaped as overlayfs demands.

    Raises:
        OSError: EINVAL or ELOOP where the directories overlap or their file system cannot hold an upper layer.
    """
    options = "lowerdir=" + ":".join(_escape(path) for path in lower)
    if upper is not None and work is not None:
        options += f",upperdir={_escape(upper)},workdir={_escape(work)}" + (",volatile" if volatile else "")
    mount("overlay", point, "overlay", flags, options)


def _escape(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def pivot_root(new_root: Path) -> None:
    """Make ``new_root`` (a mount point) the root of the caller's mount namespace and let go of the old one."""
    os.chdir(new_root)
    # "." over ".": the old root is stacked on the new one and can be detached without a directory to put it in
    # (pivot_root(2), "pivot_root(".", ".")").
    libc.call("syscall", _SYS_PIVOT_ROOT, b".", b".")
    libc.call("umount2", b".", _MNT_DETACH)
    os.chdir("/")


def forget_names(point: Path) -> None:
    """Have an overlay look its names up again, the next time that they are asked for.

    Nothing is done where another file system is mounted, or none any more: what the host unmounts goes from slave namespaces, too.

    An overlay of whose upper layer a whiteout was made behind its back remembers that there is nothing in that layer, and creating
    the name fails with ESTALE. Reconfigured with nothing changed, it drops all names that nobody uses just now.

    Args:
        point: the root of a mount.

    Raises:
        OSError: as statfs(2), fspick(2) and fsconfig(2).
    """
    name, facts = ctypes.create_string_buffer(os.fsencode(point)), ctypes.create_string_buffer(_STATFS_SIZE)
    libc.call("statfs", name, facts)
    if ctypes.c_long.from_buffer(facts).value != _OVERLAY_MAGIC:
        return
    try:
        context = libc.syscall(_SYS_FSPICK, _AT_CWD, ctypes.addressof(name), 0)
    except OSError as error:
        if error.errno == errno.EINVAL:  # below the root of a mount, as fs/fsopen.c has it
            return
        raise
    try:
        libc.syscall(_SYS_FSCONFIG, context, _CMD_RECONFIGURE, None, None, 0)
    finally:
        os.close(context)


def unmount(point: Path) -> None:
    """Detach the mount at ``point``; what still uses it keeps it alive."""
    libc.call("umount2", os.fsencode(point), _MNT_DETACH)


def read_mounts(pid: int | str = "self") -> list[Mount]:
    """The mounts that a process sees, in the order in which they were made."""
    # Only a newline ends a line: mount points may hold what Python takes for other ends.
    return list(_parse(read_file(f"/proc/{pid}/mountinfo").decode(errors="surrogateescape")))


@lru_cache(maxsize=4)  # of one commit after another they are mostly the same
def _parse(text: str) -> tuple[Mount, ...]:
    return tuple(_parse_line(line) for line in text.split("\n") if line)


def _parse_line(line: str) -> Mount:
    left, _, right = line.partition(" - ")
    fields = left.split(" ")
    kind, source, *_ = right.split(" ")
    return Mount(
        identifier=int(fields[0]),
        device=fields[2],
        root=_unescape(fields[3]),
        point=_unescape(fields[4]),
        kind=kind,
        source=_unescape(source),
        options=fields[5],
    )


def _unescape(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
