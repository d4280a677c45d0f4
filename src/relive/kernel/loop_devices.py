"""Loop devices (loop(4)): a file as a block device."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

__all__ = ["read_only_device"]

_CONTROL = "/dev/loop-control"
_GET_FREE, _CONFIGURE = 0x4C82, 0x4C0A
_READ_ONLY, _AUTOCLEAR = 1, 4
# struct loop_config: descriptor, block size, loop_info64, reserved.
_CONFIG = struct.Struct("<II 5Q4I 192x 8Q")
_TRIES = 64  # others take free ones too


@contextlib.contextmanager
def read_only_device(file: int) -> Iterator[Path]:
    """A device with the bytes of an open file. It is let go when this ends and it is mounted nowhere (any more).

    Raises:
        OSError: there is none on this machine, or it may not be used (Linux 5.8 for LOOP_CONFIGURE).
    """
    path, device = _attached(file)
    try:
        yield path
    finally:
        os.close(device)


def _attached(file: int) -> tuple[Path, int]:
    config = _CONFIG.pack(file, 0, 0, 0, 0, 0, 0, 0, 0, 0, _READ_ONLY | _AUTOCLEAR, *[0] * 8)
    control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_TRIES):
            path = Path(f"/dev/loop{fcntl.ioctl(control, _GET_FREE)}")
            device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, _CONFIGURE, config)
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:
                    raise
            else:
                return path, device
    finally:
        os.close(control)
    raise OSError(errno.EBUSY, "others have taken each free loop device first", _CONTROL)
