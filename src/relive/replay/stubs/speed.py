"""How fast recorded answers come: ``--speed``."""

from __future__ import annotations

import math
import re

from relive.errors import UsageError

__all__ = ["AS_RECORDED", "Speed", "parse_speed"]

_NUMBER = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?")


class Speed(float):
    """Recorded pauses are divided by it: 1 as recorded, infinite for none at all."""

    def seconds(self, nanoseconds: float) -> float:
        """How long a recorded pause lasts now."""
        return nanoseconds / 1e9 / self


AS_RECORDED = Speed(1)


def parse_speed(text: str) -> Speed:
    """Read ``--speed``: a number above 0, or "max"; raises UsageError."""
    if text == "max":
        return Speed(math.inf)
    number = float(text) if _NUMBER.fullmatch(text) else 0.0
    if number <= 0:
        raise UsageError(f"--speed cannot be {text!r}", remedy="write a number such as 1, 10 or 0.5, or max")
    return Speed(number)
