"""Which boot of the host this is: after another one CLOCK_MONOTONIC begins anew, and process numbers mean others."""

from __future__ import annotations

from pathlib import Path

__all__ = ["boot_id"]


def boot_id() -> str:
    """The kernel's own name for it, of which no two are the same; raises OSError where /proc does not tell."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
