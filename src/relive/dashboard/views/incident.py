"""An incident's story on one page: what failed, what it means to bring it back, frames, request, timeline, commits around it."""

from __future__ import annotations

from collections.abc import Iterator

import streamlit as st

from relive.config import Settings
from relive.dashboard.acting import (
    bisect_button,
    chaos_form,
    debugger_button,
    divergence_form,
    export_button,
    keep_form,
    replay_buttons,
    reproduce_button,
    restore_button,
    state_form,
    stepping_forms,
    try_form,
    what_if_form,
    why_button,
)
from relive.dashboard.asking import number_asked
from relive.dashboard.commitlist import show_commits
from relive.dashboard.exchange import show_exchange
from relive.dashboard.frames import exceptions, frame_location
from relive.dashboard.lanes import figure, rows_table
from relive.dashboard.look import chip, escape, facts, label, lead, table
from relive.dashboard.refusals import home, telling
from relive.dashboard.runlist import show_runs
from relive.dashboard.working import show_jobs
from relive.incidents.report.condensed import condensed
from relive.incidents.report.detail import Account
from relive.incidents.report.timeline import folded, near_failure
from relive.model.failure import ErrorPackage
from relive.model.quantities import age, duration, when
from relive.operations.commits import Commit, CommitsParams, page_of_commits
from relive.operations.incident_detail import show_incident
from relive.operations.progress import Silent
from relive.operations.runs import RunsParams, list_runs

__all__ = ["show"]

_DRAWN = 2000  # rows of a timeline
_LISTED = 300
_BEFORE, _AFTER = 4, 2  # commits around it
_WINDOW_NS = 120_000_000_000  # in which commits behind it are looked for
_RUNS = 5


def show() -> None:
    """The page."""
    settings = home()
    st.page_link("views/incidents.py", label="All incidents", icon=":material/arrow_back:")
    number = number_asked("incident")
    with telling():
        with st.spinner("Reading what is known of it …"):
            account = show_incident(settings, number, Silent())
        _show(settings, account)


def _show(settings: Settings, account: Account) -> None:
    _show_headline(account)
    _show_actions(settings, account)
    _show_failure(account)
    show_exchange(account)
    _show_contrast(account)
    _show_timeline(account)
    _show_messages(account)
    _show_printed(account)
    _show_origins(account)
    with telling():
        _show_commits(settings, account)
    with telling():
        runs = list_runs(settings, RunsParams(incident=account.incident.number, limit=_RUNS))
        st.header("Replays and reproductions", anchor=False)
        show_runs(runs.items, "It has not been replayed yet.")
    _show_rest(account)


# -- what failed ---------------------------------------------------------------------------------------------------------


def _show_headline(account: Account) -> None:
    incident, package = account.incident, account.package
    first = incident.sighting.summary
    if package is not None:
        name = package.type.removeprefix("builtins.")
        first = f"{name}: {package.text}" if package.text else name
    elif account.stack is not None:
        first = account.stack.exception
    st.html(f'<div class="rl">{lead(first)}{"".join(_under(account))}</div>')


def _under(account: Account) -> Iterator[str]:
    incident, package = account.incident, account.package
    frame = package.failing_frame() if package is not None else None
    if package is not None and frame is not None:
        request = package.request
        handling = f", while it handled {request.method} {request.target}" if request is not None else ""
        yield f'<p class="rl-under">in {escape(frame_location(frame, package))}{escape(handling)}</p>'
    elif package is not None or account.stack is not None:
        yield f'<p class="rl-under rl-dim">{escape(incident.sighting.summary)}</p>'
    times = f"seen {incident.times} times" if incident.times > 1 else "seen once"
    chips = [
        chip(incident.service),
        chip(incident.sighting.kind.value, "bad"),
        chip(f"incident {incident.number}"),
        chip(times),
        chip(f"first {when(incident.sighting.seen_wall_ns)[:19]}"),
        chip(f"last {age(incident.last_seen_wall_ns)} ago"),
    ]
    yield f'<p class="rl-under" style="margin-top:.7rem">{"".join(chips)}</p>'


def _show_actions(settings: Settings, account: Account) -> None:
    incident = account.incident
    subject = f"incident/{incident.number}"
    held = {one.role: one.id for one in account.commits if one.taken_wall_ns is not None}
    before, at = held.get("before") or held.get("latest"), held.get("at")
    commands = {one.command for one in account.next_steps}
    with st.container(horizontal=True, vertical_alignment="bottom", key="actions"):
        replay_buttons(settings, incident.number, subject, can=f"relive replay {incident.number}" in commands)
        if f"relive reproduce {incident.number}" in commands:
            reproduce_button(settings, incident.number, subject)
        if f"relive bisect --replay {incident.number}" in commands:
            bisect_button(settings, incident.number, subject)
        if f"relive why {incident.number}" in commands:
            why_button(settings, incident.number, subject)
        if _is_python(account) and f"relive replay {incident.number}" in commands:
            debugger_button(settings, incident.number)
            stepping_forms(settings, incident.number, subject)
        if f"relive replay {incident.number}" in commands:
            try_form(settings, incident.number, subject)
            what_if_form(settings, incident.number, subject)
            state_form(settings, incident.number, subject)
            chaos_form(settings, incident.number, subject)
            divergence_form(settings, incident.number, subject)
            if incident.sighting.request is not None:
                keep_form(settings, incident.number, subject)
        if before is not None:
            restore_button(settings, before, "Restore the state before", subject, "restore before")
        if at is not None:
            restore_button(settings, at, "Restore the failure", subject, "restore at")
        if before is not None:
            export_button(settings, before, incident.service, subject, "export")
    _show_next(account)
    show_jobs(settings, subject)


def _is_python(account: Account) -> bool:
    """By its exception, or by the stack that it wrote itself."""
    frames = account.stack.frames if account.stack is not None else []
    return account.package is not None or any(file.endswith(".py") for file, _, _ in frames)


def _show_next(account: Account) -> None:
    """What no button does, and why a button does not."""
    rest = [
        one for one in account.next_steps if one.command is None or one.command.startswith("relive debug")
    ]
    for one in rest:
        st.caption(f"`{one.command}`: {one.why}" if one.command is not None else label(one.why))


def _show_failure(account: Account) -> None:
    if account.package is not None:
        st.header("Where it failed", anchor=False)
        st.html(exceptions(account.package))
        return
    lines = account.stack.text if account.stack is not None else account.incident.log_tail
    if account.stack is None and account.printed:
        return  # told whole, below
    if lines:
        st.header("What the service wrote", anchor=False)
        st.html(f'<div class="rl"><pre class="rl-text">{escape(chr(10).join(lines))}</pre></div>')


# -- what it did ---------------------------------------------------------------------------------------------------------


def _show_timeline(account: Account) -> None:
    timeline = account.timeline
    st.header("What the request did", anchor=False)
    if timeline is None or not timeline.rows:
        st.caption("Nothing was recorded of it from inside or outside.")
        return
    near = near_failure(timeline.rows)
    rows, beside = folded(near), len(timeline.rows) - len(near)
    drawn, listed = condensed(rows, _DRAWN), condensed(rows, _LISTED)
    st.caption(
        f"{duration(timeline.took_ns / 1000)} in all, from {when(timeline.began_wall_ns)}; failures are marked with a cross."
        + (
            f" {len(rows)} steps in {len(drawn)} marks: what repeats is one."
            if len(drawn) < len(rows)
            else ""
        )
        + (f" {beside} things that the process did beside it are left out." if beside else "")
    )
    st.plotly_chart(figure(drawn), key="timeline", config={"displaylogo": False, "displayModeBar": False})
    with st.expander(f"The {len(rows)} steps in words"):
        st.html(rows_table(listed))
        if len(listed) < len(rows):
            st.caption(f"Told in {len(listed)} rows; `relive show --all` has each step.")


def _show_contrast(account: Account) -> None:
    found = account.contrast
    if found is None:
        return
    st.header("Beside the last request that went well", anchor=False)
    st.caption(f"Request {found.request} to the same route, {duration(found.before_ns / 1000)} before it.")
    rows = [
        [
            f"<code>{escape(one.what)}</code>",
            f'<span class="{"rl-bad" if one.failed else ""}">{escape(one.now)}</span>',
            escape(one.then),
        ]
        for one in found.differences
    ]
    st.html(f'<div class="rl">{table(["what", "now", "then"], rows)}</div>')
    if found.left_out:
        st.caption(f"{found.left_out} more differences are left out.")


def _show_printed(account: Account) -> None:
    for one in account.printed:
        st.header(f"What it wrote during the request ({one.stream})", anchor=False)
        missing = f"… {one.left_out} bytes before\n" if one.left_out else ""
        st.html(
            f'<div class="rl"><pre class="rl-text">{escape(missing + chr(10).join(one.lines))}</pre></div>'
        )


def _show_messages(account: Account) -> None:
    if not account.messages:
        return
    st.header("Last said by clients and service", anchor=False)
    rows = [
        [
            f"{duration(one.before_ns / 1000)} before",
            f"connection {one.connection}",
            "client" if one.by_client else "service",
            f"<code>{escape(one.body.words())}</code>",
        ]
        for one in account.messages
    ]
    st.html(f'<div class="rl">{table(["when", "where", "who", "what"], rows)}</div>')


def _show_origins(account: Account) -> None:
    rows = [
        [
            f"<code>{escape(origin.name)}</code>" if write is origin.last[0] else "",
            f"{duration(abs(write.before_ns) / 1000)} {'before' if write.before_ns >= 0 else 'after it began'}",
            f"request {write.request}" if write.request else f"thread {escape(write.thread)}",
            f"<code>{escape(write.what)}</code>",
            escape(write.result),
        ]
        for origin in account.origins
        for write in origin.last
    ]
    if rows:
        st.header("Who had written what it read", anchor=False)
        st.html(f'<div class="rl">{table(["it read", "written", "by", "with", "result"], rows)}</div>')


# -- around it -----------------------------------------------------------------------------------------------------------


def _show_commits(settings: Settings, account: Account) -> None:
    incident = account.incident
    seen = incident.sighting.seen_wall_ns
    st.header("Commits around it", anchor=False)
    earlier = CommitsParams(target=incident.service, until_wall_ns=seen, limit=_BEFORE)
    later = CommitsParams(
        target=incident.service, since_wall_ns=seen, until_wall_ns=seen + _WINDOW_NS, limit=200
    )
    found: list[Commit] = page_of_commits(settings, later, Silent()).items[-_AFTER:]
    found += page_of_commits(settings, earlier, Silent()).items
    roles = {incident.before: "before the failing request", incident.at: "at the failure"}
    show_commits(
        found,
        "No commit of that time is left.",
        moment=seen,
        roles={one: words for one, words in roles.items() if one is not None},
    )


def _show_rest(account: Account) -> None:
    package, incident = account.package, account.incident
    with st.expander("Everything else that is known"):
        st.html(f'<div class="rl">{facts(_facts(account))}</div>')
        if package is not None and package.versions.packages:
            lines = "\n".join(f"{name} {version}" for name, version in package.versions.packages.items())
            st.html(f'<div class="rl"><details><summary>{len(package.versions.packages)} packages</summary>'
                    f'<pre class="rl-text">{escape(lines)}</pre></details></div>')  # fmt: skip
        if package is not None and package.environment:
            lines = "\n".join(f"{name}={value}" for name, value in package.environment.items())
            st.html(f'<div class="rl"><details><summary>{len(package.environment)} variables of the environment</summary>'
                    f'<pre class="rl-text">{escape(lines)}</pre></details></div>')  # fmt: skip
        if package is not None and incident.log_tail:
            st.html(f'<div class="rl"><details><summary>Last lines of its standard error</summary>'
                    f'<pre class="rl-text">{escape(chr(10).join(incident.log_tail))}</pre></details></div>')  # fmt: skip
    for one in account.unrecorded:
        st.caption(f"Not recorded, so that a replay lacks it: {label(one.words)}")
    for note in account.notes:
        st.caption(f"Note: {label(note)}")


def _facts(account: Account) -> Iterator[tuple[str, str]]:
    incident, recording = account.incident, account.recording
    yield "life", f"<code>{escape(incident.life)}</code>"
    if recording.request is not None:
        yield "recorded by the proxy", f"request {recording.request}, from event {recording.sequence}"
    if recording.events:
        yield "recorded inside", f"{recording.events} events of process {recording.pid}"
    if recording.calls:
        yield "recorded at the border", f"{recording.calls} calls"
    if account.package is not None:
        yield from _package_facts(account.package)


def _package_facts(package: ErrorPackage) -> Iterator[tuple[str, str]]:
    yield (
        "escaped from",
        f"{escape(package.where.value)}, thread {escape(package.thread)}, process {package.pid}",
    )
    yield "command", f"<code>{escape(' '.join(package.argv))}</code>"
    if package.revision is not None:
        state = " with changes" if package.revision.dirty else ""
        yield (
            "revision",
            f"<code>{escape(package.revision.commit[:12])}</code>{state} in {escape(package.revision.root)}",
        )
    yield "Python", escape(package.versions.python)
    yield "fingerprint", f"<code>{escape(package.fingerprint)}</code>"


if __name__ == "__main__":
    show()
