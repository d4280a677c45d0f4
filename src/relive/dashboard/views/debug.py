"""A debugger at an incident's request: forward and back in time, line by line, as `relive debug --step` has it."""

from __future__ import annotations

import streamlit as st

from relive.config import Settings
from relive.dashboard.asking import number_asked
from relive.dashboard.debuggers import DEBUGGERS, Debugger, Standing
from relive.dashboard.look import escape, label
from relive.dashboard.panels import show_locals, show_source, show_stack, show_stops
from relive.dashboard.refusals import home, refuse, telling
from relive.stepping.view import SteppingView

__all__ = ["show"]

_LOOK_AGAIN = 0.3  # [s] while a command runs
# Words of the debugger, as they are shown, their icons and keys: those of browsers' debuggers, back with Ctrl.
_BACK = (
    ("start", "Start", "first_page", None, "To the request's first line"),
    ("reverse-continue", "Back to a stop", "fast_rewind", "Ctrl+F8", "Back to a breakpoint, or to the change of a watched value"),
    ("reverse-out", "Back to the caller", "north_west", "Ctrl+Shift+F9", "Back to the line of the caller that called this"),
    ("reverse-next", "Back over", "undo", "Ctrl+F10", "Back by a line, over calls"),
    ("reverse-step", "Back by a line", "arrow_back", "Ctrl+F9", "Back by a line, into calls"),
)  # fmt: skip
_ON = (
    ("step", "Step into", "arrow_forward", "F9", "On by a line, into calls"),
    ("next", "Step over", "redo", "F10", "On by a line, over calls"),
    ("out", "Step out", "north_east", "Shift+F9", "On to the caller"),
    ("continue", "Continue", "fast_forward", "F8", "On to the next breakpoint or change of a watched value"),
    ("failure", "Failure", "last_page", None, "To the line that failed"),
)


def show() -> None:
    """The page."""
    settings = home()
    number = number_asked("incident")
    st.page_link(
        "views/incident.py",
        label=f"Incident {number}",
        icon=":material/arrow_back:",
        query_params={"number": str(number)},
    )
    st.title(f"Step through incident {number}", anchor=False)
    with telling():
        debugger = DEBUGGERS.of(settings.home, number)
        if debugger is None:
            _offer(settings, number, "Step through it")
        else:
            _show(settings, number, debugger, debugger.standing())


def _offer(settings: Settings, number: int, words: str) -> None:
    st.caption(
        "The failing request runs again in sealed branches, from the commit before it; the service itself is not touched. "
        "It begins at the line that failed."
    )
    if st.button(words, key="begin", type="primary", icon=":material/step_over:"):
        DEBUGGERS.begin(settings, number).wait()
        st.rerun()


def _show(settings: Settings, number: int, debugger: Debugger, now: Standing) -> None:
    if now.has_ended:
        _show_end(settings, number, now)
        return
    can = now.doing is None and now.view is not None
    _show_buttons(debugger, can=can)
    if now.doing is not None:
        st.fragment(_await, run_every=_LOOK_AGAIN)(debugger)
    if now.view is not None:
        _show_view(debugger, now.view, can=can)


def _show_end(settings: Settings, number: int, now: Standing) -> None:
    if now.error is not None:
        refuse(now.error)
    else:
        st.info(
            "It has ended, and its branches are removed: it was told to, or had no command for half an hour.",
            icon=":material/stop_circle:",
        )
    _offer(settings, number, "Begin again")


def _show_buttons(debugger: Debugger, *, can: bool) -> None:
    for row in (_BACK, _ON):
        with st.container(horizontal=True, gap="small"):
            for word, words, icon, shortcut, about in row:
                st.button(
                    words,
                    key=word,
                    icon=f":material/{icon}:",
                    shortcut=shortcut,
                    help=about,
                    on_click=debugger.say,
                    args=(word,),
                    disabled=not can,
                )
            if row is _ON and st.button(
                "End", key="end", icon=":material/stop_circle:", help="Its branches are removed"
            ):
                debugger.end()
                debugger.await_end()
                st.rerun()


def _await(debugger: Debugger) -> None:
    now = debugger.standing()
    if now.doing is None or now.has_ended:
        st.rerun()
    words = (
        "Bringing the state back, and running to the failure" if now.view is None else f"Running: {now.doing}"
    )
    st.progress(0.0, text=label(words))
    if now.message and now.view is None:
        st.caption(label(now.message))


def _show_view(debugger: Debugger, view: SteppingView, *, can: bool) -> None:
    _show_place(debugger, view, can=can)
    left, right = st.columns([3, 2], gap="large")
    with left:
        if view.stop is not None:
            show_source(debugger, view, can=can)
        _show_console(debugger, view, can=can)
    with right:
        if view.stop is not None:
            show_locals(view)
            show_stack(debugger, view, can=can)
        show_stops(debugger, view, can=can)


def _show_place(debugger: Debugger, view: SteppingView, *, can: bool) -> None:
    """Where it stands among the lines that ran."""
    if view.stop is None:
        st.info(label(view.said), icon=":material/flag:")
        return
    at, last = view.stop.position, max(view.last, view.stop.position)
    if last > 1:
        key = f"position {at}"
        st.slider(
            "Line of the request",
            min_value=1,
            max_value=last,
            value=at,
            key=key,
            format="@%d",
            on_change=lambda: debugger.say(f"goto {st.session_state[key]}"),
            disabled=not can,
            help="Which of the lines of the service's own code that ran for it, in their order; drag it to go there",
        )


def _show_console(debugger: Debugger, view: SteppingView, *, can: bool) -> None:
    with st.container(key="debugger-said"):
        st.html(f'<div class="rl"><pre class="rl-text">{escape(view.said)}</pre></div>')
    with st.form("console", border=False, clear_on_submit=True), st.container(horizontal=True):
        text = st.text_input(
            "Command", key="command", placeholder="p order.total, or help", max_chars=2000,
            label_visibility="collapsed",
        )  # fmt: skip
        wanted = st.form_submit_button("Do it", disabled=not can)
    if wanted and text.strip():
        debugger.say(text.strip())
        st.rerun()


if __name__ == "__main__":
    show()
