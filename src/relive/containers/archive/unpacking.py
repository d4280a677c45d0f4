"""Unpacking a checkpoint archive into a staging directory: images to ``images/``, all else numbered to ``files/``.

No name of the archive becomes a path, but that of an image, which is one plain component.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from relive.containers.archive.layout import (
    CONFIG,
    IMAGE_MOST,
    OTHER_ARCHIVES,
    SPEC,
    image_name,
    is_page_file,
)
from relive.containers.archive.tar_files import Member, TarReader
from relive.errors import ArchiveInvalid, DiskFull
from relive.remotes.archive import invalid
from relive.store import Staging

__all__ = ["Unpacked", "UnpackedFile", "unpack"]

_BUNDLED_MOST = 1 << 30  # [bytes] of all images that are no page files
_SPARE = 64 << 20  # [bytes] that an import leaves free on the disk


@dataclass(frozen=True, slots=True)
class UnpackedFile:
    """A member that is no image; ``copy`` is None for a directory."""

    member: Member
    copy: Path | None


@dataclass(frozen=True, slots=True)
class Unpacked:
    """An archive on disk.

    Attributes:
        files: in the order of the archive.
        images: when each was changed last, in nanoseconds since the epoch, by file name.
        fingerprint: BLAKE3 of all names and contents, in hexadecimal; equal for archives that hold the same, however they are
            packed.
    """

    files: list[UnpackedFile]
    images: dict[str, int]
    fingerprint: str

    def copy(self, path: str) -> Path | None:
        """The copy of a member."""
        return next((file.copy for file in self.files if file.member.path == path), None)


def unpack(name: str, reader: TarReader, staging: Staging) -> Unpacked:
    """Unpack all of it.

    Raises:
        ArchiveInvalid: it is damaged, hostile, or no archive of one container.
        DiskFull: it would not fit; that is found before a member is written.
        OSError: it could not be written.
    """
    files: list[UnpackedFile] = []
    images: dict[str, int] = {}
    names: dict[str, bytes] = {}
    bundled = 0
    for member in reader.members():
        refuse_other(name, member.path)
        if member.is_directory:
            files.append(UnpackedFile(member, None))
            continue
        image = image_name(member.path)
        if image is not None and not is_page_file(image):
            if member.size > IMAGE_MOST:
                image = None
            else:
                bundled += member.size
        if bundled > _BUNDLED_MOST:
            raise invalid(name, f"its images besides memory take more than {_BUNDLED_MOST >> 20} MiB")
        target = staging.files / f"{len(files):06}" if image is None else staging.images / image
        _refuse_too_large(name, member, staging)
        names[member.path] = _write(target, reader.chunks())
        if image is None:
            files.append(UnpackedFile(member, target))
        else:
            images[image] = member.mtime_ns
    for needed in (CONFIG, SPEC):
        if needed not in names:
            raise not_one(name, f"it holds no {needed}")
    return Unpacked(files, images, _fingerprint(names))


def refuse_other(name: str, path: str) -> None:
    """Raises ArchiveInvalid where a member tells that the archive is of another kind."""
    reason = OTHER_ARCHIVES.get(path.partition("/")[0])
    if reason is not None:
        raise not_one(name, reason)


def not_one(name: str, cause: str) -> ArchiveInvalid:
    """The error of a file that is no archive of a kind that is known."""
    return ArchiveInvalid(
        f"{name} cannot be imported",
        cause=cause,
        remedy="name what `relive export` or `podman container checkpoint --export` wrote, or what the kubelet did",
    )


def _refuse_too_large(name: str, member: Member, staging: Staging) -> None:
    disk = os.statvfs(staging.directory)
    free = disk.f_bavail * disk.f_frsize
    if member.size + _SPARE > free:
        raise DiskFull(
            f"{name} does not fit",
            cause=f"{member.path} says that it has {member.size} bytes, and {free} are free",
            remedy="free space where RELIVE_HOME lies, if the archive is to be trusted",
        )


def _write(target: Path, chunks: Iterator[bytes]) -> bytes:
    """Write a new file; returns the BLAKE3 of its bytes."""
    hasher = blake3()
    with target.open("xb") as file:
        for chunk in chunks:
            hasher.update(chunk)
            file.write(chunk)
    return hasher.digest()


def _fingerprint(names: dict[str, bytes]) -> str:
    hasher = blake3()
    for path, digest in sorted(names.items()):
        hasher.update(path.encode() + b"\0" + digest)
    return hasher.hexdigest()
