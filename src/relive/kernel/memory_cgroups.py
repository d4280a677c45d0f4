"""Memory control groups of either version (cgroups(7)), as far as agents and branches read them alike."""

from __future__ import annotations

from pathlib import Path

__all__ = ["oom_kills"]

_EVENTS = ("memory.oom_control", "memory.events")  # of versions 1 and 2


def oom_kills(directory: Path) -> int:
    """Processes of a group that the kernel has killed for want of memory so far; 0 where it is gone, or no memory group."""
    for name in _EVENTS:
        try:
            lines = (directory / name).read_text().splitlines()
        except OSError:
            continue
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    return 0
