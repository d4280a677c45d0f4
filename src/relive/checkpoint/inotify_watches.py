"""Paths behind inotify watches, for CRIU, which has to know them and cannot find them on an overlay.

The kernel tells of a watch only the inode (proc_pid_fdinfo(5)). On other file systems CRIU opens that by handle, which
overlayfs does not support; there it takes a list of paths to compare (``irmap_scan_paths``). They are searched for while
the target still runs.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import deque
from pathlib import Path

from relive.kernel import procfs

__all__ = ["watched_paths"]

_WATCH = re.compile(r"^inotify wd:\S+ ino:(?P<inode>[0-9a-f]+) sdev:(?P<device>[0-9a-f]+)", re.MULTILINE)
_MINOR_BITS = 20  # of a device number inside the kernel
_KERNEL_DIRECTORIES = ("/proc", "/sys", "/dev")
_LONGEST_SEARCH = 3.0  # [s]

Inode = tuple[int, int]
"""(device, inode number)"""


def watched_paths(root: int) -> list[str]:
    """Paths, as the target sees them, of the files and directories that the tree of ``root`` watches with inotify.

    The search begins where a watch is likely (working directories, directories of open files, arguments) and is given up
    after ``_LONGEST_SEARCH``; what was not found is missing in the answer, and CRIU will say so.
    """
    pids = procfs.tree_of(root)
    wanted = {inode for pid in pids for inode in _watches(pid)}
    if not wanted:
        return []
    view = Path(f"/proc/{root}/root")
    found: list[str] = []
    until = time.monotonic() + _LONGEST_SEARCH
    seen: set[str] = set()
    for start in [*_likely(pids), "/"]:
        if not wanted or time.monotonic() > until:
            break
        _search(view, start, wanted, found, seen, until)
    return found


def _watches(pid: int) -> list[Inode]:
    found: list[Inode] = []
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{name}") == "anon_inode:inotify":
                    found += _parse(Path(f"/proc/{pid}/fdinfo/{name}").read_text())
    return found


def _parse(text: str) -> list[Inode]:
    found = []
    for match in _WATCH.finditer(text):
        device = int(match["device"], 16)
        found.append(
            (os.makedev(device >> _MINOR_BITS, device & (1 << _MINOR_BITS) - 1), int(match["inode"], 16))
        )
    return found


def _likely(pids: list[int]) -> list[str]:
    """Directories to begin with, the most likely first."""
    places: dict[str, None] = {}
    for pid in pids:
        for name in ("cwd", *(f"fd/{fd}" for fd in _descriptors(pid))):
            with contextlib.suppress(OSError):
                path = os.readlink(f"/proc/{pid}/{name}")
                if path.startswith("/") and not path.startswith(_KERNEL_DIRECTORIES):
                    places[path if name == "cwd" else str(Path(path).parent)] = None
        with contextlib.suppress(OSError):
            for word in Path(f"/proc/{pid}/cmdline").read_text(errors="surrogateescape").split("\0"):
                if word.startswith("/"):
                    places[word] = None
                    places[str(Path(word).parent)] = None
    places.pop("/", None)
    return list(places)


def _descriptors(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return []


def _search(
    view: Path, start: str, wanted: set[Inode], found: list[str], seen: set[str], until: float
) -> None:
    """Look at a place and all below it, breadth first; moves what it finds from ``wanted`` to ``found``."""
    _compare(view, start, wanted, found)
    pending = deque([start])
    while pending and wanted and time.monotonic() < until:
        directory = pending.popleft()
        if directory in seen or directory.startswith(_KERNEL_DIRECTORIES):
            continue
        seen.add(directory)
        numbers = {number for _, number in wanted}
        with contextlib.suppress(OSError), os.scandir(view / directory.lstrip("/")) as children:
            for child in children:
                path = f"{directory.rstrip('/')}/{child.name}"
                if child.inode() in numbers:
                    _compare(view, path, wanted, found)
                if child.is_dir(follow_symlinks=False):
                    pending.append(path)


def _compare(view: Path, path: str, wanted: set[Inode], found: list[str]) -> None:
    with contextlib.suppress(OSError):
        facts = (view / path.lstrip("/")).lstat()
        if (facts.st_dev, facts.st_ino) in wanted:
            wanted.discard((facts.st_dev, facts.st_ino))
            found.append(path)
