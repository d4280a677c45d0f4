"""Keys of the server: 32 random bytes each in a file of its own, mode 0600, below ``$RELIVE_HOME/server`` (mode 0700)."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from relive.errors import KeyWrong
from relive.kernel.atomic_write import sync_directory
from relive.kernel.disk_errors import disk_errors
from relive.store.atomic_io import write_whole

__all__ = ["private_directory", "read_key", "replace_key"]

_SIZE = 32  # [bytes]


def private_directory(path: Path) -> Path:
    """The directory, made if it is not there, open to its owner only.

    Raises:
        PermissionMissing, DiskFull, StoreError: it cannot be made.
    """
    with disk_errors(f"making {path}", path.parent):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    return path


def read_key(path: Path) -> bytes:
    """The key in the file, which is made if it is not there; two processes at once get the same.

    Raises:
        KeyWrong: the file holds something else; no other key is made in its place.
        PermissionMissing, DiskFull, StoreError: it can neither be read nor made.
    """
    with disk_errors(f"reading {path}", path.parent):
        try:
            key = path.read_bytes()
        except FileNotFoundError:
            _make(path)
            key = path.read_bytes()
    if len(key) != _SIZE:
        raise KeyWrong(
            f"{path} holds no key",
            cause=f"it is {len(key)} bytes long and should be {_SIZE}",
            remedy="bring it back from a backup; if it is deleted, all that was made with it stops being valid",
        )
    return key


def replace_key(path: Path) -> None:
    """Put another key there, durable on return; all that was made with the old one stops being valid."""
    with disk_errors(f"writing {path}", path.parent):
        write_whole(path.parent, path, secrets.token_bytes(_SIZE))


def _make(path: Path) -> None:
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, secrets.token_bytes(_SIZE))
        os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):  # another process was quicker: its key counts
            os.link(fresh, path)
        sync_directory(path.parent)
    finally:
        os.close(descriptor)
        fresh.unlink()
