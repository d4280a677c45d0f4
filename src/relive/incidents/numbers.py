"""Numbers of incidents: 1, 2, 3, ..., none of them ever given twice, also when the incident that had it is gone.

The file ``last-number`` holds the last one that was given, in decimal. It is locked (flock) while the next is taken, and found anew
from the names in the directory when it is missing or torn.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

from relive.model.text import is_number

__all__ = ["allocate_number"]

_NAME = re.compile(r"([0-9]{1,18})\.json")


def allocate_number(directory: Path) -> int:
    """The next number, durable on return; ``NUMBER.json`` is then there, empty, so that a Relive without this file sees it."""
    descriptor = os.open(directory / "last-number", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        number = _last(descriptor, directory)
        while True:
            number += 1
            try:
                os.close(os.open(directory / f"{number}.json", os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
                break
            except FileExistsError:  # an older Relive took it, or it was copied here
                continue
        try:
            os.pwrite(descriptor, b"%d\n" % number, 0)
            os.fsync(descriptor)
        except BaseException:
            (directory / f"{number}.json").unlink()
            raise
        return number
    finally:
        os.close(descriptor)


def _last(descriptor: int, directory: Path) -> int:
    text = os.pread(descriptor, 32, 0).decode(errors="replace")
    if text.endswith("\n") and is_number(text[:-1]):
        return int(text)
    taken = (match for match in map(_NAME.fullmatch, os.listdir(directory)) if match is not None)
    return max((int(match[1]) for match in taken), default=0)
