"""The timeline drawn on lanes, as a figure of Plotly, and its rows as a table."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from relive.dashboard.look import escape, table
from relive.incidents.report.lanes import Lane, colour_of, lane_of
from relive.incidents.report.timeline import Row
from relive.model.quantities import duration
from relive.recording.events import EventKind

__all__ = ["figure", "rows_table"]

_LEAST = 0.004  # of the width: a shorter call would not be seen
_LANE, _ABOVE, _BELOW = 46, 34, 44  # [px]
_FAILED = "#d0453c"
_AROUND = frozenset({EventKind.REQUEST_STARTED, EventKind.HANDLING_STARTED})  # they hold what lies on them
_WIDE, _SLIM = 0.74, 0.46  # of a lane's height
_COLUMNS = 88  # [characters] of a line of what is shown under the pointer


def figure(rows: Sequence[Row]) -> dict[str, Any]:
    """The drawing of at least one row: milliseconds to the right, lanes downward, a colour for each kind, failed rows marked."""
    lanes = _named(rows)
    first = min(0, *(row.at_ns for row in rows))
    last = max(first + 1000, *(row.at_ns + (row.took_ns or 0) for row in rows))
    least = (last - first) / 1e6 * _LEAST
    kinds: dict[str, list[Row]] = {}
    # Long ones first: what they hold is drawn over them.
    for row in sorted(rows, key=lambda row: (row.kind not in _AROUND, -(row.took_ns or 0))):
        kinds.setdefault(row.label, []).append(row)
    traces = [_bars(name, some, lanes, least) for name, some in kinds.items()]
    failed = [row for row in rows if row.failed and row.kind not in _AROUND]
    if failed:
        traces.append(_marks(failed, lanes, least))
    return {"data": traces, "layout": _layout(list(lanes.values()), first / 1e6, last / 1e6 + 2 * least)}


def _named(rows: Sequence[Row]) -> dict[Lane, str]:
    """The lanes from above, with names that are unique."""
    lanes = sorted({lane_of(row) for row in rows})
    words = ("proxy", "the service", "beside it", "at its border")
    found = {}
    for lane in lanes:
        alike = [one for one in lanes if one[0] == lane[0]]
        found[lane] = words[lane[0]] + (f" {alike.index(lane) + 1}" if len(alike) > 1 else "")
    return found


def _bars(name: str, rows: Sequence[Row], lanes: Mapping[Lane, str], least: float) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "base": [row.at_ns / 1e6 for row in rows],
        "x": [max(least, (row.took_ns or 0) / 1e6) for row in rows],
        "y": [lanes[lane_of(row)] for row in rows],
        "width": [_WIDE if row.kind in _AROUND else _SLIM for row in rows],
        "marker": {
            "color": colour_of(rows[0].kind),
            "opacity": 0.45 if rows[0].kind in _AROUND else 1,
            "line": {
                "color": [_FAILED if row.failed else "rgba(0,0,0,0)" for row in rows],
                "width": [1.5 if row.failed else 0 for row in rows],
            },
        },
        "customdata": [_hover(row) for row in rows],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _marks(rows: Sequence[Row], lanes: Mapping[Lane, str], least: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "failed",
        "x": [row.at_ns / 1e6 + max(least, (row.took_ns or 0) / 1e6) / 2 for row in rows],
        "y": [lanes[lane_of(row)] for row in rows],
        "marker": {"symbol": "x", "size": 11, "color": _FAILED, "line": {"width": 1, "color": "white"}},
        "customdata": [_hover(row) for row in rows],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _layout(lanes: Sequence[str], first: float, last: float) -> dict[str, Any]:
    return {
        "barmode": "overlay",
        "height": _ABOVE + _BELOW + _LANE * len(lanes),
        "margin": {"l": 8, "r": 8, "t": _ABOVE, "b": _BELOW},
        "xaxis": {"range": [first, last], "ticksuffix": " ms", "zeroline": False, "showgrid": True},
        "yaxis": {"categoryorder": "array", "categoryarray": list(reversed(lanes)), "automargin": True},
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "title": {"text": ""}},
        "hoverlabel": {"align": "left"},
        "hovermode": "closest",
        "bargap": 0.1,
    }


def _hover(row: Row) -> str:
    took = f", took {duration(row.took_ns / 1000)}" if row.took_ns is not None else ""
    lines = [
        f"<b>{escape(row.label)}</b> at {row.at_ns / 1e6:.2f} ms{took}",
        *_lines(row.what),
        *_lines(row.result),
    ]
    return "<br>".join(lines)


def _lines(text: str) -> list[str]:
    return [escape(line) for line in textwrap.wrap(text, _COLUMNS, max_lines=4, placeholder=" …")]


def rows_table(rows: Sequence[Row]) -> str:
    """The rows as a table of HTML, those that failed marked."""
    lanes = _named(rows)
    has_lanes = len(lanes) > 2
    cells = [
        [
            f"{row.at_ns / 1e6:.2f}",
            *([lanes[lane_of(row)]] if has_lanes else []),
            escape(row.label),
            f"<code>{escape(row.what)}</code>",
            escape(row.result),
            escape(duration(row.took_ns / 1000)) if row.took_ns is not None else "",
        ]
        for row in rows
    ]
    head = ["at ms", *(["lane"] if has_lanes else []), "kind", "what", "result", "took"]
    bad = [number for number, row in enumerate(rows) if row.failed]
    return f'<div class="rl">{table(head, cells, numbers=(0, len(head) - 1), bad=bad)}</div>'
