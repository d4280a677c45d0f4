"""What Streamlit runs for every look at any page: the frame around the pages, and which there are."""

from __future__ import annotations

import streamlit as st

from relive.dashboard.look import STYLE

__all__ = ["main"]

# As text: icons by name would be loaded from a server of somebody else.
_ICON = (
    '<svg viewBox="0 0 24 24" fill="none" stroke="#3266a8" stroke-width="2.4" stroke-linecap="round">'
    '<path d="M4 12a8 8 0 1 0 2.6-5.9"/><path d="M3.6 3.4v4h4"/><path d="M12 8v4.4l3 1.8"/></svg>'
)
_ID_SHOWN = 10  # [digits] of a commit


def main() -> None:
    """Draw the frame and the page that the address names."""
    page = st.navigation(
        [
            st.Page("views/incidents.py", title="Incidents", icon=":material/error:", default=True),
            st.Page("views/commits.py", title="Commits", icon=":material/commit:"),
            st.Page("views/branches.py", title="Branches", icon=":material/fork_right:"),
            st.Page("views/runs.py", title="Runs", icon=":material/replay:"),
            st.Page("views/check.py", title="Check", icon=":material/fact_check:"),
            st.Page("views/storage.py", title="Storage", icon=":material/database:"),
            st.Page("views/incident.py", title="Incident", visibility="hidden"),
            st.Page("views/commit.py", title="Commit", visibility="hidden"),
            st.Page("views/debug.py", title="Debugger", visibility="hidden"),
            st.Page("views/run.py", title="Run", visibility="hidden"),
        ],
        position="top",
    )
    shown = " ".join(filter(None, (page.title, _subject())))
    st.set_page_config(page_title=f"{shown} · Relive", page_icon=_ICON, layout="wide")
    st.html(STYLE)
    page.run()


def _subject() -> str:
    """Which incident, run or commit the address names, as short as people call it; empty where it names none."""
    given = st.query_params
    return given.get("number") or given.get("id", "")[:_ID_SHOWN] or given.get("service", "")


if __name__ == "__main__":
    main()
