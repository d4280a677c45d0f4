"""Checking a service before it is committed: what stands against it, what would be lost, what it costs."""

from __future__ import annotations

import streamlit as st

from relive.check.estimate import Estimate
from relive.check.finding import Finding, Severity
from relive.check.report import CheckReport, CheckVerdict
from relive.dashboard.look import escape, facts, label
from relive.dashboard.refusals import home, telling
from relive.model.quantities import duration, size
from relive.operations.checking import CHECK, CheckParams
from relive.operations.subprocess_runner import perform_apart

__all__ = ["show"]

_ICONS = {
    Severity.BLOCKS: ":material/block:",
    Severity.LOST: ":material/link_off:",
    Severity.LEFT_OUT: ":material/content_cut:",
    Severity.NOTE: ":material/info:",
}


def show() -> None:
    """The page."""
    st.title("Check a service")
    settings = home()
    target = st.text_input(
        "Target",
        key="target",
        placeholder="pid:1234, a capsule's name, podman:NAME or docker:NAME",
        help="It is looked at only: nothing is stopped, signalled or attached to",
    )
    if not target.strip():
        st.info("Name a running process, capsule or container.", icon=":material/search:")
        return
    with telling(), st.spinner("Looking …"):
        _show(perform_apart(CHECK, settings, CheckParams(target=target.strip())))


def _show(report: CheckReport) -> None:
    if report.verdict is CheckVerdict.WHOLE:
        st.success("It can be committed, with nothing lost or left out, as far as can be seen.")
    elif report.verdict is CheckVerdict.PARTLY:
        st.warning("It can be committed; what is lost or left out stands below.")
    else:
        helps = " Started with `relive run` it could be." if report.capsule_helps else ""
        st.error(f"As it is now, it cannot be committed.{helps}")
    for finding in report.findings:
        _show_finding(finding)
    if report.estimate is not None:
        st.html(facts(_costs(report.estimate)))
    st.caption("Not to be seen from outside: " + "; ".join(label(one) for one in report.unseen))


def _show_finding(finding: Finding) -> None:
    about = f"{finding.process} (pid {finding.pid}): " if finding.pid is not None else ""
    lines = [f"**{finding.severity}** {label(about + finding.subject)}", label(finding.cause)]
    if finding.remedy is not None:
        lines.append(f"What to change: {label(finding.remedy)}")
    st.markdown(f"{_ICONS[finding.severity]} " + "  \n".join(lines))


def _costs(found: Estimate) -> list[tuple[str, str]]:
    rows = [
        ("tree", f"processes {found.processes}, threads {found.threads}, descriptors {found.descriptors}"),
        ("memory to save", size(found.memory + found.shared)),
        ("pause, about", f"{duration(found.pause_us.least)} to {duration(found.pause_us.most)}"),
        ("first commit, about", f"{size(found.first.least)} to {size(found.first.most)}"),
        ("later ones of a capsule, about", f"{size(found.later.least)} to {size(found.later.most)}"),
    ]
    return [(name, escape(value)) for name, value in rows]


if __name__ == "__main__":
    show()
