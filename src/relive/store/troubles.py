"""Failures of the disk and of SQLite, told in the store's own errors."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from relive.errors import DiskFull, PermissionMissing, StoreBusy, StoreError

__all__ = ["disk_errors"]

_INDEX = "delete index.sqlite in the store; it is made anew from the manifests"
_FORBIDDEN = (errno.EACCES, errno.EPERM)
_FULL = (errno.ENOSPC, errno.EDQUOT)
# With not a byte left SQLite cannot even make its helper files, and says "disk I/O error" or "unable to open".
_HELPLESS = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
_PRIMARY_CODE = 0xFF  # SQLite's extended result codes hold the primary one in their low byte


@contextlib.contextmanager
def disk_errors(what: str, where: Path | None = None, *, damaged: str = _INDEX) -> Iterator[None]:
    """Turn failures of the disk into errors of the store.

    ENOSPC, EDQUOT and SQLITE_FULL become DiskFull, EACCES and EPERM PermissionMissing, SQLITE_BUSY StoreBusy, all others
    StoreError. ``where`` lies on the file system that is written to; ``damaged`` says what to do when SQLite's file is.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise _full(what, f"{error.strerror} on {error.filename or 'the store'}") from error
        if error.errno in _FORBIDDEN:
            raise PermissionMissing(
                f"no right to go on {what}",
                cause=str(error),
                remedy="run it as the owner of RELIVE_HOME, mostly root",
            ) from error
        raise StoreError(f"failed while {what}", cause=str(error), remedy="run `relive doctor`") from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY_CODE
        if code == sqlite3.SQLITE_FULL or (code in _HELPLESS and not _has_room(where)):
            raise _full(what, str(error)) from error
        if code == sqlite3.SQLITE_BUSY:
            raise StoreBusy(
                f"failed while {what}", cause=str(error), remedy="try again; another process writes"
            ) from error
        raise StoreError(
            f"failed while {what}",
            cause=f"SQLite: {error}",
            remedy=damaged,
        ) from error


def _has_room(where: Path | None) -> bool:
    try:
        return where is None or os.statvfs(where).f_bavail > 0
    except OSError:
        return True


def _full(what: str, cause: str) -> DiskFull:
    return DiskFull(
        f"no space left while {what}",
        cause=cause,
        remedy="free space or keep fewer commits (`relive retain`); everything stored before is unharmed",
    )
