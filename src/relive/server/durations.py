"""How long something is valid, as it is written: ``30m``, ``12h``, ``90d``, ``4w``, ``never``."""

from __future__ import annotations

import re

from relive.errors import UsageError

__all__ = ["parse_lifetime"]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LONGEST = 100 * 366 * 86_400  # [s] beyond it nanoseconds would not fit the database


def parse_lifetime(text: str) -> int | None:
    """Seconds; None for ``never``.

    Raises:
        UsageError: it is no lifetime, or longer than a hundred years.
    """
    if text == "never":
        return None
    match = re.fullmatch(r"([0-9]{1,10})([smhdw])", text, re.ASCII)
    seconds = int(match[1]) * _SECONDS[match[2]] if match else 0
    if not 0 < seconds <= _LONGEST:
        raise UsageError(f"{text!r} is no lifetime", remedy="write 30m, 12h, 90d, 4w or never")
    return seconds
