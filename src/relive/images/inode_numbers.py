"""Inode numbers of files that the processes had open for reading and writing, an image of Relive's own beside CRIU's.

CRIU does not keep them, and a branch's files are others. But a program may remember the number: SQLite with a rollback journal
compares it with that of the path before it writes, and does not write where it differs (``fileHasMoved``). Not those of logs, which
are open for writing only. JSON, a map from absolute path to number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from relive.errors import ObjectCorrupt
from relive.images import criu_images_pb2 as pb
from relive.images.image_directory import ImageDirectory
from relive.images.validation import untrusted

__all__ = ["INODE_NUMBERS", "parse_inode_numbers", "write_inode_numbers", "written_files"]

INODE_NUMBERS = "inode-numbers.img"
_ACCESS_MODE, _READ_AND_WRITE = 3, 2


def written_files(files: Iterable[pb.FileEntry]) -> set[str]:
    """Paths of the files that were open for reading and writing, or mapped so."""
    regular = (entry.reg for entry in files if entry.HasField("reg"))
    names = (one.name for one in regular if one.flags & _ACCESS_MODE == _READ_AND_WRITE)
    return {name for name in names if name.startswith("/")}


def write_inode_numbers(images: ImageDirectory, numbers: Mapping[str, int]) -> None:
    """Add the image; none where there are no numbers. Raises OSError: the disk is full."""
    if numbers:
        (images / INODE_NUMBERS).write_bytes(json.dumps(dict(sorted(numbers.items()))).encode())


def parse_inode_numbers(data: bytes) -> dict[str, int]:
    """The opposite; raises ObjectCorrupt, since a commit may come from elsewhere."""
    try:
        found = json.loads(data)
    except ValueError as error:
        raise _no_numbers(str(error)) from error
    if not isinstance(found, dict):
        raise _no_numbers("it is no map")
    for path, number in found.items():
        if not path.startswith("/") or "\0" in path or type(number) is not int or number < 0:
            raise _no_numbers(f"it has {number!r} for {path!r}")
    return found


def _no_numbers(cause: str) -> ObjectCorrupt:
    return untrusted(f"has an image {INODE_NUMBERS} that cannot be read", cause)
