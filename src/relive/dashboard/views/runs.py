"""Runs: what replays and reproductions showed, newest first."""

from __future__ import annotations

import streamlit as st

from relive.dashboard.paging import ListPager
from relive.dashboard.refusals import home, telling
from relive.dashboard.runlist import show_runs
from relive.operations.runs import RunsParams, list_runs

__all__ = ["show"]

_PAGE = 25


def show() -> None:
    """The page."""
    st.title("Replays and reproductions")
    settings = home()
    pager = ListPager[int]("runs", "")
    with telling(), st.spinner("Reading runs …"):
        page = list_runs(settings, RunsParams(after=pager.after, limit=_PAGE))
        if not page.items:
            st.info(
                "Nothing has been replayed yet. Open an incident and press Replay.", icon=":material/replay:"
            )
        else:
            show_runs(page.items, "")
        pager.show(page.next)


if __name__ == "__main__":
    show()
