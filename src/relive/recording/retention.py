"""Which segments of a recording are dropped: the oldest, by size and age, but for those that incidents need.

The agent pins what an incident needs, in the file ``pinned`` beside the segments: a line ``FIRST LAST`` for each range of events.
What is pinned is bounded as well: where it alone is more than the bound, the oldest of it goes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RecordingSegment", "excess", "pin", "pinned_ranges"]

_PINNED = "pinned"


@dataclass(frozen=True, slots=True)
class RecordingSegment:
    """One file of a recording. ``first``: number of its first event; ``written_ns``: when it was written to last, wall clock."""

    path: Path
    first: int
    size: int
    written_ns: int


def excess(
    segments: Sequence[RecordingSegment],
    pinned: Sequence[tuple[int, int]],
    *,
    keep_bytes: int | None,
    oldest_ns: int | None,
) -> list[RecordingSegment]:
    """Those that are to be dropped. The last one, which is being written, never is.

    Args:
        segments: all, oldest first.
        pinned: first and last number of each range of events that incidents need.
        keep_bytes: most bytes of all that is not pinned, and of all that is; None: no bound.
        oldest_ns: what was written to last before this moment is dropped, unless it is pinned; None: nothing is for its age.
    """
    dropped: list[RecordingSegment] = []
    held = {True: 0, False: 0}
    for number in range(len(segments) - 1, -1, -1):  # newest first, so that the oldest are what is too much
        one = segments[number]
        behind = segments[number + 1].first if number + 1 < len(segments) else None
        is_pinned = any(last >= one.first and (behind is None or first < behind) for first, last in pinned)
        held[is_pinned] += one.size
        is_too_much = keep_bytes is not None and held[is_pinned] > keep_bytes
        is_too_old = oldest_ns is not None and one.written_ns < oldest_ns and not is_pinned
        if behind is not None and (is_too_much or is_too_old):
            dropped.append(one)
    return dropped[::-1]


def pin(directory: Path, first: int, last: int) -> None:
    """Have the events of a recording kept from ``first`` to ``last``.

    Raises:
        OSError: the disk is full.
    """
    line = f"{first} {last}\n".encode()
    descriptor = os.open(directory / _PINNED, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def pinned_ranges(directory: Path) -> list[tuple[int, int]]:
    """What was pinned; a line that is damaged is none."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for line in (directory / _PINNED).read_bytes().split(b"\n"):
            with contextlib.suppress(ValueError):
                first, last = line.split()
                found.append((int(first), int(last)))
    return found
