"""Which files the processes of a tree have open or mapped, as they see the paths. Read from /proc, without a decision."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable

from relive.kernel import procfs

__all__ = ["open_link_targets", "open_paths", "shared_writable_paths", "writable_paths"]

# The last: where a capsule finds its standard output, which is kept apart from what a commit holds, and the recorder's rings,
# of which a branch gets others.
_NO_FILES_OF_ITS_OWN = ("/proc/", "/dev/", "/sys/", "/run/relive/")
_MAY_BE_SHARED = re.compile(rb" .w.s ")  # found in a quarter of the time; mostly there is none
_SHARED_WRITABLE = re.compile(rb"^[0-9a-f-]+ .w.s \S+ \S+ \d+ +(/.*)$", re.MULTILINE)


def open_link_targets(pid: int) -> list[str]:
    """What the descriptors of a process lead to, as /proc/PID/fd says it."""
    targets = []
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                targets.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return targets


def open_paths(root: int) -> set[str]:
    """Files and sockets with a name that processes of the tree have open."""
    targets = {target for pid in procfs.tree_of(root) for target in open_link_targets(pid)}
    return {
        target for target in targets if target.startswith("/") and not target.startswith(_NO_FILES_OF_ITS_OWN)
    }


def writable_paths(processes: Iterable[int]) -> set[str]:
    """Files that one of these processes has open for writing."""
    found = set()
    for pid in processes:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as links:
            for link in links:
                with contextlib.suppress(OSError):
                    # The permissions of the link say how the file was opened (proc_pid_fd(5)).
                    if link.stat(follow_symlinks=False).st_mode & stat.S_IWUSR:
                        target = os.readlink(link.path)
                        if target.startswith("/"):
                            found.add(target)
    return found


def shared_writable_paths(processes: Iterable[int]) -> set[str]:
    """Files that one of these processes has mapped shared and writable.

    Called while the target stands still, so the mappings are searched as bytes and not parsed one by one.
    """
    found: set[bytes] = set()
    for pid in processes:
        with contextlib.suppress(OSError):
            maps = procfs.read_file(f"/proc/{pid}/maps")
            if _MAY_BE_SHARED.search(maps) is not None:
                found.update(_SHARED_WRITABLE.findall(maps))
    return {path for raw in found if not (path := os.fsdecode(raw)).startswith("/run/relive/")}
