"""Commits per service: how many, how large, how long the service stood still; then those of one service."""

from __future__ import annotations

import streamlit as st

from relive.config import Settings
from relive.dashboard.commitlist import figure, show_commits
from relive.dashboard.look import label
from relive.dashboard.paging import ListPager
from relive.dashboard.refusals import home, telling
from relive.model.quantities import age, duration, size
from relive.operations.commits import CommitsParams, page_of_commits
from relive.operations.progress import Silent
from relive.operations.target_summary import (
    CommittedTarget,
    CommittedTargetsParams,
    page_of_committed_targets,
)
from relive.operations.targets import list_targets

__all__ = ["show"]

_SERVICES = 15
_COMMITS = 20
_DRAWN = 200


def show() -> None:
    """The page."""
    settings = home()
    service = st.query_params.get("service", "")
    if service:
        _show_service(settings, service)
        return
    st.title("Commits")
    with telling(), st.spinner("Reading the index …"):
        _show_services(settings)


def _show_services(settings: Settings) -> None:
    for target in list_targets(settings, Silent()):
        for note in target.notes:
            st.warning(f"{label(target.called)}: {label(note)}", icon=":material/schedule:")
    pager = ListPager[int]("services", "")
    page = page_of_committed_targets(
        settings, CommittedTargetsParams(after=pager.after or 0, limit=_SERVICES), Silent()
    )
    if not page.items:
        st.info(
            "Nothing has been committed yet.  \n`relive run --name pay --every 1s -- COMMAND` commits a service each second, "
            "`relive commit pid:1234` any running tree once.",
            icon=":material/commit:",
        )
        return
    head = st.columns([4, 1.4, 2, 2, 2.4, 2])
    for column, words in zip(
        head,
        ("Service", "Commits", "Newest", "Median pause", "Memory and files", "In the store"),
        strict=True,
    ):
        column.caption(words)
    for one in page.items:
        _show_line(one)
    pager.show(page.next)


def _show_line(one: CommittedTarget) -> None:
    name, *cells = st.columns([4, 1.4, 2, 2, 2.4, 2], vertical_alignment="center")
    name.page_link("views/commits.py", label=f"**{label(one.name)}**", query_params={"service": one.name})
    texts = (
        f"{one.commits:,}",
        f"{age(one.newest_wall_ns)} ago",
        duration(one.median_pause_us),
        size(one.bytes),
        size(one.new_bytes),
    )
    for cell, words in zip(cells, texts, strict=True):
        cell.text(words)


def _show_service(settings: Settings, service: str) -> None:
    st.page_link("views/commits.py", label="All services", icon=":material/arrow_back:", query_params={})
    st.title(label(service), anchor=False)
    with telling(), st.spinner("Reading the index …"):
        pager = ListPager[str]("commits", service)
        if pager.after is None:
            newest = page_of_commits(settings, CommitsParams(target=service, limit=_DRAWN), Silent()).items
            if len(newest) > 1:
                st.caption(
                    f"How long the service stood still for each of its newest {len(newest)} commits, and what each added"
                )
                st.plotly_chart(figure(newest), key="pauses", config={"displayModeBar": False})
        page = page_of_commits(
            settings, CommitsParams(target=service, after=pager.after, limit=_COMMITS), Silent()
        )
        show_commits(page.items, f"There is no commit of {label(service)}.")
        pager.show(page.next)


if __name__ == "__main__":
    show()
