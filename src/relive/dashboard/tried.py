"""What fixes did, beside the unchanged code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import streamlit as st

from relive.dashboard.look import escape, label, table
from relive.model.quantities import duration
from relive.model.trial import FixRun, FixTried, Trial

__all__ = ["show_trial"]

_COLUMNS = ["fix", "result", "answer", "exception", "time", "still there"]


def show_trial(trial: Trial) -> None:
    """A row for each fix, then what is to be said of it."""
    rows = [_row("recorded", [trial.recorded], None), *(_row(one.name, one.runs, one) for one in trial.fixes)]
    st.html(f'<div class="rl">{table(_COLUMNS, rows)}</div>')
    st.caption(f"From commit {trial.commit[:10]}; the unchanged code failed {trial.failed} of {trial.ran}.")
    for one in trial.fixes:
        for note in _notes(one):
            st.caption(label(f"{one.name}: {note}"))


def _row(name: str, runs: list[FixRun], tried: FixTried | None) -> list[str]:
    if not runs:
        return [escape(name), "refused", "", "", "", ""]
    first, counts = runs[0], Counter(run.result for run in runs)
    odds = tried.still_there if tried is not None else None
    return [
        escape(name),
        escape(", ".join(f"{word} {count} of {len(runs)}" for word, count in counts.items())),
        str(first.status) if first.status is not None else "none",
        escape(first.exception or ""),
        duration(first.seconds * 1e6) if first.seconds is not None else "",
        f"{odds:.0%}" if odds is not None else "",
    ]


def _notes(tried: FixTried) -> Iterator[str]:
    if tried.refused is not None:
        yield f"refused: {tried.refused}"
    if tried.swapped is not None:
        yield from (f"{one.file}: {one.name} was not swapped: {one.why}" for one in tried.swapped.left)
    for run in tried.runs:
        yield from (f"no recorded answer for {one}" for one in run.missing)
        if run.fails is None and run.difference:
            yield run.difference
