"""Logs that stood for pipes and terminals of a branch that was kept: its commit has them open, and they are no part of it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from relive.images.sockets import read_files
from relive.sandbox.rootfs import IO_DIRECTORY

__all__ = ["make_kept_logs"]

_PLACE = str(IO_DIRECTORY).lstrip("/")
_NAME = re.compile(rf"/?{_PLACE}/(outlet-[0-9]+\.log)")


def make_kept_logs(images: Path, io: Path) -> None:
    """Make those that the images name, as long as they were, which CRIU asks for; what was said in them is a hole.

    Raises:
        OSError: one cannot be made so long.
    """
    if f"{_PLACE}/outlet-".encode() not in (images / "files.img").read_bytes():
        return
    for entry in read_files(images):
        found = _NAME.fullmatch(entry.reg.name) if entry.HasField("reg") else None
        if found is not None:
            (io / found[1]).touch()
            os.truncate(io / found[1], entry.reg.size)
