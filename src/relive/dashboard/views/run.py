"""One replay or reproduction: its verdict, and what each of its runs showed."""

from __future__ import annotations

import streamlit as st

from relive.config import Settings
from relive.dashboard.asking import number_asked
from relive.dashboard.look import label
from relive.dashboard.refusals import home, telling
from relive.dashboard.verdicts import show_verdict
from relive.dashboard.working import masking
from relive.model.quantities import duration, when
from relive.operations.runs import RunDetail, show_run

__all__ = ["show"]


def show() -> None:
    """The page."""
    settings = home()
    st.page_link("views/runs.py", label="All runs", icon=":material/arrow_back:")
    number = number_asked("run")
    with telling():
        with st.spinner("Reading the run …"):
            found = show_run(settings, number)
        _show(settings, found)


def _show(settings: Settings, found: RunDetail) -> None:
    words = "Replay" if found.replay is not None else "Reproduction"
    st.title(f"{words} {found.number} of {label(found.service)}", anchor=False)
    st.caption(f"Begun {when(found.began_wall_ns)[:19]}, took {duration(found.seconds * 1e6)}")
    if found.incident is not None:
        st.page_link(
            "views/incident.py",
            label=f"Incident {found.incident}",
            icon=":material/error:",
            query_params={"number": str(found.incident)},
        )
    result = found.replay or found.reproduction
    assert result is not None
    show_verdict(result, masking(settings))
    if found.replay is not None:
        st.page_link(
            "views/commit.py",
            label="The commit that it was replayed from",
            icon=":material/commit:",
            query_params={"id": found.replay.commit},
        )


if __name__ == "__main__":
    show()
