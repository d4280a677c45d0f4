"""The jobs about something, on its page: progress while they run, then what they gave."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from relive.config import Settings
from relive.dashboard.bisected import show_bisection
from relive.dashboard.explained import show_explanation
from relive.dashboard.explored import show_chaos, show_divergence
from relive.dashboard.jobs import JOBS, Job, JobState
from relive.dashboard.kept import show_kept
from relive.dashboard.look import label
from relive.dashboard.refusals import refuse
from relive.dashboard.stepped import show_logged, show_written
from relive.dashboard.tried import show_trial
from relive.dashboard.verdicts import show_verdict
from relive.incidents.report.masking import Mask
from relive.model.branch import BranchFacts
from relive.model.chaos import Chaos
from relive.model.intervention import Experiment, Explanation
from relive.model.outcome import Replay
from relive.model.quantities import duration, size
from relive.model.reproduction import Reproduction
from relive.model.stepping import Logged, Written
from relive.model.trial import Trial
from relive.operations.bisect_result import Bisection
from relive.operations.commits import Commit
from relive.operations.diverging import RunsDifference
from relive.operations.exports import ExportWritten
from relive.operations.keeping import Kept
from relive.operations.restoring_many import ManyRestored
from relive.operations.storage import Verification

__all__ = ["masking", "show_jobs"]

_LOOK_AGAIN = 0.5  # [s] while something runs
_SHOWN = 4  # jobs of one subject


def masking(settings: Settings) -> Mask:
    """What takes secrets out of texts that operations give as they are."""
    return Mask(settings.secret_patterns, settings.secret_names)


def show_jobs(settings: Settings, subject: str) -> None:
    """Those about a subject, the newest first; the page is drawn anew when one of them ends."""
    running = _running(settings.home, subject)
    if JOBS.of(settings.home, subject):
        st.fragment(_live, run_every=_LOOK_AGAIN if running else None)(settings, subject, running)


def _running(home: Path, subject: str) -> list[int]:
    return [job.number for job in JOBS.of(home, subject) if job.is_running]


def _live(settings: Settings, subject: str, running: list[int]) -> None:
    if running and _running(settings.home, subject) != running:
        st.rerun()  # what else is on the page has changed with it
    for job in JOBS.of(settings.home, subject)[:_SHOWN]:
        with st.container(border=True):
            _show(settings, job)


def _show(settings: Settings, job: Job) -> None:
    if job.is_running:
        _show_progress(job)
        return
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(f"**{label(job.title)}** :gray[{_ended(job)}]")
        st.button(
            "Dismiss", key=f"dismiss {job.number}", type="tertiary", on_click=JOBS.forget, args=(job.number,)
        )
    for text in job.messages:
        st.caption(label(text))
    if job.error is not None:
        refuse(job.error)
    elif job.state is JobState.DONE:
        _show_result(settings, job)


def _show_progress(job: Job) -> None:
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(f"**{label(job.title)}** :gray[{duration(job.seconds * 1e6)}]")
        st.button("Cancel", key=f"cancel {job.number}", on_click=JOBS.cancel, args=(job.number,))
    if job.total:
        done = f"{job.done} of {job.total}"
        if job.unit == "bytes":
            done = f"{size(job.done)} of {size(job.total)}"
        st.progress(min(1.0, job.done / job.total), text=label(f"{job.doing}: {done}"))
    else:
        st.progress(0.0, text=label(job.doing or "beginning"))
    if job.messages:
        st.caption(label(job.messages[-1]))


def _ended(job: Job) -> str:
    words = {JobState.DONE: "done", JobState.FAILED: "failed", JobState.CANCELLED: "cancelled"}
    return f"{words.get(job.state, '')} after {duration(job.seconds * 1e6)}"


def _show_result(settings: Settings, job: Job) -> None:
    match job.result:
        case Replay() | Reproduction() as result:
            show_verdict(result, masking(settings))
        case BranchFacts() as branch:
            st.success(
                f"The branch **{label(branch.id)}** runs, sealed off; it came to life in {duration(branch.restore_us)}.",
                icon=":material/fork_right:",
            )
            st.page_link("views/branches.py", label="See what runs, read its logs, stop it")
        case Commit() as kept:
            st.success(f"Commit **{label(kept.id[:10])}** holds it.", icon=":material/commit:")
            st.page_link("views/commit.py", label="See the commit", query_params={"id": kept.id})
        case ManyRestored() as many:
            _show_many(many)
        case Kept() as test:
            show_kept(test, f"download {job.number}")
        case ExportWritten() as written:
            st.success(
                f"Written to **{label(written.file)}**, {size(written.bytes)}; `relive import` takes it in elsewhere.",
                icon=":material/archive:",
            )
        case Bisection() as bisection:
            show_bisection(bisection)
        case Explanation() | Experiment() as explanation:
            show_explanation(explanation)
        case Chaos() as varied:
            show_chaos(varied)
        case RunsDifference() as differing:
            show_divergence(differing)
        case Logged() as logged:
            show_logged(logged)
        case Written() as written_value:
            show_written(written_value)
        case Trial() as trial:
            show_trial(trial)
        case Verification() as found:
            _show_verification(found)
        case _:
            st.caption("Done.")


def _show_many(many: ManyRestored) -> None:
    alive = len(many.branches) - many.failed
    sentence = f"{alive} of {len(many.branches)} branches run, sealed off, after {duration(int(many.seconds * 1e6))}."
    (st.success if not many.failed else st.error)(sentence, icon=":material/fork_right:")
    for one in many.branches[:50]:
        if one.error is not None:
            st.caption(label(f"{one.number}: {one.error.message}"))
    st.page_link("views/branches.py", label="See what runs, read its logs, stop it")


def _show_verification(found: Verification) -> None:
    looked = f"Looked at {found.commits} commits, {found.packs} packs, {found.objects} files"
    if not found.problems:
        st.success(f"{looked}: all is well.", icon=":material/verified:")
        return
    st.error(f"{looked}: {len(found.problems)} problems, {len(found.spoiled)} commits cannot be given back.")
    for problem in found.problems[:50]:
        st.caption(f"{label(problem.message)} ({label(problem.code)}), {len(problem.commits)} commits")
    st.caption("What to do: `relive repair` heals what another copy still has.")
