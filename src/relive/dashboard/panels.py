"""What a debugger's page shows beside its buttons: the source with the line that stands, stack, locals, and stops."""

from __future__ import annotations

from pathlib import PurePosixPath

import streamlit as st

from relive.dashboard.debuggers import Debugger
from relive.dashboard.frames import locals_table
from relive.dashboard.look import escape, label
from relive.stepping.view import SteppingView

__all__ = ["show_locals", "show_source", "show_stack", "show_stops"]

_FRAMES = 12  # of libraries that are listed


def show_source(debugger: Debugger, view: SteppingView, *, can: bool) -> None:
    """A click at a line's number sets a breakpoint there, or takes it away."""
    if not view.lines:
        st.caption(label(view.trouble or "The source of this frame could not be read."))
        return
    file = view.frames[view.frame].file
    st.caption(label(file))
    set_at = {one.line: number for number, one in enumerate(view.breakpoints, 1) if _is_end(file, one.file)}
    with st.container(horizontal=True, gap=None, key="debugger-source"):
        with st.container(width=72, gap=None, key="debugger-gutter"):
            for line in range(view.first, view.first + len(view.lines)):
                stop = set_at.get(line)
                st.button(
                    str(line),
                    key=f"line {line}",
                    type="primary" if stop is not None else "tertiary",
                    on_click=debugger.say,
                    args=(f"delete {stop}" if stop is not None else f"break {file}:{line}",),
                    disabled=not can,
                )
        lines = "".join(
            f"<span{' class=rl-ran' if number == view.line else ''}>{escape(text) or ' '}</span>"
            for number, text in enumerate(view.lines, view.first)
        )
        st.html(f'<div class="rl"><pre class="rl-source">{lines}</pre></div>', width="stretch")


def _is_end(file: str, named: str) -> bool:
    return file == named or file.endswith(f"/{named}")


def show_stack(debugger: Debugger, view: SteppingView, *, can: bool) -> None:
    """Innermost first; a click looks at a frame."""
    st.subheader("Stack", anchor=False)
    shown = [(at, one) for at, one in enumerate(view.frames) if one.own or at < _FRAMES]
    with st.container(gap=None, key="debugger-stack"):
        for at, one in shown:
            words = label(f"{one.function}  {PurePosixPath(one.file).name}:{one.line}")
            st.button(
                f"**{words}**" if at == view.frame else words if one.own else f":gray[{words}]",
                key=f"frame {at}",
                type="tertiary",
                on_click=debugger.say,
                args=(f"frame {at}",),
                disabled=not can,
            )
    if len(shown) < len(view.frames):
        st.caption(f"{len(view.frames) - len(shown)} frames of libraries are not listed.")


def show_locals(view: SteppingView) -> None:
    """Of the frame that is looked at."""
    st.subheader("Locals", anchor=False)
    if view.variables:
        values = {one.name: one.text for one in view.variables}
        st.html(f'<div class="rl">{locals_table(values)}</div>')
    else:
        st.caption(label(view.trouble or "There are none."))


def show_stops(debugger: Debugger, view: SteppingView, *, can: bool) -> None:
    """Breakpoints, watchpoints and bookmarks, and how to set them."""
    st.subheader("Stops", anchor=False)
    stops = [f"{one.file}:{one.line}{f' if {one.when}' if one.when else ''}" for one in view.breakpoints] + [
        f"{one} changes" for one in view.watches
    ]
    with st.container(gap=None, key="debugger-stops"):
        for number, words in enumerate(stops, 1):
            st.button(
                label(words),
                key=f"delete {number}",
                type="tertiary",
                icon=":material/close:",
                help="Take it away",
                on_click=debugger.say,
                args=(f"delete {number}",),
                disabled=not can,
            )
        for name, position in view.bookmarks.items():
            st.button(
                label(f"@{position} {name}"),
                key=f"bookmark {name}",
                type="tertiary",
                icon=":material/bookmark:",
                help="Go there",
                on_click=debugger.say,
                args=(f"goto {name}",),
                disabled=not can,
            )
    _ask(debugger, "break", "Breakpoint", "app.py:88, or app.py:88 if order.total > 9", can=can)
    _ask(debugger, "watch", "Stop when this changes", 'app.cache["rates"]', can=can)


def _ask(debugger: Debugger, word: str, title: str, example: str, *, can: bool) -> None:
    with st.form(f"ask {word}", border=False, clear_on_submit=True):
        text = st.text_input(title, key=f"{word} text", placeholder=example, max_chars=1000)
        wanted = st.form_submit_button("Set it", disabled=not can)
    if wanted and text.strip():
        debugger.say(f"{word} {text.strip()}")
        st.rerun()
