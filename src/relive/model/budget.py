"""What commits may cost, as users write it: ``2GB/h`` of the store, ``5%`` of the service's time, or both with a comma."""

from __future__ import annotations

import re
from typing import NamedTuple

from relive.errors import UsageError

__all__ = ["NO_BUDGET", "SECONDS", "Budget", "Limits", "parse_budget"]

NO_BUDGET = "none"
SECONDS = 3600.0  # that a budget is for
_BUDGET = re.compile(r"(?P<number>[0-9]{1,15}(?:\.[0-9]{1,6})?)(?P<unit>[kKMGT]?i?)B/h")
_SHARE = re.compile(r"(?P<percent>[0-9]{1,3}(?:\.[0-9]{1,6})?)%")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}

Budget = str
"""What ``--budget`` takes: "2GB/h", "500MiB/h", "5%", "5%,2GB/h" or "none"."""


class Limits(NamedTuple):
    """A budget.

    Attributes:
        bytes: an hour by which the store may grow, at least 1; None: as many as there are.
        share: of the service's time, above 0 and at most 1, that commits may cost it; None: all.
    """

    bytes: int | None = None
    share: float | None = None


def parse_budget(text: Budget) -> Limits:
    """KB, MB, GB are powers of 1000, KiB, MiB, GiB of 1024.

    Raises:
        UsageError: it is none.
    """
    if text == NO_BUDGET:
        return Limits()
    found = Limits()
    for part in text.split(","):
        count, share = _bytes(part), _share(part)
        is_new = (found.bytes if share is None else found.share) is None
        if (count is None and share is None) or not is_new:
            raise UsageError(
                f"--budget cannot be {text!r}",
                remedy="write bytes an hour such as 2GB/h, a share of the service's time such as 5%, both with a comma, or none",
            )
        found = Limits(count or found.bytes, share or found.share)
    return found


def _share(text: str) -> float | None:
    found = _SHARE.fullmatch(text)
    share = float(found["percent"]) / 100 if found is not None else 0.0
    return share if 0 < share <= 1 else None


def _bytes(text: str) -> int | None:
    found = _BUDGET.fullmatch(text)
    unit = found["unit"].upper() if found is not None else ""
    power = _POWERS.get(unit.removesuffix("I"))
    if found is None or power is None or unit == "I":
        return None
    return int(float(found["number"]) * (1024 if unit.endswith("I") else 1000) ** power) or None
