"""What a commit's images say of what has to stand around its processes: the same for every branch of it, so it is read once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relive.images import criu_images_pb2 as pb
from relive.images.file_numbers import (
    DEVICE_NUMBERS,
    INODE_NUMBERS,
    FileNumbers,
    parse_numbers,
    written_files,
)
from relive.images.image_file import read_entries
from relive.images.sockets import (
    TcpConnection,
    bound_addresses,
    bound_devices,
    inner_pairs,
    read_connections,
    read_files,
    read_outside_names,
)

__all__ = ["ImageFacts", "read_image_facts"]

_UNSPECIFIED = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """See ``BranchPlan`` for what has the same name there. Nothing of it may be changed: other branches use it, too.

    Attributes:
        files: what the processes had open.
        written: paths of regular files that were open for reading and writing.
        numbers: of these, those of which the commit has both.
    """

    files: Sequence[pb.FileEntry]
    addresses: Sequence[str]
    devices: Sequence[bytes]
    connections: Sequence[TcpConnection]
    inner_pairs: frozenset[tuple[int, int]]
    outside_names: Sequence[bytes]
    taken_pids: frozenset[int]
    written: frozenset[str]
    numbers: Mapping[str, FileNumbers]


def read_image_facts(images: Path) -> ImageFacts:
    """Of the images in a directory; raises ObjectCorrupt: they are damaged."""
    files = read_files(images)
    connections = read_connections(images, files)
    addresses = bound_addresses(files) | {connection.peer[0] for connection in connections}
    processes = read_entries(images / "pstree.img", pb.PstreeEntry)
    inodes, devices = (_numbers(images / name) for name in (INODE_NUMBERS, DEVICE_NUMBERS))
    return ImageFacts(
        files=files,
        addresses=sorted(address for address in addresses if address not in _UNSPECIFIED),
        devices=sorted(bound_devices(files)),
        connections=connections,
        inner_pairs=frozenset(inner_pairs(images, files)),
        outside_names=read_outside_names(files),
        taken_pids=frozenset(
            number for one in processes for number in (one.pid, one.pgid, one.sid, *one.threads)
        ),
        written=frozenset(written_files(files) if inodes is None else inodes),
        numbers={
            path: FileNumbers(devices[path], inode)
            for path, inode in (inodes or {}).items()
            if devices is not None and path in devices
        },
    )


def _numbers(image: Path) -> dict[str, int] | None:
    """None: it is of an older Relive, or had no such files."""
    return parse_numbers(image.name, image.read_bytes()) if image.exists() else None
