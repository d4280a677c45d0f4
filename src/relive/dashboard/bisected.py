"""What a bisection found: the commit with which it began, the requests before it, the values they changed."""

from __future__ import annotations

import streamlit as st

from relive.dashboard.curve import curve_figure
from relive.dashboard.look import escape, label, table
from relive.model.quantities import when
from relive.operations.bisect_result import BisectedCommit, Bisection, Jump

__all__ = ["show_bisection"]

_VALUES = 50


def show_bisection(found: Bisection) -> None:
    """In words, with a table of each jump."""
    asked = f"{found.probes} probes of {found.commits} commits: {found.question}"
    if not found.jumps:
        st.warning(f"It cannot be told when it began: {label(found.why_not or '')}. {label(asked)}")
    if found.curve:
        st.plotly_chart(curve_figure(found), key="curve", config={"displaylogo": False})
        st.caption("How probable it is from each commit, its bounds at 95 %, and the requests at a change.")
    for jump in found.jumps:
        _show_jump(jump)
    if found.jumps:
        more = f" There may be more to find: {found.why_not}." if found.why_not else ""
        st.caption(label(f"{asked}.{more}"))


def _show_jump(jump: Jump) -> None:
    verb = "begins" if jump.begins else "ends"
    sure = f", with a probability of {100 * jump.probability:.0f} %" if jump.probability is not None else ""
    if jump.sides is not None:
        first, then = jump.sides
        sure += f" (before it {first.bad} of {first.probes} bad, from it on {then.bad} of {then.probes})"
    unjudged = f" {len(jump.unjudged)} commits between them were not judged." if jump.unjudged else ""
    st.success(
        f"It {verb} with commit {_named(jump.after)}{sure}; the one before is {_named(jump.before)}.{unjudged}",
        icon=":material/manage_search:",
    )
    rows = [
        [
            str(one.number),
            when(one.began_wall_ns)[11:],
            escape(f"{one.method} {one.target}"),
            str(one.status or "none"),
        ]
        for one in jump.requests or ()
    ]
    if rows:
        st.html(
            f'<div class="rl">{table(["request", "at", "between them", "answer"], rows, numbers=(0,))}</div>'
        )
    changes = jump.difference.python.changes if jump.difference is not None and jump.difference.python else []
    rows = [
        [escape(one.name), escape(one.before or "none"), escape(one.after or "none")]
        for one in changes[:_VALUES]
    ]
    if rows:
        st.html(f'<div class="rl">{table(["value", "before", "after"], rows)}</div>')


def _named(one: BisectedCommit) -> str:
    return f"**{one.commit[:10]}** ({when(one.taken_wall_ns)[11:]})"
