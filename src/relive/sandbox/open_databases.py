"""Databases of SQLite that were open at a commit: it remembers their device and inode numbers (``images.file_numbers``)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from relive.model.commit import EntryKind, Layer, LayerKind

__all__ = ["open_databases"]

_MAGIC = b"SQLite format 3\0"
_WRITE_VERSION, _ROLLBACK = 18, 1  # byte of the header (fileformat2.html of SQLite); 2 there is WAL


def open_databases(
    layers: Collection[Layer], opened: Collection[str], lay_out: Callable[[Layer], Path]
) -> dict[str, bool]:
    """Which of the committed files are such databases, by absolute path: whether they are written by way of a rollback journal.

    A branch can read those and not write them, where they cannot have their inode numbers there (``inode_numbers``).

    Args:
        opened: paths of files that were open for reading and writing.
        lay_out: gives the directory of a layer's files.
    """
    found = {}
    for layer in layers:
        if layer.kind is LayerKind.ARCHIVE:
            continue
        top = layer.point.rstrip("/")
        files = (entry.path for entry in layer.entries if entry.kind is EntryKind.FILE)
        here = [path for path in files if f"{top}/{path}" in opened]
        if here:
            directory = lay_out(layer)
            for path in here:
                header = _header(directory / path)
                if header.startswith(_MAGIC):
                    found[f"{top}/{path}"] = header[_WRITE_VERSION:] == bytes([_ROLLBACK])
    return dict(sorted(found.items()))


def _header(path: Path) -> bytes:
    """Up to the write version; less where there is less."""
    try:
        with path.open("rb") as file:
            return file.read(_WRITE_VERSION + 1)
    except OSError:
        return b""
