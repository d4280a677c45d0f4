"""How a timeline is drawn: in which lane a row lies, what the lane is called, which colour a kind has, on light and dark ground."""

from __future__ import annotations

from relive.analyse.timeline import Row
from relive.record.events import EventKind

__all__ = ["Lane", "colour_of", "lane_name", "lane_of"]

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


def lane_name(lane: Lane) -> str:
    """For people."""
    order, _, number = lane
    return {0: "proxy", 1: f"lane {number}", 2: f"beside {number}"}.get(order, "border")
