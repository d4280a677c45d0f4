"""The list of incidents: what failed, newest first."""

from __future__ import annotations

import streamlit as st

from relive.config import Settings
from relive.dashboard.look import chip, escape, label
from relive.dashboard.paging import ListPager
from relive.dashboard.protection import show_unprotected
from relive.dashboard.refusals import home, telling
from relive.incidents.incidents import IncidentOrder
from relive.model.incident import FailureKind
from relive.model.quantities import age, when
from relive.operations.incidents import IncidentLine, IncidentsParams, page_of_incidents
from relive.operations.progress import Silent

__all__ = ["show"]

_PAGE = 20
_ORDERS = {"Newest first": IncidentOrder.NUMBER, "Seen last": IncidentOrder.LAST_SEEN}


def show() -> None:
    """The page."""
    st.title("Incidents")
    settings = home()
    show_unprotected(settings)
    params = _asked()
    pager = ListPager[str]("incidents", params)
    with telling(), st.spinner("Reading incidents …"):
        _show_page(settings, params.model_copy(update={"after": pager.after}), pager)


def _asked() -> IncidentsParams:
    search, service, kind, order = st.columns([4, 2, 2, 2])
    kinds = ["Any failure", *FailureKind]
    chosen = kind.selectbox("Failure", kinds, key="kind", label_visibility="collapsed")
    return IncidentsParams(
        search=search.text_input(
            "Search",
            key="search",
            placeholder="Words of the exception or the request",
            label_visibility="collapsed",
        )
        or None,
        service=service.text_input(
            "Service", key="service", placeholder="Any service", label_visibility="collapsed"
        ).strip()
        or None,
        kind=FailureKind(chosen) if chosen != kinds[0] else None,
        order=_ORDERS[
            str(order.selectbox("Order", list(_ORDERS), key="order", label_visibility="collapsed"))
        ],
        limit=_PAGE,
    )


def _show_page(settings: Settings, params: IncidentsParams, pager: ListPager[str]) -> None:
    page = page_of_incidents(settings, params, Silent())
    if not page.items:
        _show_nothing(params)
    for one in page.items:
        _show_line(one)
    pager.show(page.next)


def _show_nothing(params: IncidentsParams) -> None:
    if params.search or params.service or params.kind or params.after:
        st.info("No incident fits. Try other words, or any failure.", icon=":material/search_off:")
        return
    st.info(
        "Nothing has failed yet. Run a service under Relive, and what fails in it appears here:  \n"
        "`relive run --name pay --listen 127.0.0.1:8000 -- uvicorn app:app --port 8000`",
        icon=":material/check_circle:",
    )


def _show_line(one: IncidentLine) -> None:
    with st.container(
        horizontal=True, vertical_alignment="center", gap="small", key=f"incident-{one.number}"
    ):
        with st.container(width="stretch", gap=None):
            st.page_link(
                "views/incident.py",
                label=f"**{label(one.exception or one.sighting.summary)}**",
                query_params={"number": str(one.number)},
            )
            if one.exception:  # which the summary of an exception begins with
                rest = one.sighting.summary.removeprefix(one.exception).strip()
                st.html(f'<div class="rl rl-dim">{escape(rest)}</div>')
        times = f"{one.times} times" if one.times > 1 else "once"
        st.html(
            f'<div class="rl rl-cells"><span>{escape(one.service)}</span>'
            f'<span>{chip(one.sighting.kind.value, "bad")}</span><span class="rl-dim rl-slim">{times}</span>'
            f'<span class="rl-dim rl-slim" title="{when(one.last_seen_wall_ns)}">{age(one.last_seen_wall_ns)} ago</span></div>',
            width=540,
        )


if __name__ == "__main__":
    show()
