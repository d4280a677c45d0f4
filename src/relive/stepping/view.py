"""All that a page shows of a debugger's session at once: where it stands, the stack, the source, the locals, what it stops at."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from relive.errors import ReliveError
from relive.model.text import printable
from relive.model.value import Value
from relive.stepping.commands import DebuggerCommands
from relive.stepping.live import Breakpoint, Stop
from relive.stepping.stepping_session import StackFrame, Variable

__all__ = ["SteppingView", "view_of"]

_AROUND = 14  # lines of source on each side
# What runs in a branch may be hostile, and says all of it.
_LINE_MOST, _TEXT_MOST = 500, 4000  # [characters] of a line of source, of a value


class SteppingView(Value):
    """A session as it is after a command.

    Attributes:
        said: the answer to the command.
        stop: None: the request has ended, or no place is known.
        last: the position of the request's last line; 0: not known.
        frame: that is looked at, counted from the innermost one; frames, innermost first.
        first: the number of the first of ``lines``; line: of the frame's line. Both 0 where there is no source.
        breakpoints, watches: ``delete`` counts them on from 1, in this order.
        trouble: why frames, source or locals are not there.
    """

    said: str
    stop: Stop | None = None
    last: int = 0
    frame: int = 0
    frames: list[StackFrame] = Field(default=[])
    first: int = 0
    line: int = 0
    lines: list[str] = Field(default=[])
    variables: list[Variable] = Field(default=[])
    breakpoints: list[Breakpoint] = Field(default=[])
    watches: list[str] = Field(default=[])
    bookmarks: dict[str, int] = Field(default={})
    trouble: str | None = None


def view_of(commands: DebuggerCommands, said: str) -> SteppingView:
    """What there is to see; of what cannot be told, why. Raises nothing of Relive's."""
    session = commands.session
    view = SteppingView(
        said=printable(said),
        stop=session.stop,
        last=session.last,
        frame=commands.frame,
        breakpoints=list(session.breakpoints),
        watches=list(session.watches),
        bookmarks=dict(session.bookmarks),
    )
    if session.stop is None:
        return view
    seen: dict[str, object] = {}
    try:
        seen["frames"] = session.stack()
        seen["first"], seen["line"], lines = session.source(commands.frame, _AROUND)
        seen["lines"] = [one[:_LINE_MOST] for one in lines[: 2 * _AROUND + 1]]
        found = session.variables(commands.frame)
        seen["variables"] = [replace(one, text=one.text[:_TEXT_MOST]) for one in found]
    except ReliveError as error:
        # It may have had to begin anew, and then it stands where it stood, or nowhere.
        seen |= {"trouble": str(error), "stop": session.stop}
    return view.model_copy(update=seen)
