"""Large files in directories in which a service writes: what it costs to keep them is decided by their file system."""

from __future__ import annotations

import contextlib
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from relive.check.snapshot import DataFile
from relive.kernel.mounts import Mount

__all__ = ["large_files"]

_MOST_LOOKED_AT = 20_000  # files and directories, in all
_KERNEL = ("/proc", "/sys", "/dev", "/run")


def large_files(
    root: int, places: Iterable[str], mounts: Mapping[int, Mount], least: int
) -> Iterator[DataFile]:
    """Regular files of more than ``least`` bytes below the places, as the process ``root`` sees them; links are not followed.

    The search ends after ``_MOST_LOOKED_AT`` names: a directory with a million files is no reason to make its user wait.
    """
    by_device = {one.device: one.kind for one in mounts.values()}
    pending = deque(place for place in places if place != "/" and not place.startswith(_KERNEL))
    done: set[str] = set()
    left = _MOST_LOOKED_AT
    while pending and left > 0:
        place = pending.popleft()
        if place in done:
            continue
        done.add(place)
        with contextlib.suppress(OSError), os.scandir(f"/proc/{root}/root{place}") as children:
            for child in children:
                left -= 1
                if left <= 0:
                    break
                with contextlib.suppress(OSError):
                    facts = child.stat(follow_symlinks=False)
                    path = str(Path(place) / child.name)
                    if stat.S_ISDIR(facts.st_mode):
                        pending.append(path)
                    elif stat.S_ISREG(facts.st_mode) and facts.st_size > least:
                        device = f"{os.major(facts.st_dev)}:{os.minor(facts.st_dev)}"
                        yield DataFile(path, facts.st_size, by_device.get(device, "its file system"))
