"""Mounts of the mount namespaces that a commit holds: those of a container."""

from __future__ import annotations

import io
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from relive.errors import ObjectCorrupt
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries, write_entries
from relive.images.validation import untrusted
from relive.kernel.atomic_write import Durability, replace_file

__all__ = ["HARMLESS_DEVICES", "limit_mounts", "read_mount_images"]

HARMLESS_DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}
"""Devices that anybody may have, with their numbers."""

_READ_ONLY, _NO_DEVICES = 0x1, 0x4  # MS_RDONLY, MS_NODEV
_TMPFS, _DEVPTS = 5, 6  # CRIU's fstype (mnt.proto)
# sysfs, devtmpfs, binfmt_misc, pstore, securityfs, fusectl, debugfs, cgroup, tracefs, cgroup2
_OF_THE_MACHINE = frozenset({2, 3, 4, 8, 9, 10, 11, 12, 19, 23})
_PROC, _PROC_POINT = 1, "/proc"
# Those that CRIU mounts by a type, a source and options that the image names, such as a disk: simfs, aufs, FUSE, any,
# overlay, autofs, NFS
_NAMED = frozenset({7, 13, 15, 16, 17, 18, 20, 21, 22})
_DEV = "/dev"
_NODES_MOST = 64 << 20  # [bytes] of the unpacked content of /dev itself


def read_mount_images(images: Path) -> dict[Path, list[pb.MntEntry]]:
    """The mounts of each mount namespace, by its image; parents need not come first.

    Raises:
        ObjectCorrupt: an image is damaged, or a mount point is none.
    """
    found = {path: read_entries(path, pb.MntEntry) for path in sorted(images.glob("mountpoints-*.img"))}
    for path, mounts in found.items():
        for entry in mounts:
            parts = PurePosixPath(entry.mountpoint).parts
            if parts[:1] != ("/",) or ".." in parts or "\0" in entry.mountpoint:
                raise ObjectCorrupt(
                    f"image {path.name} is damaged",
                    cause=f"it has a mount at {entry.mountpoint!r}",
                    remedy="restore another commit; this one cannot be trusted",
                )
    return found


def limit_mounts(images: Path) -> None:
    """Take from a commit laid out in ``images`` what mounts hold by which a branch could act on the machine.

    A branch is in no cgroup that would forbid it to open a disk. So no mount but /dev and terminals lets device nodes be opened,
    and in /dev there are no others than ``HARMLESS_DEVICES``. File systems that are the kernel's own are there to be read. Mounts
    from outside are the affair of whoever gives them.

    Raises:
        ObjectCorrupt: an image is damaged.
    """
    for path, mounts in read_mount_images(images).items():
        for entry in mounts:
            if entry.mountpoint == _DEV and entry.fstype == _TMPFS:
                _sift(images / f"tmpfs-dev-{entry.root_dev}.tar.gz.img")
            elif entry.fstype != _DEVPTS and not entry.ext_key:
                entry.flags |= _NO_DEVICES
            if entry.fstype in _OF_THE_MACHINE:
                entry.flags |= _READ_ONLY
            if entry.fstype == _PROC and entry.mountpoint != _PROC_POINT:
                entry.flags |= _READ_ONLY
            if entry.fstype in _NAMED and not entry.ext_key and entry.mountpoint != "/":
                raise untrusted(
                    f"mounts {entry.source!r} at {entry.mountpoint!r}",
                    "no engine has it mounted within a container, and a branch gets no file system of the host",
                )
        write_entries(path, mounts)


def _sift(path: Path) -> None:
    """Leave device nodes out of the content of a tmpfs, a tar packed with gzip, that are not harmless."""
    if not path.exists():
        return
    try:
        with tarfile.open(path, "r:gz") as source:
            members = list(source)
            wanted = [one for one in members if _is_harmless(one)]
            if len(wanted) == len(members):
                return
            made = _rewritten(source, wanted)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ObjectCorrupt(
            f"image {path.name} is damaged",
            cause=f"it holds no files: {error}",
            remedy="restore another commit; this one cannot be trusted",
        ) from error
    # A new file, since the old one may be shared with the store by a hard link.
    replace_file(path, made, durability=Durability.NONE)


def _is_harmless(member: tarfile.TarInfo) -> bool:
    if not (member.ischr() or member.isblk()):
        return True
    name = member.name.removeprefix("./")
    return member.ischr() and HARMLESS_DEVICES.get(name) == (member.devmajor, member.devminor)


def _rewritten(source: tarfile.TarFile, wanted: list[tarfile.TarInfo]) -> bytes:
    if sum(member.size for member in wanted) > _NODES_MOST:
        raise tarfile.TarError(f"/dev holds more than {_NODES_MOST >> 20} MiB")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as target:
        for member in wanted:
            # Of a sparse file the whole content is written.
            member.type = tarfile.REGTYPE if member.isreg() else member.type
            member.pax_headers = {
                key: value for key, value in member.pax_headers.items() if not key.startswith("GNU.sparse.")
            }
            target.addfile(member, source.extractfile(member) if member.isreg() else None)
    return buffer.getvalue()
