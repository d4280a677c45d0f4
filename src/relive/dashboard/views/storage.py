"""The store: what it holds, what takes the room, whether all of it can be given back."""

from __future__ import annotations

import streamlit as st

from relive.config import Settings
from relive.dashboard.jobs import JOBS, JobState
from relive.dashboard.look import escape, table
from relive.dashboard.refusals import home, telling
from relive.dashboard.working import show_jobs
from relive.maintenance.usage import KINDS
from relive.model.quantities import size, when
from relive.operations.progress import Silent
from relive.operations.storage import (
    STATS,
    VERIFY,
    Garbage,
    GcParams,
    StatsParams,
    StorageStats,
    VerifyParams,
    gc,
)

__all__ = ["show"]

_SUBJECT, _MEASURED = "storage", "storage measured"
_LISTED, _LARGEST = 15, 5


def show() -> None:
    """The page."""
    st.title("Storage")
    settings = home()
    with telling():
        _show_buttons(settings)
        show_jobs(settings, _SUBJECT)
        _show_measured(settings)


def _show_buttons(settings: Settings) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Measure", key="measure", type="primary", icon=":material/straighten:",
                     help="Look at every pack: what the store holds and what takes the room"):  # fmt: skip
            JOBS.start(settings, STATS, StatsParams(), title="Measuring the store", subject=_MEASURED)
        verify = st.button("Verify", key="verify", icon=":material/verified:",
                     help="Check signatures and hashes, and that all is there that commits need")  # fmt: skip
        data = st.checkbox("every byte", key="data", help="Read all data, not only what leads to it")
        if verify:
            JOBS.start(
                settings, VERIFY, VerifyParams(data=data), title="Checking the store", subject=_SUBJECT
            )
        look = st.button("What could be freed?", key="gc", icon=":material/delete_sweep:",
                         help="Nothing is deleted: it is only looked at what no commit needs")  # fmt: skip
    if look:
        with st.spinner("Looking at what no commit needs …"):
            _show_garbage(gc(settings, GcParams(dry_run=True), Silent()))


def _show_garbage(found: Garbage) -> None:
    things = [*found.deleted, *found.condemned, *found.waiting]
    if not things:
        st.success("All that lies in the store is needed by a commit.", icon=":material/check_circle:")
        return
    st.info(
        f"{len(things)} things of {size(sum(one.bytes for one in things))} are needed by no commit; "
        f"`relive gc` would free {size(found.freed)} of them now.",
        icon=":material/delete_sweep:",
    )


def _show_measured(settings: Settings) -> None:
    jobs = JOBS.of(settings.home, _MEASURED)
    done = next((job for job in jobs if job.state is JobState.DONE), None)
    if jobs and jobs[0] is not done:
        show_jobs(settings, _MEASURED)
    if done is not None and isinstance(done.result, StorageStats):
        _show_stats(done.result)
    elif not jobs:
        st.info(
            "Press Measure to see what the store holds and what takes the room.", icon=":material/database:"
        )


def _show_stats(found: StorageStats) -> None:
    if not found.commits:
        st.info("The store is empty.", icon=":material/database:")
        return
    with st.container(horizontal=True):
        st.metric("Commits", f"{len(found.commits):,}", border=True)
        st.metric("Memory and files", size(found.logical), border=True)
        st.metric("On this disk", size(found.stored), border=True)
        st.metric("Factor", f"{found.logical / max(1, found.stored):.1f}", border=True)
    left, right = st.columns(2, gap="large")
    with left:
        st.header("By service", anchor=False)
        rows = [
            [escape(one.name), f"{one.commits:,}", size(one.logical), size(one.stored), size(one.a_commit)]
            for one in found.services[:_LISTED]
        ]
        heads = ["service", "commits", "bring back", "on disk", "a commit adds"]
        st.html(f'<div class="rl">{table(heads, rows, numbers=(1, 2, 3, 4))}</div>')
        if len(found.services) > _LISTED:
            st.caption(f"{len(found.services) - _LISTED} smaller ones are not listed.")
    with right:
        st.header("What the bytes are for", anchor=False)
        rows = [[escape(KINDS[kind]), size(count)] for kind, count in found.dominance.items() if count]
        st.html(f'<div class="rl">{table(["", "on disk"], rows, numbers=(1,))}</div>')
    st.header("Commits whose end would free most", anchor=False)
    largest = sorted(found.commits, key=lambda one: -one.alone)[:_LARGEST]
    for one in largest:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.page_link("views/commit.py", label=when(one.taken_wall_ns), icon=":material/commit:",
                         query_params={"id": one.id}, width=240)  # fmt: skip
            alone = f'<span class="rl-dim">{size(one.alone)} that no other commit needs</span>'
            st.html(f'<div class="rl">{escape(one.name)}, {alone}</div>')
    st.caption("What services share is counted for each of them.")


if __name__ == "__main__":
    show()
