"""Errors on a page: what happened, to what, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st
from pydantic import ValidationError

from relive.config import Settings, load_settings
from relive.dashboard.look import label
from relive.errors import ReliveError, UsageError, reason_of

__all__ = ["home", "refuse", "telling"]


def refuse(error: ReliveError) -> None:
    """Show an error in its four parts."""
    lines = [f"**{label(error.message)}** ({label(error.code)})"]
    if error.cause:
        lines.append(f"Cause: {label(error.cause)}")
    if error.remedy:
        lines.append(f"What to do: {label(error.remedy)}")
    st.error("  \n".join(lines), icon=":material/error:")


@contextmanager
def telling() -> Iterator[None]:
    """An error of Relive within is shown in place of what would have been; what follows goes on."""
    try:
        yield
    except ReliveError as error:
        refuse(error)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        refuse(UsageError(f"{name} cannot be {first['input']!r}", cause=reason_of(first["msg"])))


def home() -> Settings:
    """The settings; where they cannot be read the page ends with why."""
    try:
        return load_settings()
    except ReliveError as error:
        refuse(error)
        st.stop()
