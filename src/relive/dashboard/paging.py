"""Going through a list that comes in pages: the cursors that led here are kept, so that there is a way back."""

from __future__ import annotations

from typing import Generic, TypeVar

import streamlit as st

__all__ = ["ListPager"]

Cursor = TypeVar("Cursor", str, int)


class ListPager(Generic[Cursor]):
    """Where the reader is in a list.

    Args:
        name: of the list, unique on a page.
        asked: what is looked for; with something else the list begins anew.
    """

    def __init__(self, name: str, asked: object) -> None:
        self._key = f"{name} pages"
        kept = st.session_state.get(self._key)
        if kept is None or kept[0] != repr(asked):
            st.session_state[self._key] = (repr(asked), [None])
        self._name = name
        self._path: list[Cursor | None] = st.session_state[self._key][1]

    @property
    def after(self) -> Cursor | None:
        """The cursor of the page to show; None: the first."""
        return self._path[-1]

    def _go_back(self) -> None:
        self._path.pop()

    def show(self, following: Cursor | None) -> None:
        """The buttons, where there is more than one page.

        Args:
            following: cursor of the next page; None: there is none.
        """
        if following is None and len(self._path) == 1:
            return
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button(
                "Newer",
                key=f"{self._name} newer",
                icon=":material/arrow_back:",
                disabled=len(self._path) == 1,
                on_click=self._go_back,
            )
            st.button(
                "Older",
                key=f"{self._name} older",
                icon=":material/arrow_forward:",
                disabled=following is None,
                on_click=self._path.append,
                args=(following,),
            )
            st.caption(f"page {len(self._path)}")
