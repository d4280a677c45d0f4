"""What varied schedules showed, and where two runs part."""

from __future__ import annotations

import streamlit as st

from relive.dashboard.look import escape, label, table
from relive.model.chaos import Chaos
from relive.operations.diverging import RunsDifference

__all__ = ["show_chaos", "show_divergence"]

_LINES = 200  # of one difference


def show_chaos(found: Chaos) -> None:
    """The answer, the delays that are enough, and the events that changed places."""
    about = f"incident {found.incident}" if found.incident is not None else f"request {found.request}"
    (st.success if found.seed is not None else st.info)(
        label(f"{about}: {found.sentence}"), icon=":material/shuffle:"
    )
    if found.seed is not None:
        st.caption(label(f"Seed {found.seed}: {found.varied}; it ended so: {found.result}"))
    if found.delays:
        rows = [[f"{one.ms:.1f} ms", escape(one.at), escape(one.place)] for one in found.delays]
        st.html(f'<div class="rl">{table(["delay", "where", "place"], rows, numbers=(0,))}</div>')
    if found.swap is not None:
        more = f" ({found.swap.more} other pairs, too)" if found.swap.more else ""
        st.markdown(
            label(
                f"Usually {found.swap.first} comes before {found.swap.then}; here the other way round{more}."
            )
        )
    if found.run is not None:
        st.caption(label(f"The usual end is run {found.run}.1, this one {found.run}.2."))
    if found.seed is not None and found.incident is not None and not any(found.plain):
        st.caption(
            label(f"Keep it as a test: relive keep {found.incident} --expect 'status == 200' {found.options}")
        )
    st.caption(f"{found.tried} schedules, {found.replays} replays in {found.seconds:.1f} s.")


def show_divergence(found: RunsDifference) -> None:
    """The first event that differs, then the first of each other class; how they ended; lines that differ."""
    st.markdown(label(f"{found.before} and {found.after}"))
    if found.ended is not None:
        st.warning(label(f"{found.before} {found.ended[0]}, {found.after} {found.ended[1]}"))
    if found.divergences:
        rows = [[str(one.place), escape(one.kind.value), escape(one.words)] for one in found.divergences]
        st.html(f'<div class="rl">{table(["event", "class", "what differs"], rows, numbers=(0,))}</div>')
    elif found.is_known:
        st.success("What happened inside is the same in both.")
    else:
        st.info("What happened inside is not known of both.")
    for name, lines in (("Body", found.body), ("Log", found.log), ("Events", found.events)):
        if lines:
            with st.expander(name):
                st.code("\n".join(lines[:_LINES]), language="diff")
