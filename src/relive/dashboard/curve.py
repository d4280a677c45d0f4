"""How probable a failure is from each commit, as a figure of Plotly: with its bounds, and the requests at a change below."""

from __future__ import annotations

from typing import Any

from relive.dashboard.look import escape
from relive.model.quantities import when
from relive.operations.bisect_result import Bisection, Jump

__all__ = ["curve_figure"]

_CURVE, _BAND, _REQUESTS, _FAILED = "#3266a8", "rgba(50,102,168,0.18)", "#5c6675", "#d0453c"
_CLIENT_ERROR = 400


def curve_figure(found: Bisection) -> dict[str, Any]:
    """The drawing of a curve of at least one commit: time to the right, probability upward, requests on a row of their own."""
    at = [when(one.taken_wall_ns) for one in found.curve]
    percent = {name: [100 * getattr(one, name) for one in found.curve] for name in ("least", "rate", "most")}
    band = {
        "type": "scatter",
        "mode": "lines",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    traces = [
        {**band, "x": at, "y": percent["least"]},
        {**band, "x": at, "y": percent["most"], "fill": "tonexty", "fillcolor": _BAND},
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "probability",
            "line": {"color": _CURVE},
            "x": at,
            "y": percent["rate"],
            "customdata": [
                f"<b>{one.commit[:10]}</b>: {one.bad} of {one.probes} ({100 * one.least:.0f} to {100 * one.most:.0f} %)"
                for one in found.curve
            ],
            "hovertemplate": "%{customdata}<extra></extra>",
        },
        *(_requests(jump) for jump in found.jumps if jump.requests),
    ]
    return {"data": traces, "layout": _layout()}


def _requests(jump: Jump) -> dict[str, Any]:
    requests = jump.requests or []
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "requests between",
        "yaxis": "y2",
        "x": [when(one.began_wall_ns) for one in requests],
        "y": [0 for _ in requests],
        "marker": {
            "symbol": "line-ns-open",
            "size": 14,
            "color": [
                _FAILED if one.status is None or one.status >= _CLIENT_ERROR else _REQUESTS
                for one in requests
            ],
        },
        "customdata": [
            escape(f"{one.number} {one.method} {one.target} {one.status or 'no answer'}") for one in requests
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _layout() -> dict[str, Any]:
    return {
        "height": 300,
        "margin": {"l": 8, "r": 8, "t": 12, "b": 36},
        "showlegend": False,
        "hoverlabel": {"align": "left"},
        "xaxis": {"anchor": "y2", "automargin": True},
        "yaxis": {"domain": [0.2, 1], "range": [-2, 102], "ticksuffix": " %", "automargin": True},
        "yaxis2": {"domain": [0, 0.12], "visible": False, "range": [-1, 1]},
    }
