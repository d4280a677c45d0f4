"""A timeline in so many rows as a page can hold: what repeats stands in one row, and no failure is ever left out.

Kept as they are: the request and its handler, commits, failed rows, and the last rows before the failure. The others of one lane
that ask the same but for values become one row from the beginning of the first to the end of the last. Failed rows are
aggregated only where they alone are too many, and of each shape the first and the last stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relive.incidents.report.shapes import shape
from relive.incidents.report.timeline import Row
from relive.model.quantities import duration
from relive.recording.events import EventKind

__all__ = ["condensed"]

_KEPT = frozenset({EventKind.REQUEST_STARTED, EventKind.HANDLING_STARTED, EventKind.COMMIT_TAKEN})
_FEW = 3  # rows alike that stay as they are
# Shares of the rows that are for the last ones before the failure: the largest for which there is room.
_LAST_SHARES = (0.8, 0.5, 0.3)

Group = tuple[str, bool, int | None, int, bool, tuple[str, str]]


def condensed(rows: Sequence[Row], most: int) -> list[Row]:
    """At most ``most`` rows (at least 10) in the order in which they began; all of them where they are not more.

    ``count`` of a row tells how many it stands for. Where rows of different shapes are still too many, the quickest that did
    not fail are left out; the sum of all counts is less than the number of rows then.
    """
    if len(rows) <= most:
        return list(rows)
    ends = _end(rows)
    for share in _LAST_SHARES:
        last = {id(row) for row in ends[-int(most * share) :]}
        shown = _aggregated(rows, lambda row: row.failed or row.kind in _KEPT or id(row) in last)  # noqa: B023
        if len(shown) <= most:
            return shown
    shown = _aggregated(shown, lambda row: not row.failed and (row.kind in _KEPT or id(row) in last))
    return _most_telling(shown, most)


def _end(rows: Sequence[Row]) -> list[Row]:
    """The rows up to the last failure, that of the request as a whole apart; all of them where nothing else failed."""
    failed = [at for at, row in enumerate(rows) if row.failed and row.kind not in _KEPT]
    return list(rows[: failed[-1] + 1]) if failed else list(rows)


def _aggregated(rows: Sequence[Row], keep: Callable[[Row], bool]) -> list[Row]:
    groups: dict[Group, list[Row]] = {}
    shown: list[Row] = []
    for row in rows:
        if keep(row):
            shown.append(row)
        else:
            place = row.source, row.outside, row.pid, row.lane
            groups.setdefault((*place, row.failed, shape(row)), []).append(row)
    for alike in groups.values():
        if len(alike) <= _FEW:
            shown += alike
        elif alike[0].failed:
            shown += [alike[0], _together(alike[1:-1]), alike[-1]]
        else:
            shown.append(_together(alike))
    return sorted(shown, key=lambda row: (row.at_ns, row.source != "proxy", row.seq))


def _together(alike: Sequence[Row]) -> Row:
    first = alike[0]
    until = max(row.at_ns + (row.took_ns or 0) for row in alike)
    spent = sum(row.took_ns or 0 for row in alike)
    results = list(dict.fromkeys(row.result for row in alike if row.result))
    result = " … ".join([results[0], results[-1]] if len(results) > 1 else results)
    count = sum(row.count for row in alike)
    return first.model_copy(
        update={
            "what": f"{first.what} × {count}",
            "result": ", ".join(
                filter(None, [result, f"{duration(spent / 1000)} together" if spent else ""])
            ),
            "took_ns": until - first.at_ns if spent else None,
            "count": count,
            "details": {"count": count, "together_ns": spent, "results": results[:10]},
        }
    )


def _most_telling(rows: list[Row], most: int) -> list[Row]:
    if len(rows) <= most:
        return rows
    ends = {id(row) for row in _end(rows)[-int(most * _LAST_SHARES[-1]) :]}

    def rank(place: int) -> tuple[int, int]:
        row = rows[place]
        if row.kind in _KEPT:
            return 0, place
        if row.failed:  # what failed first may have been mended, what failed last was not
            return 1, -place
        return (2, -place) if id(row) in ends else (3, -(row.took_ns or 0))

    return [rows[place] for place in sorted(sorted(range(len(rows)), key=rank)[:most])]
