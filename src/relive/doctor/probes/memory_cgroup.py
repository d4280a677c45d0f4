"""A memory cgroup with a counter of kills, by which a service that is killed for want of memory is told from others."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from relive.doctor.finding import Obstacle, ProbeResult, works
from relive.doctor.probe import ProbeContext

__all__ = ["memory_cgroup"]

_V1 = Path("/sys/fs/cgroup/memory")
_V2 = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
_LIMIT = 64 << 20  # [bytes]


def memory_cgroup(_ground: ProbeContext) -> ProbeResult:
    """Make one, give it a limit, read its counter, remove it."""
    name = f"relive-doctor-{os.getpid()}"
    if (_V1 / "memory.usage_in_bytes").exists():
        with _made(_V1 / name) as group:
            (group / "memory.limit_in_bytes").write_text(str(_LIMIT))
            return _counted(group / "memory.oom_control", "v1")
    for top in _V2:
        if "memory" in _words(top / "cgroup.controllers"):
            with _enabled(top), _made(top / name) as group:
                (group / "memory.max").write_text(str(_LIMIT))
                return _counted(group / "memory.events", "v2")
    raise Obstacle(
        "none",
        cause="no memory controller is mounted below /sys/fs/cgroup: kills for want of memory are only seen as SIGKILL",
        remedy="boot with cgroup_enable=memory, or give this container a cgroup of its own that it may write to",
    )


@contextlib.contextmanager
def _made(group: Path) -> Iterator[Path]:
    group.mkdir()
    try:
        yield group
    finally:
        group.rmdir()


@contextlib.contextmanager
def _enabled(top: Path) -> Iterator[None]:
    """The controller handed down to the cgroups below ``top``; taken back if it was not before."""
    control = top / "cgroup.subtree_control"
    if "memory" in _words(control):
        yield
        return
    control.write_text("+memory")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # someone else uses it by now
            control.write_text("-memory")


def _words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def _counted(path: Path, version: str) -> ProbeResult:
    figures = dict(line.split() for line in path.read_text().splitlines())
    if "oom_kill" not in figures:
        raise Obstacle(
            "no counter",
            cause=f"{path.name} has no line oom_kill",
            remedy="use a kernel of version 4.13 or later",
        )
    return works(f"cgroup {version}, {figures['oom_kill']} kills counted in a new one")
