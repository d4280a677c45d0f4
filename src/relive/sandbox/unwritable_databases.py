"""Databases of SQLite that a branch can read and not write, since their inode numbers are others there (``inode_numbers``)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from relive.model.commit import EntryKind, Layer, LayerKind

__all__ = ["has_rollback_journal", "unwritable_databases"]

_MAGIC = b"SQLite format 3\0"
_WRITE_VERSION, _ROLLBACK = 18, 1  # byte of the header (fileformat2.html of SQLite); 2 there is WAL


def unwritable_databases(
    layers: Collection[Layer], opened: Collection[str], lay_out: Callable[[Layer], Path]
) -> list[str]:
    """Which of the committed files are such databases, by absolute path.

    Args:
        opened: paths of files that were open for reading and writing.
        lay_out: gives the directory of a layer's files.
    """
    found = []
    for layer in layers:
        if layer.kind is LayerKind.ARCHIVE:
            continue
        top = layer.point.rstrip("/")
        files = (entry.path for entry in layer.entries if entry.kind is EntryKind.FILE)
        here = [path for path in files if f"{top}/{path}" in opened]
        if here:
            directory = lay_out(layer)
            found += [f"{top}/{path}" for path in here if has_rollback_journal(directory / path)]
    return sorted(found)


def has_rollback_journal(path: Path) -> bool:
    """A file is a database of SQLite that is written by way of a rollback journal."""
    try:
        with path.open("rb") as file:
            header = file.read(_WRITE_VERSION + 1)
    except OSError:
        return False
    return header.startswith(_MAGIC) and header[_WRITE_VERSION:] == bytes([_ROLLBACK])
