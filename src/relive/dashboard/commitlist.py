"""Commits as rows: when, why, what the service felt, how large."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from relive.dashboard.look import chip, escape
from relive.model.commit import CommitId
from relive.model.quantities import age, duration, size, when
from relive.operations.commits import Commit

__all__ = ["figure", "show_commits"]

_REASONS = {
    "manual": "by hand",
    "start": "at its start",
    "timer": "by the clock",
    "request": "for a request",
    "incident": "at a failure",
    "import": "taken elsewhere",
    "branch": "kept of a branch",
}


def show_commits(
    commits: Sequence[Commit],
    empty: str,
    *,
    moment: int | None = None,
    roles: Mapping[CommitId, str] | None = None,
) -> None:
    """A line for each.

    Args:
        moment: times are told from it (wall clock, ns), else from now.
        roles: words for those that are something to the reader.
    """
    if not commits:
        st.caption(empty)
    for one in commits:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.page_link(
                "views/commit.py",
                label=when(one.taken_wall_ns),
                icon=":material/commit:",
                query_params={"id": one.id},
                width=240,
            )
            role = (roles or {}).get(one.id)
            words = [chip(role, "bad" if "at the" in role else "good")] if role is not None else []
            words += [chip(tag, "warn") for tag in one.tags]
            reason = _REASONS.get(one.trigger, one.trigger)
            taken = age(one.taken_wall_ns) + " ago" if moment is None else _from(one.taken_wall_ns - moment)
            st.html(
                f'<div class="rl rl-cells"><span>{taken}</span><span class="rl-dim">{escape(reason)}</span>'
                f"<span>paused {duration(one.pause_us)}</span>"
                f'<span class="rl-dim rl-wide">brings back {size(one.bytes)}, {size(one.new_bytes)} new</span>'
                f"{''.join(words)}</div>"
            )


def _from(span_ns: int) -> str:
    return f"{duration(abs(span_ns) / 1000)} {'before it' if span_ns < 0 else 'after it'}"


def figure(commits: Sequence[Commit]) -> dict[str, object]:
    """Pauses and sizes of commits, oldest to the left, one over the other, as a figure of Plotly."""
    ordered = list(reversed(commits))
    at = [when(one.taken_wall_ns) for one in ordered]
    pause = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "pause",
        "x": at,
        "y": [one.pause_us / 1000 for one in ordered],
        "marker": {"color": "#d08a3c", "size": 5},
        "line": {"color": "#d08a3c", "width": 1.5},
        "hovertemplate": "%{y:.1f} ms<extra>pause</extra>",
    }
    sizes = {
        "type": "bar",
        "name": "new in the store",
        "x": at,
        "y": [one.new_bytes / (1 << 20) for one in ordered],
        "marker": {"color": "#3266a8"},
        "yaxis": "y2",
        "hovertemplate": "%{y:.2f} MiB<extra>new in the store</extra>",
    }
    layout = {
        "height": 300,
        "margin": {"l": 8, "r": 8, "t": 28, "b": 8},
        "hovermode": "x unified",
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "title": {"text": ""}},
        "xaxis": {"anchor": "y2", "type": "category", "showticklabels": False},
        "yaxis": {"domain": [0.56, 1], "ticksuffix": " ms", "rangemode": "tozero"},
        "yaxis2": {"domain": [0, 0.44], "ticksuffix": " MiB", "rangemode": "tozero"},
    }
    return {"data": [pause, sizes], "layout": layout}
