"""The calls of a request that a reader wants to see first: those that failed, then the slowest."""

from __future__ import annotations

from collections.abc import Sequence

from relive.incidents.report.shapes import shape
from relive.incidents.report.timeline import Row
from relive.incidents.report.words import CALLS

__all__ = ["worst_calls"]

_LATEST = 2000  # calls that are looked at


def worst_calls(rows: Sequence[Row], most: int) -> list[Row]:
    """At most so many: the last that failed, latest first, then the slowest.

    Of failed calls of one shape only the last stands there, ``count`` telling how many there were; of a shape with a failed
    call the others are left out.
    """
    own = (row for row in rows if row.kind in CALLS and not row.outside)
    calls = [row for row in own if not row.details.get("within_a_call")][-_LATEST:]
    failed: dict[tuple[str, str], list[Row]] = {}
    for row in reversed(calls):
        if row.failed:
            failed.setdefault(shape(row), []).append(row)
    first = [alike[0].model_copy(update={"count": len(alike)}) for alike in failed.values()]
    rest = [row for row in calls if not row.failed and shape(row) not in failed]
    rest.sort(key=lambda row: -(row.took_ns or 0))
    return [*first, *rest][:most]
