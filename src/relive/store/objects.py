"""Objects: immutable bytes, each named by the BLAKE3 of its content, so that its name proves it.

Durable means: the file's bytes and its directory entry have been fsynced.
"""

from __future__ import annotations

import re
from pathlib import Path

from blake3 import blake3

from relive.errors import ObjectCorrupt, ObjectMissing
from relive.kernel.atomic_write import sync_directory
from relive.store.atomic_io import delete_file, finish_file

__all__ = ["Objects", "hash_bytes", "hash_file", "is_id"]

_MMAP_FROM = 1 << 16  # [bytes] below this, mapping a file costs more than reading it
_ID = re.compile(r"[0-9a-f]{64}")


def is_id(text: str) -> bool:
    """It could be the name of an object or a commit: 64 hexadecimal digits, so it is safe in a path."""
    return _ID.fullmatch(text) is not None


def hash_bytes(data: bytes) -> str:
    """BLAKE3 in hexadecimal, 64 digits."""
    return blake3(data).hexdigest()


def hash_file(path: Path) -> str:
    """BLAKE3 of a file's content, 64 hexadecimal digits."""
    if path.stat().st_size < _MMAP_FROM:
        return hash_bytes(path.read_bytes())
    # One thread: a pool of threads would not survive fork(), and a child that hashed would wait for it for ever.
    hasher = blake3()
    hasher.update_mmap(path)
    return hasher.hexdigest()


class Objects:
    """The object directory. Safe for several processes at once: an object appears whole or not at all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        """Where an object lies or would lie."""
        return self._directory / name[:2] / name[2:]

    def names(self) -> set[str]:
        """All there are."""
        return {path.parent.name + path.name for path in self._directory.glob("??/*")}

    def ingest(self, file: Path) -> str:
        """Move a file of the same file system into the store and return its name; durable on return.

        The file is gone from where it was, also when the store had its content already.
        """
        name = hash_file(file)
        target = self.path(name)
        finish_file(file)
        if not target.parent.exists():
            target.parent.mkdir(exist_ok=True)
            sync_directory(self._directory)
        # Also over an object that is there already: this one is known to be whole, that one may have rotted, or been
        # put there a moment ago by a process that has not synced the directory yet.
        file.replace(target)
        sync_directory(target.parent)
        return name

    def verified(self, name: str) -> Path:
        """The path of an object whose content has just been checked against its name.

        Raises:
            ObjectMissing: there is none of that name.
            ObjectCorrupt: its bytes have changed; nothing is returned.
        """
        path = self.path(name)
        try:
            # Checked on every use: a wrong page restored into a live process shows up far from its cause.
            is_whole = hash_file(path) == name
        except FileNotFoundError:
            raise ObjectMissing(
                f"object {name[:12]} is not in the store",
                cause="it was deleted or never arrived",
            ) from None
        if not is_whole:
            raise ObjectCorrupt(
                f"object {name[:12]} is damaged",
                cause="its bytes do not match its name any more",
            )
        return path

    def delete(self, name: str) -> int:
        """Remove an object; returns the bytes freed, 0 if it was not there."""
        return delete_file(self.path(name))
