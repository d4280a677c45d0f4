"""What differs between a request that failed and the last one to its route that went well: decided from two timelines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relive.incidents.report.shapes import shape
from relive.incidents.report.timeline import Row, Timeline
from relive.incidents.report.words import CALLS
from relive.model.quantities import duration
from relive.model.value import Value
from relive.recording.events import EventKind

__all__ = ["Contrast", "Difference", "contrast"]

_SLOWER, _SLOWER_LEAST_NS = 3.0, 10_000_000  # times and [ns] more, from which on it counts as slower
_MOST = 20
_MISSING = "not asked"
_REQUEST = frozenset({EventKind.REQUEST_STARTED})
Shape = tuple[str, str]


class Difference(Value):
    """One step of both requests, or of one of them.

    Attributes:
        what: the request, or a call it made, as in the timeline.
        now, then: what came of it in the one that failed, and in the one that went well; "not asked" where it made none.
        failed: the call failed now.
    """

    kind: EventKind
    what: str
    now: str
    then: str
    failed: bool = False


class Contrast(Value):
    """See the module.

    Attributes:
        request: number of the good one in the proxy's recording; target: as the client wrote it.
        before_ns: how long before the other it began.
        differences: at most 20, the request itself first, then calls that failed, then in the order of time.
        left_out: how many more there were.
    """

    request: int
    target: str
    before_ns: int
    differences: list[Difference]
    left_out: int = 0


def contrast(request: int, target: str, before_ns: int, now: Timeline, then: Timeline) -> Contrast:
    """Compare.

    Args:
        request, target, before_ns: of the good one.
        now: of the request that failed; then: of the good one.
    """
    found = [*_whole(now.rows, then.rows), *_calls(now.rows, then.rows)]
    found.sort(key=lambda one: (one.kind not in _REQUEST, not one.failed))
    return Contrast(
        request=request,
        target=target,
        before_ns=before_ns,
        differences=found[:_MOST],
        left_out=max(0, len(found) - _MOST),
    )


def _whole(now: Sequence[Row], then: Sequence[Row]) -> Iterator[Difference]:
    one, other = (next((row for row in rows if row.kind in _REQUEST), None) for rows in (now, then))
    if one is not None and other is not None:
        yield Difference(
            kind=one.kind, what=one.what, now=_with_time(one), then=_with_time(other), failed=one.failed
        )


def _calls(now: Sequence[Row], then: Sequence[Row]) -> Iterator[Difference]:
    """Calls of the same shape are compared one by one where there are as many, else as a whole."""
    ours, theirs = _by_shape(now), _by_shape(then)
    for one in dict.fromkeys([*ours, *theirs]):
        mine, other = ours.get(one, []), theirs.get(one, [])
        if len(mine) == len(other):
            pairs = [(left, right) for left, right in zip(mine, other, strict=True) if _differ(left, right)]
            yield from (
                _difference(left, _with_time(left), _with_time(right), failed=left.failed)
                for left, right in pairs[:_MOST]
            )
        else:
            first = (mine or other)[0]
            failed = any(row.failed for row in mine)
            yield _difference(first, _several(mine), _several(other), failed=failed)


def _by_shape(rows: Sequence[Row]) -> dict[Shape, list[Row]]:
    found: dict[Shape, list[Row]] = {}
    for row in rows:
        if row.kind in CALLS and not row.outside and not row.details.get("within_a_call"):
            found.setdefault(shape(row), []).append(row)
    return found


def _differ(now: Row, then: Row) -> bool:
    if now.failed != then.failed or now.result != then.result:
        return True
    return is_slower(now.took_ns, then.took_ns)


def is_slower(now_ns: int | None, then_ns: int | None) -> bool:
    """It took three times as long, and ten milliseconds more."""
    if now_ns is None or then_ns is None:
        return False
    return now_ns > then_ns * _SLOWER and now_ns - then_ns > _SLOWER_LEAST_NS


def _difference(row: Row, now: str, then: str, *, failed: bool) -> Difference:
    return Difference(kind=row.kind, what=row.what, now=now, then=then, failed=failed)


def _with_time(row: Row) -> str:
    took = duration(row.took_ns / 1000) if row.took_ns is not None else ""
    return ", ".join(filter(None, [row.result, took]))


def _several(rows: Sequence[Row]) -> str:
    if not rows:
        return _MISSING
    words = _with_time(next((row for row in rows if row.failed), rows[-1]))
    return words if len(rows) == 1 else f"{len(rows)} times, {words}"
