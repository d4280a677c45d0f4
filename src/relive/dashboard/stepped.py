"""What was seen of a failing request line by line: values at a line, who wrote a value."""

from __future__ import annotations

import streamlit as st

from relive.dashboard.look import escape, label, table
from relive.model.stepping import Logged, LoggedHit, Place, ValueWrite, Written

__all__ = ["show_logged", "show_written"]

_SHOWN = 200  # rows


def show_logged(found: Logged) -> None:
    """A row for each time that a replay came to the line."""
    st.caption(label(f"{found.file}:{found.line}  {found.source}"))
    rows = [
        [
            escape(f"{run.number}: {run.result}"),
            escape(_where(hit)),
            escape(hit.function),
            escape(_values(hit)),
        ]
        for run in found.runs
        for hit in run.hits
    ]
    if rows:
        st.html(
            f'<div class="rl">{table(["replay", "request, position", "function", "values"], rows[:_SHOWN])}</div>'
        )
    else:
        st.info("No replay came to that line.")
    if len(rows) > _SHOWN or any(run.is_cut for run in found.runs):
        st.caption("There were more.")
    for trouble in dict.fromkeys(run.trouble for run in found.runs if run.trouble is not None):
        st.caption(label(trouble))


def show_written(found: Written) -> None:
    """The answer, and the last writes before it."""
    known = bool(found.writes) and found.writes[-1].place is not None
    (st.success if known else st.warning)(label(found.sentence), icon=":material/edit:")
    if found.writes:
        rows = [_row(one) for one in found.writes]
        names = ["request, position", "line", "", "before", "after"]
        st.html(f'<div class="rl">{table(names, rows[-_SHOWN:])}</div>')
    replays = f"{len(found.tried)} replay{'s' * (len(found.tried) != 1)}"
    st.caption(
        label(f"From commit {found.commit[:10]}, where it was {found.first}; {replays}: {found.result}.")
    )
    if found.trouble is not None:
        st.caption(label(found.trouble))


def _where(hit: LoggedHit) -> str:
    return f"{hit.request if hit.request is not None else ''} @{hit.position}"


def _values(hit: LoggedHit) -> str:
    return ", ".join(
        f"{one.expression or 'the condition'} {'raises ' if one.raised else '= '}{one.text}"
        for one in hit.values
    )


def _row(write: ValueWrite) -> list[str]:
    where, line, source = _place(write.place) if write.place is not None else ("", "no line of its own", "")
    return [escape(one) for one in (where, line, source, write.before, write.after)]


def _place(place: Place) -> tuple[str, str, str]:
    return f"{place.about or ''} @{place.position}", f"{place.file}:{place.line}", place.source
