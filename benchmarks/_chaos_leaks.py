"""What chaos.py's services and kills have left on the host, once all of them have ended: it has to be nothing."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from relive.config import Settings

_GROUPS = Path("/sys/fs/cgroup")


def leaks(settings: Settings, name: str) -> list[str]:
    """Each process, mount, control group, branch and commit in the making that belongs to this home alone and is left."""
    return [
        *_processes(settings.home),
        *_mounts(settings.home),
        *_groups(name),
        *(f"branch {path.name}" for path in _listed(settings.branches)),
        *(f"incoming {path.name}" for path in _listed(settings.store / "incoming")),
    ]


def _processes(home: Path) -> Iterator[str]:
    """By their environment, which they all inherit; their namespaces live as long as they do."""
    wanted = f"RELIVE_HOME={home}".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                yield f"process {pid}: {words.decode(errors='replace')[:100]}"


def _mounts(home: Path) -> Iterator[str]:
    """In whatever mount namespace a process lives."""
    seen = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            namespace = os.readlink(f"/proc/{pid}/ns/mnt")
            if namespace not in seen:
                seen.add(namespace)
                for line in Path(f"/proc/{pid}/mountinfo").read_text(errors="replace").splitlines():
                    if f"{home}/" in line:
                        yield f"mount in {namespace}: {line[:160]}"


def _groups(name: str) -> Iterator[str]:
    pattern = re.compile(re.escape(name) + r"-[0-9a-f]+")
    for place in (*_GROUPS.glob("*/relive"), _GROUPS / "relive"):
        for group in _listed(place):
            if group.is_dir() and pattern.fullmatch(group.name) and not (group / "cgroup.procs").read_text():
                yield f"control group {group}"


def _listed(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []
