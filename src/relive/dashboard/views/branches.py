"""Branches: restored lives of commits; what they say, and ending them."""

from __future__ import annotations

import streamlit as st

from relive.config import Settings
from relive.dashboard.acting import keep_button
from relive.dashboard.jobs import JOBS
from relive.dashboard.look import chip, escape
from relive.dashboard.refusals import home, telling
from relive.dashboard.working import show_jobs
from relive.model.quantities import age, duration
from relive.operations.branch_states import BranchState, branch_states
from relive.operations.branches import LogStream, log_part, stop
from relive.operations.progress import Silent
from relive.operations.rolling_back import ROLLBACK, RollbackParams

__all__ = ["show"]

_MOST = 100


def show() -> None:
    """The page."""
    st.title("Branches")
    settings = home()
    ended = st.toggle("Also those that have ended", key="ended")
    with telling(), st.spinner("Looking at what runs …"):
        found = branch_states(settings, ended=ended)[::-1]
        if not found:
            st.info(
                "No branch runs. Restore a commit, from an incident or from the list of commits, to look into its state.",
                icon=":material/fork_right:",
            )
            return
        alive = [one.facts.id for one in found if one.is_alive]
        if len(alive) > 1 and st.button(
            f"Stop all {len(alive)}", key="stop all", icon=":material/stop_circle:"
        ):
            _stop(settings, alive)
        for one in found[:_MOST]:
            _show_branch(settings, one)
        if len(found) > _MOST:
            st.caption(f"{len(found) - _MOST} older ones are not listed: `relive ps --all` has them.")


def _show_branch(settings: Settings, one: BranchState) -> None:
    facts = one.facts
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.html(
                f'<div class="rl"><b>{escape(facts.name)}</b> {chip(one.state, "good" if one.is_alive else "")}'
                f'<span class="rl-dim">branch {escape(facts.id)}, restored {age(facts.created_wall_ns)} ago in '
                f"{duration(facts.restore_us)}</span></div>",
                width="stretch",
            )
            st.page_link(
                "views/commit.py", label="Its commit", query_params={"id": facts.commit}, width="content"
            )
            if one.is_alive and not facts.is_container:
                keep_button(settings, facts.id, facts.name, _subject(facts.id))
            if one.is_alive and st.button("Stop", key=f"stop {facts.id}", icon=":material/stop_circle:"):
                _stop(settings, [facts.id])
            if not facts.is_owned and st.button(
                "Roll back",
                key=f"rollback {facts.id}",
                icon=":material/undo:",
                help="It is again what its commit was, with its id and ports; all that happened in it is gone",
            ):
                _roll_back(settings, facts.id)
        if one.is_alive and facts.is_owned:
            st.caption("It belongs to a debugger or to another running command, and ends with that.")
        show_jobs(settings, _subject(facts.id))
        for port in facts.publications:
            st.caption(f"Its port {port.port} is reached at {port.host}:{port.host_port}.")
        _show_log(settings, facts.id)


def _show_log(settings: Settings, branch: str) -> None:
    stream = st.segmented_control(
        "Its output", list(LogStream), key=f"log {branch}", format_func=lambda one: _WORDS[one]
    )
    if stream is None:
        return
    with telling():
        text = log_part(settings, branch, stream, None).text
        output = text or "It has said nothing there."
        st.html(f'<div class="rl"><pre class="rl-text">{escape(output)}</pre></div>')


_WORDS = {
    LogStream.STDOUT: "Standard output",
    LogStream.STDERR: "Standard error",
    LogStream.STUBS: "Calls without a recorded answer",
}


def _roll_back(settings: Settings, branch: str) -> None:
    JOBS.start(
        settings, ROLLBACK, RollbackParams(branch=branch), title="Rolling back", subject=_subject(branch)
    )
    st.rerun()


def _subject(branch: str) -> str:
    return f"branch/{branch}"


def _stop(settings: Settings, branches: list[str]) -> None:
    with st.spinner("Stopping …"):
        stopped = stop(settings, branches, Silent(), only_branches=True).stopped
    st.toast(f"Stopped {len(stopped)} branch{'es' * (len(stopped) != 1)}.")
    st.rerun()


if __name__ == "__main__":
    show()
