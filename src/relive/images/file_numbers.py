"""Device and inode numbers of files that the processes had open for reading and writing: images of Relive's own beside CRIU's.

CRIU does not keep them, and a branch's files are others. But a program may remember them: SQLite with a rollback journal
compares the inode number with that of the path before it writes, and does not write where it differs (``fileHasMoved``); and by
both it knows that two connections of a process are to one file (``findInodeInfo``). Not those of logs, which are open for
writing only. JSON, a map from absolute path to number, for each of the two.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from relive.errors import ObjectCorrupt
from relive.images import criu_images_pb2 as pb
from relive.images.image_directory import ImageDirectory
from relive.images.validation import untrusted

__all__ = [
    "DEVICE_NUMBERS",
    "INODE_NUMBERS",
    "FileNumbers",
    "parse_numbers",
    "write_file_numbers",
    "written_files",
]

INODE_NUMBERS = "inode-numbers.img"
DEVICE_NUMBERS = "device-numbers.img"
"""Commits of an older Relive have none."""

_ACCESS_MODE, _READ_AND_WRITE = 3, 2


class FileNumbers(NamedTuple):
    """As stat(2) told them to the processes."""

    device: int
    inode: int


def written_files(files: Iterable[pb.FileEntry]) -> set[str]:
    """Paths of the files that were open for reading and writing, or mapped so."""
    regular = (entry.reg for entry in files if entry.HasField("reg"))
    names = (one.name for one in regular if one.flags & _ACCESS_MODE == _READ_AND_WRITE)
    return {name for name in names if name.startswith("/")}


def write_file_numbers(images: ImageDirectory, numbers: Mapping[str, FileNumbers]) -> None:
    """Add the images; none where there are no numbers. Raises OSError: the disk is full."""
    if numbers:
        told = sorted(numbers.items())
        (images / INODE_NUMBERS).write_bytes(_written({path: one.inode for path, one in told}))
        (images / DEVICE_NUMBERS).write_bytes(_written({path: one.device for path, one in told}))


def _written(numbers: Mapping[str, int]) -> bytes:
    return json.dumps(numbers).encode()


def parse_numbers(image: str, data: bytes) -> dict[str, int]:
    """The opposite, for one of the two; raises ObjectCorrupt, since a commit may come from elsewhere."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _no_numbers(image, str(error)) from error
    if not isinstance(found, dict):
        raise _no_numbers(image, "it is no map")
    for path, number in found.items():
        if not path.startswith("/") or "\0" in path or type(number) is not int or number < 0:
            raise _no_numbers(image, f"it has {number!r} for {path!r}")
    return found


def _no_numbers(image: str, cause: str) -> ObjectCorrupt:
    return untrusted(f"has an image {image} that cannot be read", cause)
