"""Files of the host as branches map them: seen through an overlay of the root that is mounted nowhere.

Of a file that a branch has mapped the kernel keeps the host's open, as an overlay below the branch's root sees it
(``relive.sandbox.rootfs``). What is mapped for many branches at once (``criu_template``) is seen in the same way: it keeps nothing
of the host from being unmounted, has its name whatever becomes of that on the host, and the host's bytes, as overlayfs has them.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path

from relive.kernel.mounts import make_private, mount, mount_overlay, unmount
from relive.kernel.namespaces import in_new_mounts
from relive.kernel.openat2 import look_without_links

__all__ = ["open_host_files"]

_PLACE = Path("/run")  # hidden by a tmpfs in a namespace that nobody else sees
_SETTLED_NS = 1_000_000_000


def open_host_files(names: Iterable[str]) -> dict[str, int]:
    """Descriptors, for the caller to close, of those of these paths that are regular files on the file system of the root.

    A file that changed within the last second is left out: who compares its time of change could not tell it from a copy that is
    made now.

    Raises:
        OSError: an overlay of the root cannot be mounted here.
    """
    return in_new_mounts(lambda: _open_all(names))


def _open_all(names: Iterable[str]) -> dict[str, int]:
    make_private()
    mount("tmpfs", _PLACE, "tmpfs")
    empty, seen = _PLACE / "empty", _PLACE / "seen"
    empty.mkdir()
    seen.mkdir()
    mount_overlay(seen, lower=[empty, Path("/")], upper=None, work=None)
    root = os.open(seen, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        unmount(seen)  # while it is mounted, the names of what is opened begin with this place
        found = {name: _open_settled(root, name) for name in names}
    finally:
        os.close(root)
    return {name: descriptor for name, descriptor in found.items() if descriptor is not None}


def _open_settled(root: int, name: str) -> int | None:
    try:
        looked_at = look_without_links(root, name)
    except OSError:
        return None
    try:
        facts = os.fstat(looked_at)
        if not stat.S_ISREG(facts.st_mode) or time.time_ns() - facts.st_ctime_ns < _SETTLED_NS:
            return None
        return os.open(f"/proc/thread-self/fd/{looked_at}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(looked_at)
