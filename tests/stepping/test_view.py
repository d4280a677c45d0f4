"""What a page shows of a debugger's session at once."""

from __future__ import annotations

from relive.incidents.report.masking import MASK
from relive.stepping.commands import DebuggerCommands
from relive.stepping.view import view_of

from .test_stepping_session import LINES, made  # noqa: F401 - the request that is always the same


def test_it_shows_where_it_stands_with_all_that_is_bounded_and_masked(made):  # noqa: F811
    commands = DebuggerCommands(made[0])
    opening = commands.opening()
    commands.do("break app.py:20 if x")
    commands.do("watch app.cache")
    commands.do("bookmark there")
    view = view_of(commands, opening)
    assert view.said.startswith("@5 ") and view.stop is not None and view.stop.position == 5
    assert view.last == len(LINES) and view.bookmarks == {"there": 5}
    assert [one.function for one in view.frames] == ["f", "<run>"] and view.frame == 0
    assert len(view.lines) == 29 and max(map(len, view.lines)) == 500
    secret, order = view.variables
    assert secret.text == MASK and len(order.text) == 4000
    assert [(one.line, one.when) for one in view.breakpoints] == [(20, "x")] and view.watches == ["app.cache"]


def test_a_frame_is_chosen_by_its_number(made):  # noqa: F811
    commands = DebuggerCommands(made[0])
    commands.opening()
    assert commands.do("frame 1") == ">1 /lib/x.py:7 <run>"
    assert view_of(commands, "").frame == 1
    for text in ("frame 2", "frame", "frame -1", "frame x"):
        assert "no such frame" in commands.do(text)
    commands.do("rs")
    assert view_of(commands, "").frame == 0


def test_what_cannot_be_told_is_said_and_the_place_stays(made):  # noqa: F811
    line, fakes = made
    commands = DebuggerCommands(line)
    commands.opening()
    fakes[-1].silent = True
    view = view_of(commands, "x")
    assert view.trouble is not None and "no answer" in view.trouble and view.variables == []
    assert view.stop is not None and view.stop.position == 5  # in a fresh branch
    assert view_of(commands, "x").trouble is None


def test_a_request_that_has_ended_stands_nowhere(made):  # noqa: F811
    commands = DebuggerCommands(made[0])
    commands.opening()
    view = view_of(commands, commands.do("c"))
    assert view.stop is None and view.frames == [] and "has ended" in view.said
