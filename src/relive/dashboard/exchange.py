"""The request that failed, and its answer."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from relive.dashboard.look import escape, facts
from relive.incidents.report.body import ReportBody
from relive.incidents.report.detail import Account
from relive.incidents.report.proxied import Proxied
from relive.incidents.report.words import status_text
from relive.model.failure import FailedRequest
from relive.model.quantities import duration

__all__ = ["show_exchange"]

_MOST = 20_000  # [characters] of a body


def show_exchange(account: Account) -> None:
    """Side by side; as the proxy saw them, else the request as the service saw it; nothing where there was none."""
    request = account.package.request if account.package is not None else None
    if account.proxied is not None:
        st.header("The request and its answer", anchor=False)
        _show_proxied(account.proxied)
    elif request is not None:
        st.header("The request", anchor=False)
        _show_seen_inside(request)


def _show_proxied(one: Proxied) -> None:
    left, right = st.columns(2, gap="medium")
    client = f" from {escape(one.client)}" if one.client else ""
    left.html(
        f'<div class="rl"><p><code><b>{escape(one.method)} {escape(one.target)}</b></code>'
        f'<span class="rl-dim">{client}</span></p>{_body(one.body)}{_headers(one.headers)}</div>'
    )
    ended = one.ended_mono_ns
    took = f" after {duration((ended - one.began_mono_ns) / 1000)}" if ended is not None else ""
    status = status_text(one.status) or f"no answer ({one.ended.value})"
    tone = " class=rl-bad" if one.status is None or one.status >= 500 else ""
    right.html(
        f'<div class="rl"><p><code><b{tone}>{escape(status)}</b></code><span class="rl-dim">{took}</span></p>'
        f"{_body(one.answer_body)}{_headers(one.answer_headers)}</div>"
    )


def _show_seen_inside(one: FailedRequest) -> None:
    body = _text(one.body + (f" … {one.body_cut} bytes more" if one.body_cut else "")) if one.body else ""
    st.html(
        f'<div class="rl"><p><code><b>{escape(one.method)} {escape(one.target)}</b></code></p>'
        f"{body}{_headers(one.headers)}</div>"
    )


def _body(body: ReportBody) -> str:
    return '<p class="rl-dim">no body</p>' if body.is_empty else _text(body.words())


def _text(text: str) -> str:
    rest = f"\n… {len(text) - _MOST} characters more" if len(text) > _MOST else ""
    return f'<pre class="rl-text">{escape(text[:_MOST] + rest)}</pre>'


def _headers(headers: Iterable[tuple[str, str]]) -> str:
    rows = [(name, f"<code>{escape(value)}</code>") for name, value in headers]
    if not rows:
        return ""
    return f'<details><summary class="rl-dim">{len(rows)} headers</summary>{facts(rows)}</details>'
