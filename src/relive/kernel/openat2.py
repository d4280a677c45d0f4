"""Opening a path without being led elsewhere (openat2(2), Linux 5.6)."""

from __future__ import annotations

import ctypes
import os
import struct

from relive.kernel import libc

__all__ = ["create_as_below", "look_as_below", "look_without_links"]

_OPENAT2 = 437
_NO_MAGIC_LINKS, _NO_SYMBOLIC_LINKS, _BENEATH, _IN_ROOT = 0x02, 0x04, 0x08, 0x10
_HOW = struct.Struct("QQQ")  # flags, mode, resolve


def look_without_links(root: int, path: str) -> int:
    """A descriptor (O_PATH) of what lies at a path below ``root``, itself perhaps a link, none of whose directories is one.

    Mounts are crossed. The caller closes it.

    Raises:
        OSError: FileNotFoundError, NotADirectoryError: there is nothing; ELOOP: a symbolic link is on the way.
    """
    return _open(root, path, os.O_NOFOLLOW, _NO_MAGIC_LINKS | _NO_SYMBOLIC_LINKS | _BENEATH)


def look_as_below(directory: int, path: str) -> int:
    """A descriptor (O_PATH) of what a process finds at a path whose root, or for a relative path whose directory, that is.

    Links are followed as there, and lead out of it for nobody. The caller closes it.

    Raises:
        OSError: FileNotFoundError, NotADirectoryError: there is nothing; EXDEV: it leads out of the directory.
    """
    return _open(directory, path, 0, _NO_MAGIC_LINKS | (_IN_ROOT if path.startswith("/") else _BENEATH))


def create_as_below(directory: int, path: str, user: int, group: int) -> None:
    """Make an empty file at a path of a process whose root that is, of this owner; one that is there stays as it is.

    Raises:
        OSError: FileNotFoundError: there is no such directory; or it cannot be written to.
    """
    try:
        made = _open(
            directory, path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _NO_MAGIC_LINKS | _IN_ROOT, mode=0o600
        )
    except FileExistsError:
        return
    try:
        os.fchown(made, user, group)
    finally:
        os.close(made)


def _open(root: int, path: str, flags: int, resolve: int, *, mode: int | None = None) -> int:
    """``mode``: of a file to be made, which is opened; without it, only looked at (O_PATH)."""
    how = _HOW.pack((os.O_PATH if mode is None else 0) | os.O_CLOEXEC | flags, mode or 0, resolve)
    text = ctypes.create_string_buffer(os.fsencode(path.lstrip("/") or "."))
    buffer = ctypes.create_string_buffer(how, len(how))
    try:
        return libc.syscall(_OPENAT2, root, ctypes.addressof(text), ctypes.addressof(buffer), _HOW.size)
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), path) from None
