"""Failures of the disk and of SQLite, told as Relive's own errors."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from relive.errors import DiskFull, HostIncapable, PermissionMissing, StoreBusy, StoreError

__all__ = ["disk_errors", "disk_full", "is_disk_full", "takes_writes", "used_up"]

_INDEX = "delete index.sqlite in the store; it is made anew from the manifests"
_FORBIDDEN = (errno.EACCES, errno.EPERM)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FEWER = "keep fewer commits (`relive retain`, then `relive gc`)"
_REMEDIES = {
    "space": f"free space on {{disk}}, or {_FEWER}",
    "inodes": "free inodes on {disk}, of which none is left (`df -i {disk}`): delete files, or make it anew with more of them",
    "quota": f"raise the quota on {{disk}} of the user that runs Relive (`quota`), or {_FEWER}",
}
# With not a byte left SQLite cannot even make its helper files, and says "disk I/O error" or "unable to open".
_HELPLESS = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
_PRIMARY_CODE = 0xFF  # SQLite's extended result codes hold the primary one in their low byte


@contextlib.contextmanager
def disk_errors(what: str, where: Path | None = None, *, damaged: str = _INDEX) -> Iterator[None]:
    """Turn failures of the disk into errors of the store.

    ENOSPC, EDQUOT and SQLITE_FULL become DiskFull, EACCES and EPERM PermissionMissing, EROFS HostIncapable, SQLITE_BUSY StoreBusy,
    all others StoreError. ``where`` lies on the file system that is written to; ``damaged`` says what to do when SQLite's file is.
    """
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(f"no space left while {what}", where or error.filename, error) from error
        if error.errno in _FORBIDDEN:
            raise PermissionMissing(
                f"no right to go on {what}",
                cause=str(error),
                remedy="run it as the owner of RELIVE_HOME, mostly root",
            ) from error
        if error.errno == errno.EROFS:
            raise HostIncapable(
                f"the disk takes no writes: failed while {what}",
                cause=str(error),
                remedy="`findmnt -T $RELIVE_HOME` shows its mount; of a disk that fails the kernel's reason is in `dmesg`",
            ) from error
        raise StoreError(f"failed while {what}", cause=str(error), remedy="run `relive doctor`") from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY_CODE
        if code == sqlite3.SQLITE_FULL or (code in _HELPLESS and where is not None and used_up(where)):
            raise disk_full(f"no space left while {what}", where, error) from error
        if code == sqlite3.SQLITE_BUSY:
            raise StoreBusy(
                f"failed while {what}", cause=str(error), remedy="try again; another process writes"
            ) from error
        raise StoreError(
            f"failed while {what}",
            cause=f"SQLite: {error}",
            remedy=damaged,
        ) from error


def takes_writes(where: Path) -> bool:
    """The file system of a path is not read-only here; it may be full, and others may write to it through another mount."""
    return not os.statvfs(where).f_flag & os.ST_RDONLY


def used_up(where: Path) -> str | None:
    """What the file system of a path has none left of: ``space`` or ``inodes``; None where it has both, or cannot be asked."""
    try:
        facts = os.statvfs(where)
    except OSError:
        return None
    if facts.f_bavail == 0:
        return "space"
    return "inodes" if facts.f_files and facts.f_favail == 0 else None


def is_disk_full(error: OSError) -> bool:
    """There is no space, no inode, or a quota is used up."""
    return error.errno in _FULL


def disk_full(what: str, where: Path | str | None, error: Exception | str = "") -> DiskFull:
    """The error for a disk that takes no more: of space, of inodes, or of what a quota allows.

    Args:
        where: lies on it; None where that is not known.
        error: what failed, or what is known of it in words.
    """
    number = error.errno if isinstance(error, OSError) else None
    path = Path(where) if where is not None else None
    lacks = "quota" if number == errno.EDQUOT else (path and used_up(path)) or "space"
    cause = (error.strerror if isinstance(error, OSError) else str(error)) or "the disk takes no more"
    if lacks == "inodes":
        cause = f"{cause}: there are no inodes left, though there may be space"
    disk = str(_mount_point(path)) if path is not None else "the disk of RELIVE_HOME"
    remedy = _REMEDIES[lacks].format(disk=disk)
    return DiskFull(what, cause=f"{cause} ({disk})", remedy=f"{remedy}; everything stored before is unharmed")


def _mount_point(path: Path) -> Path:
    here = path.absolute()
    while not here.exists() or not here.is_mount():
        if here == here.parent:
            break
        here = here.parent
    return here
