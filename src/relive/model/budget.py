"""By how many bytes an hour commits may have the store grow, as users write it: ``2GB/h``."""

from __future__ import annotations

import re

from relive.errors import UsageError

__all__ = ["NO_BUDGET", "SECONDS", "Budget", "parse_budget"]

NO_BUDGET = "none"
SECONDS = 3600.0  # that a budget is for
_BUDGET = re.compile(r"(?P<number>[0-9]{1,15}(?:\.[0-9]{1,6})?)(?P<unit>[kKMGT]?i?)B/h")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}

Budget = str
"""What ``--budget`` takes: "2GB/h", "500MiB/h" or "none"."""


def parse_budget(text: Budget) -> int | None:
    """Bytes an hour, at least 1; None: as many as there are. KB, MB, GB are powers of 1000, KiB, MiB, GiB of 1024.

    Raises:
        UsageError: it is none.
    """
    if text == NO_BUDGET:
        return None
    found = _BUDGET.fullmatch(text)
    unit = found["unit"].upper() if found is not None else ""
    power = _POWERS.get(unit.removesuffix("I"))
    budget = 0
    if found is not None and power is not None and unit != "I":
        budget = int(float(found["number"]) * (1024 if unit.endswith("I") else 1000) ** power)
    if budget < 1:
        raise UsageError(
            f"--budget cannot be {text!r}",
            remedy="write bytes an hour such as 2GB/h or 500MiB/h, or none; for a share of the time there is --pause-share",
        )
    return budget
