"""What a search for the cause of a failure found: the answer, each cause with the runs that prove it, what else was tried."""

from __future__ import annotations

import streamlit as st

from relive.dashboard.look import escape, label, table
from relive.intervention.judging import counted
from relive.model.intervention import Explanation, Tested

__all__ = ["show_explanation"]


def show_explanation(found: Explanation) -> None:
    """In words, with a table of each cause."""
    if found.causes:
        st.success(label(found.sentence), icon=":material/lightbulb:")
    else:
        st.warning(label(found.sentence), icon=":material/help:")
    for cause in found.causes:
        st.html(f'<div class="rl">{_changes(cause)}</div>')
        st.caption(label(f"Try it yourself: relive what-if {found.incident} {_options(cause)}"))
    compared = f" compared with {found.compared_with}," if found.compared_with is not None else ""
    beside = f" Beside that: {found.why_not}." if found.causes and found.why_not is not None else ""
    st.caption(
        label(
            f"From commit {found.commit[:10]},{compared} in {found.replays} replays and {found.seconds:.1f} s; "
            f"unchanged it {counted(found.control)}.{beside}"
        )
    )
    if found.tried:
        rows = [
            [escape(_options(one)), escape(one.effect.value), escape(one.why or "")] for one in found.tried
        ]
        with st.expander(f"What else was tried: {len(rows)}"):
            st.html(f'<div class="rl">{table(["changed", "the failure", ""], rows)}</div>')


def _changes(cause: Tested) -> str:
    rows = [
        [escape(one.about), escape(one.recorded), escape(one.instead), "" if number else _proof(cause)]
        for number, one in enumerate(cause.changes)
    ]
    return table(["cause", "recorded", "instead", "runs"], rows)


def _proof(cause: Tested) -> str:
    return escape(f"as recorded it {counted(cause.control)}, changed it {counted(cause.runs)}")


def _options(tested: Tested) -> str:
    return " ".join(one.option for one in tested.changes)
