"""Quantities in the words of people."""

from __future__ import annotations

import time

__all__ = ["age", "duration", "rate", "size", "when"]

_STEP = 1024.0


def size(count: float) -> str:
    """Bytes with a binary unit: ``12.3 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < _STEP:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= _STEP
    return f"{count:.1f} TiB"


def rate(count: float, seconds: float) -> str:
    """Bytes in a time: ``12.3 MiB/s``."""
    return f"{size(count / max(seconds, 0.001))}/s"


def duration(microseconds: float | None) -> str:
    """A span: ``850 us``, ``12.3 ms``, ``4.2 s``; a dash when it is not known."""
    if microseconds is None:
        return "-"
    if microseconds < 1000:
        return f"{microseconds:.0f} us"
    if microseconds < 1_000_000:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds / 1_000_000:.1f} s"


def when(wall_ns: int) -> str:
    """A moment in local time, to the millisecond."""
    seconds, rest = divmod(wall_ns, 1_000_000_000)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) + f".{rest // 1_000_000:03}"


def age(wall_ns: int) -> str:
    """How long ago: ``4 s``, ``3 min``, ``2 h``, ``5 d``."""
    seconds = max(0, time.time_ns() - wall_ns) / 1e9
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"
