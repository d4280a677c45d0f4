"""What people write to name a commit, as values; finding the commit is the store's business.

Forms: an id or a unique beginning of one (at least four digits); a tag; ``NAME`` or ``NAME@{now}`` for a capsule's newest
commit; ``NAME@{3}`` for the third before the newest; ``NAME@{2 minutes ago}``, ``NAME@{2026-11-20 03:14:07}`` for the newest
at that time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from relive.errors import RefUnknown

__all__ = ["AtTime", "Back", "CommitName", "Reference", "parse_reference"]

_PREFIX = re.compile(r"[0-9a-f]{4,64}")
_WITH_BRACES = re.compile(r"(?P<name>[^@{}]+)@\{(?P<when>[^}]*)\}")
_COUNT = re.compile(r"[0-9]{1,9}")
_AGO = re.compile(r"(?P<amount>[0-9]{1,9}(?:\.[0-9]+)?) (?P<unit>second|minute|hour|day|week)s? ago")
_LATEST_NS = (1 << 63) - 1  # SQLite's largest integer
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}


@dataclass(frozen=True, slots=True)
class CommitName:
    """A tag, the beginning of an id, or a target's name; tried in this order."""

    text: str

    @property
    def is_prefix(self) -> bool:
        """It could be the beginning of an id."""
        return _PREFIX.fullmatch(self.text) is not None


@dataclass(frozen=True, slots=True)
class Back:
    """The ``count``-th commit before a target's newest."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """A target's newest commit at a time, in nanoseconds since the epoch."""

    name: str
    wall_ns: int


Reference = CommitName | Back | AtTime


def parse_reference(text: str, *, now_ns: int) -> Reference:
    """Read a reference; times without a zone are local.

    Raises:
        RefUnknown: what stands in the braces is no count and no time.
    """
    match = _WITH_BRACES.fullmatch(text)
    if match is None:
        return CommitName(text)
    name, when = match["name"], match["when"].strip()
    if when in ("", "now"):
        return Back(name, 0)
    if _COUNT.fullmatch(when):
        return Back(name, int(when))
    ago = _AGO.fullmatch(when)
    if ago is not None:
        seconds = float(ago["amount"]) * _SECONDS[ago["unit"]]
        return AtTime(name, _within_index(now_ns - int(seconds * 1e9)))
    try:
        return AtTime(name, _within_index(int(datetime.fromisoformat(when).timestamp() * 1e9)))
    except (ValueError, OverflowError):  # the latter for years near 1 and 9999
        raise RefUnknown(
            f"{text!r} names no commit",
            cause=f"{when!r} is neither a count nor a time",
            remedy="write NAME@{3}, NAME@{2 minutes ago} or NAME@{2026-11-20 03:14:07}",
        ) from None


def _within_index(wall_ns: int) -> int:
    return max(0, min(wall_ns, _LATEST_NS))
