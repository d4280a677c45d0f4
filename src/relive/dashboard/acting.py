"""Buttons that act on a commit or an incident; what they begin is a job of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import streamlit as st

from relive.config import Settings
from relive.dashboard.debuggers import DEBUGGERS
from relive.dashboard.jobs import JOBS
from relive.dashboard.refusals import telling
from relive.model.commit import CommitId
from relive.operations.bisect_params import BisectParams
from relive.operations.bisecting import BISECT
from relive.operations.chaos import CHAOS, ChaosParams
from relive.operations.committing import COMMIT, CommitParams
from relive.operations.diverging import DIVERGENCE, DivergenceParams
from relive.operations.explaining import WHY, WhyParams
from relive.operations.exports import EXPORT, ExportParams
from relive.operations.interventions import WHAT_IF, WhatIfParams
from relive.operations.keeping import KEEP, KeepParams
from relive.operations.logpoints import LOGPOINT, LogpointParams
from relive.operations.operation import Operation, Params
from relive.operations.replays import REPLAY, ReplayParams
from relive.operations.reproductions import REPRODUCE, ReproduceParams
from relive.operations.restoring import RESTORE, RestoreParams
from relive.operations.restoring_many import MOST, RESTORE_MANY, RestoreManyParams
from relive.operations.runs import RunsParams, list_runs
from relive.operations.trying import TRY, TryParams
from relive.operations.who_wrote import WHO_WROTE, WhoWroteParams
from relive.replay.plan import Pace

__all__ = [
    "bisect_button",
    "bisect_form",
    "chaos_form",
    "debugger_button",
    "divergence_form",
    "export_button",
    "keep_button",
    "keep_form",
    "replay_buttons",
    "reproduce_button",
    "restore_button",
    "restore_buttons",
    "state_form",
    "stepping_forms",
    "try_form",
    "what_if_form",
    "why_button",
]

_TIMES = 5
_CHAOS_MOST = 100
_CURVE, _CURVE_TIMES = 12, 10
_LAST_BEFORE = "the last before the failure"


def replay_buttons(settings: Settings, number: int, subject: str, *, can: bool) -> None:
    """How often, and the button."""
    times = st.number_input(
        "Times",
        min_value=1,
        max_value=10_000,
        value=_TIMES,
        key="times",
        width=120,
        label_visibility="collapsed",
        help="How often it is replayed, each time in a sandbox of its own",
        disabled=not can,
    )
    about = "From the commit before the failure, with the recorded requests, in sealed sandboxes"
    if st.button(
        f"Replay {times} time{'s' * (times != 1)}",
        key="replay",
        type="primary",
        icon=":material/replay:",
        disabled=not can,
        help=about if can else "No commit from before the failure is left to replay from",
    ):
        with telling():
            params = ReplayParams(what=str(number), times=times)
            JOBS.start(settings, REPLAY, params, title=f"Replaying {times} times", subject=subject)


def reproduce_button(settings: Settings, number: int, subject: str) -> None:
    """In a fresh process, without a commit."""
    _question(
        *(settings, subject, "reproduce", "Reproduce afresh", ":material/science:"),
        about="Without any commit: the service is started afresh in a sandbox and gets the same request",
        operation=REPRODUCE,
        params=lambda: ReproduceParams(incident=str(number)),
        title="Reproducing in a fresh process",
    )


def bisect_button(settings: Settings, number: int, subject: str) -> None:
    """Since when the request of an incident fails."""
    _question(
        *(settings, subject, "bisect", "Find when it began", ":material/manage_search:"),
        about="Sends the failing request from earlier commits, sealed: the first from which it fails, and what came before",
        operation=BISECT,
        params=lambda: BisectParams(replay=number),
        title="Finding when it began",
    )
    _question(
        *(settings, subject, "curve", "How probable, from when", ":material/show_chart:"),
        about=f"The same, and then {_CURVE} commits {_CURVE_TIMES} times each: how probable the failure is from each of them",
        operation=BISECT,
        params=lambda: BisectParams(replay=number, curve=_CURVE, times=_CURVE_TIMES),
        title="Drawing how probable it is",
    )


def why_button(settings: Settings, number: int, subject: str) -> None:
    """What an incident is caused by."""
    _question(
        *(settings, subject, "why", "Find the cause", ":material/lightbulb:"),
        about="Replays it with answers, readings and earlier requests changed, in sealed sandboxes, until the failure goes away",
        operation=WHY,
        params=lambda: WhyParams(incident=number),
        title="Finding the cause",
    )


def what_if_form(settings: Settings, number: int, subject: str) -> None:
    """A replay of an incident with something of its recording changed; with empty fields it is listed what can be."""
    with _folded(
        "what if",
        "What if",
        ":material/alt_route:",
        "What if an answer had been another, or an earlier request had not come?",
    ):
        answers = st.text_area(
            "Answers and readings, CALL=VALUE a line", key="what if answer", placeholder="http:1=503"
        )
        without = st.text_input("Without the requests", key="what if without", placeholder="21, 34")
        swap = st.text_input("In each other's place", key="what if swap", placeholder="3,4")
        wanted = st.form_submit_button(
            "Replay with it",
            icon=":material/alt_route:",
            help="Nothing filled in: it is listed what can be changed",
        )
    if wanted:
        with telling():
            params = WhatIfParams.model_validate(
                {
                    "incident": number,
                    "answer": [line.strip() for line in answers.splitlines() if line.strip()],
                    "without": without.replace(",", " ").split(),
                    "swap": [swap.replace(" ", "")] if swap.strip() else [],
                    "pace": Pace.FAST,
                }
            )
            JOBS.start(settings, WHAT_IF, params, title="Trying what if", subject=subject)


def _question(
    settings: Settings,
    subject: str,
    key: str,
    label: str,
    icon: str,
    *,
    about: str,
    operation: Operation[Any, Any],
    params: Callable[[], Params],
    title: str,
) -> None:
    """A button that begins a job; what is wrong with the params is said when it is pressed."""
    if st.button(label, key=key, icon=icon, help=about):
        with telling():
            JOBS.start(settings, operation, params(), title=title, subject=subject)


def debugger_button(settings: Settings, number: int) -> None:
    """To the page that goes forward and back through the request of an incident."""
    if st.button(
        "Step through it",
        key="debug",
        icon=":material/step_over:",
        help="A debugger in the failing request, forward and back in time",
    ):
        with telling():
            DEBUGGERS.begin(settings, number).wait()
            st.switch_page("views/debug.py", query_params={"number": str(number)})


def stepping_forms(settings: Settings, number: int, subject: str) -> None:
    """Values at a line, and who wrote a value, in replays of an incident."""
    with st.popover("Line by line", icon=":material/step_over:", help="Values at a line; who wrote a value"):
        with st.form("logpoint", border=False):
            at = st.text_input("At the line", key="logpoint at", placeholder="app.py:88")
            expression = st.text_input("what is", key="logpoint expression", placeholder="order.total")
            wants_values = st.form_submit_button("Tell the values", icon=":material/visibility:")
        with st.form("who wrote", border=False):
            value = st.text_input("Who wrote", key="who wrote expression", placeholder='app.cache["rates"]')
            wants_writer = st.form_submit_button("Find who wrote it", icon=":material/edit:")
    if wants_values:
        with telling():
            params = LogpointParams(incident=number, at=at, expression=[expression])
            JOBS.start(settings, LOGPOINT, params, title="Telling values at a line", subject=subject)
    if wants_writer:
        with telling():
            asked = WhoWroteParams(incident=number, expression=value)
            JOBS.start(settings, WHO_WROTE, asked, title="Finding who wrote a value", subject=subject)


@contextmanager
def _folded(key: str, label: str, icon: str, about: str) -> Iterator[None]:
    """A form that is behind a button."""
    with st.popover(label, icon=icon, help=about), st.form(key, border=False):
        yield


def try_form(settings: Settings, number: int, subject: str) -> None:
    """A patch, or another environment, beside the unchanged code."""
    with _folded("try", "Try a fix", ":material/build:", "Does the failure go away with it?"):
        patch = st.text_area("Patch, as git diff makes it", key="try patch", placeholder="--- a/app.py")
        env = st.text_area("Environment, NAME=VALUE a line", key="try env")
        commit = st.text_input("From this earlier commit", key="try commit", placeholder=_LAST_BEFORE)
        wanted = st.form_submit_button("Try it beside the unchanged code", icon=":material/build:")
    if wanted:
        with telling():
            fix = [patch.rstrip("\n") + "\n"] if patch.strip() else []
            params = TryParams(
                incident=number,
                fix=fix,
                env=[line for line in env.splitlines() if line.strip()],
                commit=commit.strip() or None,
            )
            JOBS.start(settings, TRY, params, title="Trying a fix", subject=subject)


def keep_form(settings: Settings, number: int, subject: str) -> None:
    """The state before an incident and its request as a test."""
    with _folded(
        "keep",
        "Keep as a test",
        ":material/science:",
        "A file by which pytest sends this request to this state again, with the code that is here then",
    ):
        expect = st.text_input(
            "What the answer has to be",
            value="status == 200",
            key="keep expect",
            help='Such as status == 201 and json["id"] > 0',
        )
        directory = st.text_input(
            "Directory on this host", key="keep directory", placeholder="none: to be downloaded"
        )
        name = st.text_input("Name", key="keep name", placeholder="SERVICE-NUMBER")
        commit = st.text_input("From this earlier commit", key="keep commit", placeholder=_LAST_BEFORE)
        code = st.text_area("Code that is tried, AT=HERE a line", key="keep code", placeholder="/srv/app=src")
        force = st.checkbox("Replace one of that name", key="keep force")
        wanted = st.form_submit_button("Keep it", icon=":material/science:")
    if wanted:
        with telling():
            params = KeepParams(
                incident=number,
                expect=expect,
                output=Path(directory.strip()).absolute() if directory.strip() else None,
                name=name.strip() or None,
                commit=commit.strip() or None,
                code=[line.strip() for line in code.splitlines() if line.strip()],
                force=force,
            )
            JOBS.start(settings, KEEP, params, title="Keeping it as a test", subject=subject)


def chaos_form(settings: Settings, number: int, subject: str) -> None:
    """Replays of an incident under varied schedules."""
    with _folded(
        "chaos",
        "Vary the schedule",
        ":material/shuffle:",
        "Does another order of threads and requests end otherwise?",
    ):
        most = st.number_input(
            "Replays at most", min_value=3, max_value=100_000, value=_CHAOS_MOST, key="chaos most"
        )
        wanted = st.form_submit_button("Replay under varied schedules", icon=":material/shuffle:")
    if wanted:
        with telling():
            params = ChaosParams(what=str(number), most=int(most))
            JOBS.start(settings, CHAOS, params, title="Varying the schedule", subject=subject)


def state_form(settings: Settings, number: int, subject: str) -> None:
    """A replay of an incident with another state."""
    with _folded(
        "state",
        "With another state",
        ":material/edit_note:",
        "What would have happened had this been another?",
    ):
        statements = st.text_area(
            "Set, a statement a line", key="set", placeholder="app.cache['rates'] = None"
        )
        path = st.text_input("File of the service", key="write path", placeholder="/srv/app/limits.ini")
        text = st.text_area("shall hold", key="write text")
        wanted = st.form_submit_button("Replay with it", icon=":material/replay:")
    if wanted:
        with telling():
            lines = [line for line in statements.splitlines() if line.strip()]
            params = ReplayParams(what=str(number), set=lines, write=[f"{path}={text}"] if path else [])
            JOBS.start(settings, REPLAY, params, title="Replaying with another state", subject=subject)


def divergence_form(settings: Settings, number: int, subject: str) -> None:
    """Where two runs part: of an incident that has been replayed, what was recorded and the latest replay, or others."""
    runs = list_runs(settings, RunsParams(incident=number, limit=1)).items
    if not runs:
        return
    latest = runs[0].number
    with _folded(
        "divergence", "Where two runs part", ":material/call_split:", "The first event at which they differ"
    ):
        before = st.text_input("Of the run", value=f"{latest}.recorded", key="divergence before")
        after = st.text_input("and the run", value=f"{latest}.1", key="divergence after")
        wanted = st.form_submit_button("Compare them", icon=":material/call_split:")
    if wanted:
        with telling():
            params = DivergenceParams(before=before, after=after)
            JOBS.start(settings, DIVERGENCE, params, title="Comparing two runs", subject=subject)


def bisect_form(settings: Settings, commit: CommitId, subject: str) -> None:
    """Since when a Python expression is true, up to a commit."""
    with st.form("bisect", border=False), st.container(horizontal=True, vertical_alignment="bottom"):
        good = st.text_input("Not yet so in", key="good", placeholder="an earlier commit: id or tag")
        expression = st.text_input("So when", key="expression", placeholder="app.cache.get('rates') is None")
        wanted = st.form_submit_button("Find when it began", icon=":material/manage_search:")
    if wanted:
        with telling():
            params = BisectParams(good=good, bad=commit, when=expression or None)
            JOBS.start(settings, BISECT, params, title="Finding when it began", subject=subject)


def restore_buttons(settings: Settings, commit: CommitId, words: str, subject: str, key: str) -> None:
    """How many branches of a commit, and the button."""
    count = st.number_input(
        "Branches",
        min_value=1,
        max_value=MOST,
        value=1,
        key=f"{key} count",
        width=120,
        label_visibility="collapsed",
        help="How many branches of it, side by side, each in a sandbox of its own",
    )
    restore_button(settings, commit, words, subject, key, count)


def restore_button(
    settings: Settings, commit: CommitId, words: str, subject: str, key: str, count: int = 1
) -> None:
    """Bring a commit to life."""
    if st.button(
        words,
        key=key,
        icon=":material/fork_right:",
        help="The state comes to life again in a sealed sandbox, to look into; the service itself is not touched",
    ):
        with telling():
            if count == 1:
                JOBS.start(settings, RESTORE, RestoreParams(ref=commit), title=words, subject=subject)
            else:
                params = RestoreManyParams(ref=commit, count=count)
                JOBS.start(settings, RESTORE_MANY, params, title=f"{words}, {count} times", subject=subject)


def keep_button(settings: Settings, branch: str, service: str, subject: str) -> None:
    """Make a commit of a branch as it is now."""
    if st.button(
        "Keep",
        key=f"keep {branch}",
        icon=":material/commit:",
        help="A commit of its own, with what was changed in the branch; its parent is the commit that was restored",
    ):
        with telling():
            JOBS.start(
                settings,
                COMMIT,
                CommitParams(target=branch),
                title=f"Keep a branch of {service}",
                subject=subject,
            )


def export_button(settings: Settings, commit: CommitId, service: str, subject: str, key: str) -> None:
    """Write a commit to a file of this host."""
    with st.popover(
        "Export", icon=":material/archive:", help="Write the commit to one file, with all it needs"
    ):
        name = service.replace("/", "-").replace(":", "-")
        file = st.text_input(
            "File on this host", value=str(Path.cwd() / f"{name}-{commit[:10]}.relive"), key=f"{key} file"
        )
        if st.button("Write it", key=key, type="primary", disabled=not file):
            with telling():
                params = ExportParams(ref=commit, file=Path(file))
                JOBS.start(settings, EXPORT, params, title="Exporting a commit", subject=subject)
