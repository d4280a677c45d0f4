"""What fixes did, beside the unchanged code."""

from __future__ import annotations

import streamlit as st

from relive.dashboard.look import escape, label, table
from relive.model.trial import Trial
from relive.operations.trial_words import TRIAL_COLUMNS, bad_rows, fix_notes, trial_lines, trial_rows

__all__ = ["show_trial"]


def show_trial(trial: Trial) -> None:
    """A row for each fix, then what is to be said of it."""
    rows = [[escape(cell) for cell in row] for row in trial_rows(trial)]
    st.html(f'<div class="rl">{table(TRIAL_COLUMNS, rows, bad=bad_rows(trial))}</div>')
    for line in trial_lines(trial):
        st.caption(label(line))
    for one in trial.fixes:
        for note in fix_notes(one, trial.recorded):
            st.caption(label(f"{one.name}: {note}"))
    if any(one.still_there is not None for one in trial.fixes):
        st.caption(label(f"Still there: {trial.prior}."))
