"""How much memory this host has (proc_meminfo(5))."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["HostMemory", "read_meminfo"]


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Bytes. ``available``: what the kernel could give to new programs without swapping, by its own estimate."""

    total: int
    available: int


def read_meminfo() -> HostMemory:
    """As it is now."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    total, available = (int(fields[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable"))
    return HostMemory(total, available)
