"""POSIX locks on files (fcntl(2)): those that CRIU did not save, and those that a restored process has to take again.

CRIU saves what belongs to an open file once, with the first process that has it. But such a lock is one process's: what a child
holds on a file that its parent opened is not saved.

``native/locks_plugin.c`` says why they have to be taken again, and does it. Two small files beside CRIU's images: ``posix-locks``
tells the plugin which, ``posix-locks.told`` is its answer.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from relive.errors import RestoreFailed
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries, write_entries
from relive.kernel.filelocks import PosixLock

__all__ = ["add_posix_locks", "check_posix_locks", "note_posix_locks"]

_IMAGE = "filelocks.img"
_HEADER = struct.pack("<II", 0x54564319, 0x54323616)  # of filelocks.img
_POSIX = 1
_WANTED, _TOLD = "posix-locks", "posix-locks.told"


def add_posix_locks(images: Path, held: list[PosixLock]) -> None:
    """Add what CRIU left out to the image that it wrote; pids of ``held`` are as CRIU saw them.

    Raises:
        ObjectCorrupt: the image is damaged.
        OSError: the disk is full.
    """
    path = images / _IMAGE
    found = read_entries(path, pb.FileLockEntry) if path.exists() else []
    saved = {(one.pid, one.fd, one.type, one.start, one.len) for one in found if one.flag & _POSIX}
    # One that is there by another descriptor may be there twice.
    missing = [one for one in held if one not in saved]
    if not missing:
        return
    if not path.exists():
        path.write_bytes(_HEADER)
    for one in missing:
        found.append(
            pb.FileLockEntry(
                flag=_POSIX, type=one.kind, pid=one.pid, fd=one.descriptor, start=one.start, len=one.length
            )
        )
    write_entries(path, found)


def note_posix_locks(images: Path) -> None:
    """Write down the locks of a commit that is laid out in ``images``; nothing where there are none.

    Raises:
        ObjectCorrupt: the image is damaged.
    """
    # Nobody but the plugin answers, whatever a commit brings along.
    for name in (_WANTED, _TOLD):
        (images / name).unlink(missing_ok=True)
    path = images / _IMAGE
    if not path.exists():
        return
    locks = [one for one in read_entries(path, pb.FileLockEntry) if one.flag & _POSIX]
    if locks:
        lines = (f"{one.pid} {one.fd} {one.type} {one.start} {one.len}\n" for one in locks)
        (images / _WANTED).write_text("".join(lines))


def check_posix_locks(images: int) -> None:
    """See that all were taken again; to be called when the plugin has been asked, before the processes run.

    Args:
        images: a descriptor of the directory, since paths are the branch's by then.

    Raises:
        RestoreFailed: one was not, or nobody knows.
    """
    answers = dict(line.split(" ", 1) for line in _lines(_TOLD, images))
    for pid in dict.fromkeys(line.split(" ", 1)[0] for line in _lines(_WANTED, images)):
        status, _, what = answers.get(pid, "").partition(" ")
        if status != "0":
            raise RestoreFailed(
                f"process {pid} of the commit could not take its locks on files again",
                cause=f"{what}: {os.strerror(int(status))}" if what else "CRIU did not ask for it",
                remedy="run `make setup`, which compiles what does it; restore another commit if that does not help",
            )


def _lines(name: str, directory: int) -> list[str]:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return []
    with os.fdopen(descriptor) as file:
        return file.read().splitlines()
