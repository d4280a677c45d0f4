"""What Streamlit runs for every look at any page: the frame around the pages, and which there are."""

from __future__ import annotations

import streamlit as st

from relive.dashboard.look import STYLE

__all__ = ["main"]


def main() -> None:
    """Draw the frame and the page that the address names."""
    st.set_page_config(page_title="Relive", page_icon=":material/history:", layout="wide")
    st.html(STYLE)
    page = st.navigation(
        [
            st.Page("pages/incidents.py", title="Incidents", icon=":material/error:", default=True),
            st.Page("pages/commits.py", title="Commits", icon=":material/commit:"),
            st.Page("pages/branches.py", title="Branches", icon=":material/fork_right:"),
            st.Page("pages/runs.py", title="Runs", icon=":material/replay:"),
            st.Page("pages/storage.py", title="Storage", icon=":material/database:"),
            st.Page("pages/incident.py", title="Incident", visibility="hidden"),
            st.Page("pages/commit.py", title="Commit", visibility="hidden"),
            st.Page("pages/run.py", title="Run", visibility="hidden"),
        ],
        position="top",
    )
    page.run()


if __name__ == "__main__":
    main()
