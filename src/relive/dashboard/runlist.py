"""Runs as rows: what was tried, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from relive.dashboard.look import chip, escape
from relive.dashboard.verdicts import tone_of, words_of
from relive.model.quantities import age, duration
from relive.operations.runs import RunRecord

__all__ = ["show_runs"]


def show_runs(runs: Sequence[RunRecord], empty: str) -> None:
    """A line for each."""
    if not runs:
        st.caption(empty)
    for one in runs:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            kind = "Replay" if one.kind.value == "replay" else "Reproduction"
            about = f" of incident {one.incident}" if one.incident is not None else ""
            st.page_link(
                "views/run.py",
                label=f"{kind} {one.number}{about}",
                icon=":material/gavel:",
                query_params={"number": str(one.number)},
                width=260,
            )
            st.html(
                f'<div class="rl rl-cells"><span>{escape(one.service)}</span>'
                f'<span class="rl-dim rl-wide">{age(one.began_wall_ns)} ago, took {duration(one.seconds * 1e6)}</span>'
                f"{chip(words_of(one.verdict, one.reproduced, one.times), tone_of(one.verdict))}</div>"
            )
