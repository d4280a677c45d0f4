"""Following what is done to files of whole file systems (fanotify(7)), without standing in anybody's way.

Only notifications are asked for, no permissions: who does something to a file never waits for who reads this, and goes on if that
dies. Events tell the directory by a handle and the name in it (FAN_REPORT_DFID_NAME, Linux 5.9).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntFlag

from relive.kernel import libc

__all__ = [
    "Done",
    "FileEvent",
    "follow_file_system",
    "open_directory",
    "open_group",
    "read_events",
    "system_of",
]


class Done(IntFlag):
    """FAN_* bits of events (linux/fanotify.h); several of one name that came close together are one event."""

    ATTRIBUTES = 0x4
    WRITTEN = 0x8  # FAN_CLOSE_WRITE: a descriptor that could write was closed
    MOVED_FROM = 0x40
    MOVED_TO = 0x80
    CREATED = 0x100
    DELETED = 0x200
    LOST = 0x4000  # FAN_Q_OVERFLOW: the queue was full
    DIRECTORY = 0x40000000


FOLLOWED = (
    Done.ATTRIBUTES
    | Done.WRITTEN
    | Done.MOVED_FROM
    | Done.MOVED_TO
    | Done.CREATED
    | Done.DELETED
    | Done.DIRECTORY
)
_CLOEXEC, _NONBLOCK = 0x1, 0x2
_REPORT_DIR_FID, _REPORT_NAME = 0x400, 0x800
_ADD, _FILE_SYSTEM = 0x1, 0x100
_AT_FDCWD = -100
_HEAD = struct.Struct("=IBBHQii")  # length, version, reserved, length of this head, mask, descriptor, pid
_RECORD = struct.Struct("=BBHii")  # type, padding, length, fsid
_HANDLE = struct.Struct("=Ii")  # bytes, type
_DIRECTORY_AND_NAME = 2
_READ_SIZE = 1 << 16  # [bytes]


@dataclass(frozen=True, slots=True)
class FileEvent:
    """What somebody did.

    Attributes:
        pid: of the process as the reader's PID namespace numbers it; 0 from outside of it.
        system: of the file system, as ``system_of`` tells it.
        directory: handle of the directory (struct file_handle); empty where events were lost.
        name: in the directory; "." is the directory itself.
    """

    done: Done
    pid: int
    system: tuple[int, int]
    directory: bytes
    name: str


def open_group() -> int:
    """A descriptor from which events are read; it does not block. The kernel keeps 16384 of them (fs.fanotify), then says LOST.

    Raises:
        OSError: EPERM without CAP_SYS_ADMIN; EINVAL before Linux 5.9; ENOSYS without CONFIG_FANOTIFY.
    """
    return libc.call(
        "fanotify_init", _CLOEXEC | _NONBLOCK | _REPORT_DIR_FID | _REPORT_NAME, os.O_RDONLY | os.O_CLOEXEC
    )


def follow_file_system(group: int, path: str) -> None:
    """Have events of the file system that ``path`` is on, whoever causes them and by whichever mount.

    Raises:
        OSError: EOPNOTSUPP, ENODEV or EXDEV where the file system has no handles, as some of the network have none.
    """
    libc.call(
        "fanotify_mark",
        group,
        _ADD | _FILE_SYSTEM,
        ctypes.c_uint64(FOLLOWED),
        _AT_FDCWD,
        os.fsencode(path),
    )


def system_of(path: str) -> tuple[int, int]:
    """How events name the file system of a path; raises OSError."""
    number = os.statvfs(path).f_fsid
    low, high = struct.unpack("=ii", struct.pack("=Q", number & 0xFFFFFFFFFFFFFFFF))
    return low, high


def read_events(group: int) -> Iterator[FileEvent]:
    """All that have come so far, the oldest first."""
    while True:
        try:
            data = os.read(group, _READ_SIZE)
        except BlockingIOError:
            return
        except InterruptedError:
            continue
        at = 0
        while at < len(data):
            length, _, _, head, mask, _, pid = _HEAD.unpack_from(data, at)
            yield _parse(data[at + head : at + length], Done(mask), pid)
            at += length


def _parse(record: bytes, done: Done, pid: int) -> FileEvent:
    if len(record) < _RECORD.size + _HANDLE.size or record[0] != _DIRECTORY_AND_NAME:
        return FileEvent(done, pid, (0, 0), b"", "")
    _, _, length, low, high = _RECORD.unpack_from(record)
    size, _ = _HANDLE.unpack_from(record, _RECORD.size)
    end = _RECORD.size + _HANDLE.size + size
    name = record[end:length].partition(b"\0")[0]
    return FileEvent(done, pid, (low, high), record[_RECORD.size : end], os.fsdecode(name))


def open_directory(mount: int, handle: bytes) -> int:
    """A descriptor (O_PATH) of the directory of an event; ``mount``: any descriptor on its file system.

    Raises:
        FileNotFoundError: the directory is gone.
        OSError: as open_by_handle_at(2).
    """
    try:
        return libc.call(
            "open_by_handle_at", mount, ctypes.create_string_buffer(handle), os.O_PATH | os.O_CLOEXEC
        )
    except OSError as error:
        if error.errno == errno.ESTALE:
            raise FileNotFoundError(errno.ENOENT, "the directory is gone") from None
        raise
