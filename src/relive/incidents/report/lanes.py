"""How a timeline is drawn: in which lane a row lies, what the lane is called, which colour a kind has, on light and dark ground."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from relive.incidents.report.timeline import Row
from relive.recording.events import EventKind

__all__ = ["Lane", "colour_of", "lane_of", "lanes_from_above"]

Lane = tuple[int, int, int]

_COLOURS = {
    EventKind.REQUEST_STARTED: "#6d7685",
    EventKind.HANDLING_STARTED: "#9aa4ae",
    EventKind.QUERY: "#3266a8",
    EventKind.HTTP_CALL: "#d08a3c",
    EventKind.REDIS_COMMAND: "#8a6fb0",
    EventKind.S3_CALL: "#4ea3a0",
    EventKind.FILE_READ: "#7a9b4a",
    EventKind.SUBPROCESS: "#a0785a",
    EventKind.LOG_RECORD: "#c2a83e",
    EventKind.COMMIT_TAKEN: "#2f8f5b",
    EventKind.FAILURE: "#b8524f",
    EventKind.MISS: "#b8524f",
}
_OTHER = "#b9c0c9"


def colour_of(kind: EventKind) -> str:
    """As ``#rrggbb``."""
    return _COLOURS.get(kind, _OTHER)


def lane_of(row: Row) -> Lane:
    """(order, process, lane): the proxy's first, then lanes of the request, what worked for none, calls at the border."""
    if row.source == "proxy":
        return 0, 0, 0
    if row.source == "egress":
        return 3, 0, 0
    return (2 if row.outside else 1), row.pid or 0, row.lane


def lanes_from_above(rows: Iterable[Row]) -> dict[Lane, str]:
    """The lanes of rows that are in the order of time, each with its name.

    They are numbered as they appear: their own numbers are of 16 digits, so that they are the same in a replay.
    """
    found = sorted(dict.fromkeys(lane_of(row) for row in rows), key=lambda lane: lane[0])
    own, beside = count(1), count(1)
    return {
        lane: "proxy"
        if lane[0] == 0
        else f"lane {next(own)}"
        if lane[0] == 1
        else f"beside {next(beside)}"
        if lane[0] == 2
        else "border"
        for lane in found
    }
