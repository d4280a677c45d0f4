"""A banner for services that are not protected now."""

from __future__ import annotations

import streamlit as st

from relive.config import Settings
from relive.dashboard.look import label
from relive.dashboard.refusals import telling
from relive.model.quantities import age
from relive.operations.progress import Silent
from relive.operations.targets import list_targets

__all__ = ["show_unprotected"]


def show_unprotected(settings: Settings) -> None:
    """Say of each service what does not work, since when and why; nothing where all do."""
    with telling():
        for one in list_targets(settings, Silent()):
            for trouble in one.troubles:
                since = "" if trouble.since_wall_ns is None else f" for {age(trouble.since_wall_ns)}"
                cause = "" if trouble.cause is None else f": {trouble.cause}"
                text = (
                    f"{one.name} is not protected: {trouble.part}{since}, tried {trouble.times} times. "
                    f"{trouble.message}{cause}. {trouble.remedy or ''}"
                )
                st.error(label(text), icon=":material/shield_question:")
