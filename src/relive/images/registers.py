"""Where the threads of a commit stand: the registers in CRIU's core images (core-TID.img, one for each thread)."""

from __future__ import annotations

import re
from pathlib import Path

from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries
from relive.model.outcome import ThreadPlace

__all__ = ["read_places"]

_CORE = re.compile(r"core-(?P<thread>[0-9]{1,10})\.img")


def read_places(images: Path) -> list[ThreadPlace]:
    """Of all threads, in the order of their numbers inside.

    CRIU sets a thread that it took out of a system call back to the instruction of the call (2 bytes), so that it is made again.

    Raises:
        ObjectCorrupt: as ``read_entries``.
    """
    found = []
    for path in images.iterdir():
        match = _CORE.fullmatch(path.name)
        if match is None:
            continue
        core = read_entries(path, pb.CoreEntry)[0]
        if core.HasField("thread_info"):
            registers = core.thread_info.gpregs
            found.append(
                ThreadPlace(thread=int(match["thread"]), instruction=registers.ip, stack=registers.sp)
            )
    return sorted(found, key=lambda place: place.thread)
