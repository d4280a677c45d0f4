"""What a search for the cause of a failure found: the answer, each cause with the runs that prove it, what else was tried; and what
one change made by hand showed.
"""

from __future__ import annotations

import streamlit as st

from relive.dashboard.look import escape, label, table
from relive.intervention.judging import counted
from relive.model.intervention import Effect, Experiment, Explanation, Tested

__all__ = ["show_explanation"]


def show_explanation(found: Explanation | Experiment) -> None:
    """In words, with a table of each cause, or of what was changed by hand."""
    if isinstance(found, Experiment):
        _show_experiment(found)
        return
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


def _show_experiment(found: Experiment) -> None:
    """What became of the failure with a change; without one what can be changed."""
    for tested in (found.tested, found.afresh):
        if tested is not None:
            _show_tested(tested)
    if found.tested is None and found.afresh is None:
        rows = [[escape(one.name), escape(one.what), escape(one.result)] for one in found.changeable]
        more = found.changeable_count - len(rows)
        st.caption(
            label(f"What can be changed of {found.failing}{f', the first {len(rows)}' if more else ''}:")
        )
        st.html(f'<div class="rl">{table(["name", "what it asked or read", "answered"], rows)}</div>')


def _show_tested(tested: Tested) -> None:
    away = tested.effect is Effect.GOES_AWAY
    left = (
        f"; {tested.still_there:.0%} that it is still there"
        if away and tested.still_there is not None
        else ""
    )
    why = f": {tested.why}" if tested.why is not None else left
    (st.success if away else st.warning)(
        label(f"{_EFFECTS[tested.effect]}{why}."), icon=":material/alt_route:"
    )
    st.html(f'<div class="rl">{_changes(tested)}</div>')
    st.caption(label(f"From commit {tested.commit[:10]}."))


_EFFECTS = {
    Effect.GOES_AWAY: "The failure goes away",
    Effect.STAYS: "The failure stays",
    Effect.NOT_ASKED: "Not asked",
    Effect.CANNOT_TELL: "Cannot tell",
}


def _changes(cause: Tested) -> str:
    rows = [
        [escape(one.about), escape(one.recorded), escape(one.instead), "" if number else _proof(cause)]
        for number, one in enumerate(cause.changes)
    ]
    return table(["what", "recorded", "instead", "runs"], rows)


def _proof(cause: Tested) -> str:
    return escape(f"as recorded it {counted(cause.control)}, changed it {counted(cause.runs)}")


def _options(tested: Tested) -> str:
    return " ".join(one.option for one in tested.changes)
