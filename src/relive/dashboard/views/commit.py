"""One commit: what is in it, and bringing it back."""

from __future__ import annotations

from collections.abc import Iterator

import streamlit as st

from relive.config import Settings
from relive.dashboard.acting import bisect_form, export_button, restore_buttons
from relive.dashboard.asking import text_asked
from relive.dashboard.inside import show_inside
from relive.dashboard.look import chip, escape, facts, label, table
from relive.dashboard.refusals import home, telling
from relive.dashboard.working import masking, show_jobs
from relive.incidents.report.masking import Mask
from relive.model.quantities import age, duration, size, when
from relive.operations.commits import CommitDetail, show_commit

__all__ = ["show"]


def show() -> None:
    """The page."""
    settings = home()
    ref = text_asked("id", "commit")
    with telling():
        with st.spinner("Reading the commit …"):
            found = show_commit(settings, ref)
        _show(settings, found)


def _show(settings: Settings, found: CommitDetail) -> None:
    service = found.target.name
    st.page_link(
        "views/commits.py",
        label=f"Commits of {label(service)}",
        icon=":material/arrow_back:",
        query_params={"service": service},
    )
    st.title(f"{label(service)}, {when(found.taken_wall_ns)[:19]}", anchor=False)
    chips = [chip(found.id[:10]), chip(f"{age(found.taken_wall_ns)} ago"), chip(f"paused {duration(found.pause_us)}"),
             chip(f"brings back {size(found.bytes)}"), *(chip(tag, "warn") for tag in found.tags)]  # fmt: skip
    st.html(f'<div class="rl">{"".join(chips)}</div>')
    subject = f"commit/{found.id}"
    with st.container(horizontal=True):
        restore_buttons(settings, found.id, "Restore as a branch", subject, "restore")
        export_button(settings, found.id, service, subject, "export")
    show_jobs(settings, subject)
    st.html(f'<div class="rl">{facts(_facts(found, masking(settings)))}</div>')
    _show_processes(found, masking(settings))
    if found.images:
        show_inside(settings, found.id, found.parents[0] if found.parents else None)
        bisect_form(settings, found.id, subject)


def _facts(found: CommitDetail, mask: Mask) -> Iterator[tuple[str, str]]:
    yield "taken because of", escape(found.trigger.value)
    yield "safe after", duration(found.durable_us)
    yield "new in the store", size(found.new_bytes)
    yield "command", f"<code>{escape(mask.sentence(' '.join(found.target.command)))}</code>"
    if found.cursor is not None:
        yield "in the recording", f"after event {found.cursor.sequence}"
    listening = ", ".join(f"{address}:{port}" for address, port in found.listening)
    yield "listens at", escape(listening or "nothing")
    yield "open connections", str(len(found.connections))
    yield "host", escape(f"{found.host.name}, Linux {found.host.kernel}, CRIU {found.host.criu}")
    yield "id", f"<code>{escape(found.id)}</code>"
    for parent in found.parents:
        yield "parent", f"<code>{escape(parent)}</code>"


def _show_processes(found: CommitDetail, mask: Mask) -> None:
    rows = [
        [str(one.pid), f"<code>{escape(mask.sentence(one.command))}</code>", str(one.threads)]
        for one in found.target.processes
    ]
    if rows:
        st.header("Processes", anchor=False)
        st.html(f'<div class="rl">{table(["pid", "command", "threads"], rows, numbers=(0, 2))}</div>')


if __name__ == "__main__":
    show()
