"""The locks of files as another process meets them: what it would have to wait for.

python lockprobe.py FILE...     prints, by path and kind of lock, for each byte range the lock there, as JSON
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import sys

_FLOCK = struct.Struct("hhqqi4x")  # struct flock of x86-64 and arm64
_OFD_GETLK = 36
_NAMES = {fcntl.F_RDLCK: "read", fcntl.F_WRLCK: "write"}

Held = list[list[object]]


def ranges(descriptor: int, command: int, wanted: int) -> Held:
    """[start, length, kind, owner] of each lock in the way of a lock of the ``wanted`` kind; length 0: to the end."""
    found: Held = []
    start = 0
    while True:
        asked = _FLOCK.pack(wanted, os.SEEK_SET, start, 0, 0)
        kind, _, at, length, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, command, asked))
        if kind == fcntl.F_UNLCK:
            return sorted(found, key=str)
        # The first one found is told, which need not be the first in the file: look before it too.
        found += _between(descriptor, command, wanted, start, at)
        found.append([at, length, _NAMES[kind], pid])
        if length == 0:
            return sorted(found, key=str)
        start = at + length


def _between(descriptor: int, command: int, wanted: int, start: int, end: int) -> Held:
    if end <= start:
        return []
    asked = _FLOCK.pack(wanted, os.SEEK_SET, start, end - start, 0)
    kind, _, at, length, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, command, asked))
    if kind == fcntl.F_UNLCK:
        return []
    after = [] if length == 0 else _between(descriptor, command, wanted, at + length, end)
    return [*_between(descriptor, command, wanted, start, at), [at, length, _NAMES[kind], pid], *after]


def whole(descriptor: int) -> str:
    """What flock(2) meets."""
    for kind, name in ((fcntl.LOCK_EX, "free"), (fcntl.LOCK_SH, "shared")):
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return name
    return "exclusive"


def locks(path: str) -> dict[str, object]:
    """All that can be found out of one file."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        return {
            "against write": ranges(descriptor, fcntl.F_GETLK, fcntl.F_WRLCK),
            "against read": ranges(descriptor, fcntl.F_GETLK, fcntl.F_RDLCK),
            "against read of a description": ranges(descriptor, _OFD_GETLK, fcntl.F_RDLCK),
            "flock": whole(descriptor),
        }
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    print(json.dumps({path: locks(path) for path in sys.argv[1:]}))
