"""Filters by which a service asks before it changes files (``kernel.seccomp``): in a branch nobody is there to answer.

Restored as it is, each such call would fail with ENOSYS (seccomp(2), SECCOMP_RET_USER_NOTIF without a listener), so it is allowed.
"""

from __future__ import annotations

import struct
from pathlib import Path

from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries, write_entries

__all__ = ["ask_nobody", "without_asking"]

_STEP = struct.Struct("<HBBI")  # struct sock_filter
_RETURN = 0x06
_USER_NOTIFY, _ALLOW, _ACTION = 0x7FC00000, 0x7FFF0000, 0xFFFF0000


def ask_nobody(images: Path) -> None:
    """Let what asked go on, in the filters of a commit laid out in ``images``.

    Raises:
        ObjectCorrupt: an image is damaged.
    """
    path = images / "seccomp.img"
    if not path.exists():
        return
    found = read_entries(path, pb.SeccompEntry)
    for entry in found:
        for one in entry.seccomp_filters:
            one.filter = without_asking(one.filter)
    write_entries(path, found)


def without_asking(code: bytes) -> bytes:
    """The same filter (struct sock_filter[]) with each return of USER_NOTIF one of ALLOW."""
    whole = len(code) - len(code) % _STEP.size
    steps = []
    for step, if_so, if_not, value in _STEP.iter_unpack(code[:whole]):
        is_asking = step == _RETURN and value & _ACTION == _USER_NOTIFY
        steps.append(_STEP.pack(step, if_so, if_not, _ALLOW if is_asking else value))
    return b"".join(steps) + code[whole:]
