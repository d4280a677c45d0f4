"""An incident that was kept as a test: the file, where it lies or to take along, and whether it finds the failure."""

from __future__ import annotations

import streamlit as st

from relive.dashboard.look import label
from relive.operations.keeping import Kept
from relive.trial.kept import SUFFIX

__all__ = ["show_kept"]


def show_kept(kept: Kept, key: str) -> None:
    """What was written, and how it is run; ``key`` sets its button apart from others."""
    where = (
        f"Written to **{label(kept.file)}**." if kept.file is not None else f"**{label(kept.name)}** is kept."
    )
    st.success(where, icon=":material/science:")
    if kept.fails is not None:
        st.caption(label(f"With the code that was committed it fails: {kept.fails}."))
    else:
        st.warning(
            "The committed code meets the expectation already, so that this test finds nothing out.",
            icon=":material/help:",
        )
    st.code(kept.content, language="yaml")
    name = f"{kept.name}{SUFFIX}"
    st.download_button(
        "Download the file",
        kept.content,
        file_name=name,
        mime="text/plain",
        key=key,
        icon=":material/download:",
        on_click="ignore",
    )
    st.caption(
        label(
            f"Run it: pytest --relive, or relive kept {kept.file or name}. "
            f"Commit {kept.commit[:10]} stays for as long as it has the tag {kept.tag}."
        )
    )
    if not kept.code:
        st.caption(
            label(
                "It is tried with the code that was committed; with AT=HERE it is tried with a directory's code."
            )
        )
