"""Giving memory back to the system that this process has freed: glibc keeps it, for each of its arenas."""

from __future__ import annotations

import contextlib

from relive.kernel import libc

__all__ = ["FEW_ARENAS", "trim_memory"]

FEW_ARENAS = {"MALLOC_ARENA_MAX": "2"}
"""Variables for a long-lived process with threads: without, each thread that allocates keeps up to 64 MiB of its own."""


def trim_memory() -> None:
    """Takes a few milliseconds, in which other threads go on; nothing is done where the C library has no such call."""
    with contextlib.suppress(AttributeError):
        libc.call("malloc_trim", 0)
