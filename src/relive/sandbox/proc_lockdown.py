"""The parts of /proc and /sys that act on the whole machine, closed to root in a sandbox."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from relive.kernel.mounts import MountFlag, bind, mount

__all__ = ["close_proc"]

_PROC = Path("/proc")
_READ_ONLY = [_PROC / name for name in ("sys", "irq", "bus", "fs", "sysrq-trigger")]
_HIDDEN = [_PROC / name for name in ("kcore", "keys", "timer_list", "sched_debug", "kallsyms")]


def close_proc(null: Path = Path("/dev/null")) -> None:
    """Close them in the caller's mount namespace. What a container's engine had closed already stays as it is.

    Done at the last moment, since CRIU itself writes to /proc/sys while it restores.

    Args:
        null: what is shown instead of what is hidden.
    """
    for path in _READ_ONLY:
        if path.exists() and not os.statvfs(path).f_flag & os.ST_RDONLY:
            bind(path, path, read_only=True)
    for path in _HIDDEN:
        if path.exists() and not stat.S_ISCHR(path.stat().st_mode):
            bind(null, path)
    if os.path.ismount("/sys") and not os.statvfs("/sys").f_flag & os.ST_RDONLY:
        mount("none", Path("/sys"), None, MountFlag.REMOUNT | MountFlag.BIND | MountFlag.READ_ONLY)
