"""What is inside a commit, on its page: descriptors, threads and memory of its processes, where a text stands, what differs."""

from __future__ import annotations

from collections.abc import Iterator

import streamlit as st

from relive.config import Settings
from relive.dashboard.look import escape, label, table
from relive.dashboard.refusals import telling
from relive.dashboard.runtimes import show_runtime
from relive.inspection.evaluated import EvalOutcome, Evaluated
from relive.inspection.python.values import PythonObjects
from relive.inspection.state import CommitState, ProcessState
from relive.inspection.words import descriptor_words, value_lines, waiting_words
from relive.model.commit import CommitId
from relive.model.quantities import size
from relive.operations.commits import show_commit
from relive.operations.differences import DIFF, DiffParams
from relive.operations.inspections import (
    EVALUATE,
    FIND,
    INSPECT,
    OBJECTS,
    RUNTIME,
    EvaluateParams,
    FindParams,
    InspectParams,
    ObjectsParams,
    RuntimeParams,
)
from relive.operations.leaking import LEAKS, LeaksParams
from relive.operations.subprocess_runner import perform_apart

__all__ = ["show_inside"]

_MOST = 50  # matches
_REGIONS = 20
_PARTS, _REFERRERS = 50, 10  # of a value


def show_inside(settings: Settings, commit: CommitId, parent: CommitId | None) -> None:
    """What can be asked, and what was; read only when it is asked, since a large commit takes seconds."""
    st.header("Inside", anchor=False)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        wants_state = st.button("Look inside", key="inside", icon=":material/search:")
        wants_changes = parent is not None and st.button("Compare with its parent", key="changes")
        wants_growth = parent is not None and st.button("What only grew until here", key="growth")
        wants_objects = st.button("What takes most memory in Python", key="objects")
        wants_runtime = st.button(
            "What its runtime says",
            key="runtime",
            help="Python, Node.js or Java, asked in a throw-away branch",
        )
        pattern = st.text_input(
            "Find in memory", key="pattern", placeholder="text, hex:0011ff, or re:EXPRESSION"
        )
        expression = st.text_input(
            "Evaluate", key="evaluate", placeholder="len(app.cache)", help="In a throw-away branch"
        )
        wants_referrers = st.checkbox("and who refers to it", key="referrers", help="Of Python")
    with telling(), st.spinner("Reading the commit …"):
        if wants_state:
            _show_state(perform_apart(INSPECT, settings, InspectParams(ref=commit)))
        if wants_changes and parent is not None:
            _show_changes(settings, parent, commit)
        if wants_growth and parent is not None:
            _show_growth(settings, parent, commit)
        if wants_objects:
            _show_objects(perform_apart(OBJECTS, settings, ObjectsParams(ref=commit)))
        if wants_runtime:
            show_runtime(perform_apart(RUNTIME, settings, RuntimeParams(ref=commit)))
        if pattern:
            _show_found(settings, commit, pattern)
        if expression.strip():
            referrers = _REFERRERS if wants_referrers else 0
            params = EvaluateParams(
                ref=commit, expression=expression, depth=1, most=_PARTS, referrers=referrers
            )
            _show_value(perform_apart(EVALUATE, settings, params))


def _show_state(state: CommitState) -> None:
    for process in state.processes:
        st.subheader(label(f"{process.pid} {' '.join(process.command) or process.name}"), anchor=False)
        rows = [[str(one.fd), escape(descriptor_words(one))] for one in process.descriptors]
        st.html(f'<div class="rl">{table(["fd", "what it is"], rows, numbers=(0,))}</div>')
        threads = [[str(one.tid), escape(one.name), escape(one.call or "")] for one in process.threads]
        st.html(f'<div class="rl">{table(["thread", "name", "in"], threads, numbers=(0,))}</div>')
        st.html(
            f'<div class="rl">{table(["memory", "mapped", "stored"], list(_regions(process)), numbers=(1, 2))}</div>'
        )
    locks = [[f"{one.pid}:{one.fd}", one.kind, one.mode, escape(one.path)] for one in state.locks]
    if locks:
        st.html(f'<div class="rl">{table(["lock of", "kind", "mode", "file"], locks)}</div>')
    for one in state.waiting:
        st.warning(label(waiting_words(one)))


def _regions(process: ProcessState) -> Iterator[list[str]]:
    largest = sorted(process.regions, key=lambda one: -one.stored)
    for one in largest[:_REGIONS]:
        yield [escape(f"{one.start} {one.permissions} {one.name}"), size(one.size), size(one.stored)]


def _show_changes(settings: Settings, parent: CommitId, commit: CommitId) -> None:
    found = perform_apart(DIFF, settings, DiffParams(before=parent, after=commit))
    memory = found.memory
    st.markdown(
        f"{memory.changed} of {memory.pages} pages of memory differ, {memory.added} came, {memory.dropped} went."
    )
    rows = [[one.change.value, escape(one.path)] for one in found.files]
    rows += [
        [str(process.pid), escape(f"fd {one.fd}: {one.before or 'none'} -> {one.after or 'none'}")]
        for process in found.state.processes
        for one in process.descriptors
    ]
    if rows:
        st.html(f'<div class="rl">{table(["what", "of what"], rows)}</div>')


def _show_objects(found: PythonObjects) -> None:
    st.markdown(f"{found.count:,} objects of process {found.process} take {size(found.size)}.")
    rows = [
        [escape(one.name), f"{one.count:,}", size(one.size), escape(one.held_by or "")] for one in found.types
    ]
    st.html(
        f'<div class="rl">{table(["type", "objects", "bytes", "one is held by"], rows, numbers=(1, 2))}</div>'
    )
    rows = [
        [escape(one.type), str(one.count or ""), size(one.size), escape(one.held_by or one.text)]
        for one in found.objects
    ]
    st.html(f'<div class="rl">{table(["object", "entries", "bytes", "held by"], rows, numbers=(1, 2))}</div>')


def _show_growth(settings: Settings, parent: CommitId, commit: CommitId) -> None:
    """Of this commit and the two before it."""
    earlier = show_commit(settings, parent).parents
    if not earlier:
        st.caption("Growth is told from three commits on; only one lies before this.")
        return
    found = perform_apart(LEAKS, settings, LeaksParams(refs=[earlier[0], parent, commit]))
    grown = [(one.path, one.counts, ", ".join(one.kept)) for one in found.collections]
    grown += [(one.name, one.counts, one.held_by or "") for one in found.types]
    rows = [
        [escape(name), " → ".join(f"{count:,}" for count in counts), escape(by)] for name, counts, by in grown
    ]
    if rows:
        st.html(f'<div class="rl">{table(["what", "how many", "what stayed, or who holds it"], rows)}</div>')
    else:
        st.caption("Nothing has only grown over these three commits.")


def _show_value(found: Evaluated) -> None:
    if found.outcome is not EvalOutcome.VALUE:
        st.warning(label(f"{found.type}: {found.text}" if found.type else found.text))
    lines = escape("\n".join(value_lines(found)))
    st.html(f'<div class="rl"><pre class="rl-text">{lines}</pre></div>')
    if found.refused:
        st.caption(f"It tried {found.refused} times to reach something outside; nothing leaves a branch.")


def _show_found(settings: Settings, commit: CommitId, pattern: str) -> None:
    found = perform_apart(FIND, settings, FindParams(ref=commit, pattern=pattern, most=_MOST))
    rows = [
        [", ".join(map(str, one.pids)), one.address, escape(one.region or one.permissions), escape(one.text)]
        for one in found.hits
    ]
    more = "; there may be more" if found.more else ""
    st.caption(f"{len(rows)} found in {size(found.searched)} of memory{more}.")
    if rows:
        st.html(f'<div class="rl">{table(["process", "address", "where", "text"], rows)}</div>')
