"""What a page's address asks for."""

from __future__ import annotations

import streamlit as st

from relive.model.text import is_number

__all__ = ["number_asked", "text_asked"]


def number_asked(what: str) -> int:
    """``number`` of the address; where there is none the page ends with what to do."""
    text = st.query_params.get("number", "")
    if not is_number(text):
        st.info(f"Which {what}? Choose one from the list.", icon=":material/list:")
        st.stop()
    return int(text)


def text_asked(name: str, what: str) -> str:
    """A text of the address; as ``number_asked``."""
    text = st.query_params.get(name, "")
    if not text:
        st.info(f"Which {what}? Choose one from the list.", icon=":material/list:")
        st.stop()
    return text
