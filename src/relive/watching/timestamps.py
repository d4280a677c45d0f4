"""Times as engines of containers write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

__all__ = ["moment"]

_FRACTION = re.compile(r"\.(\d+)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(text: str) -> int:
    """A time as engines write it, with 0 to 9 digits behind the point, in nanoseconds since the epoch."""
    digits = _FRACTION.search(text)
    whole = datetime.fromisoformat(_FRACTION.sub("", text).replace("Z", "+00:00"))
    seconds = round((whole - _EPOCH).total_seconds())
    return seconds * 1_000_000_000 + (int(digits[1].ljust(9, "0")) if digits is not None else 0)
