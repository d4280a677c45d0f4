"""Commands of a debugger on a ``SteppingSession``: a line of text to a text. The words are those of pdb and gdb."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from relive.errors import PlaceUnfit, ReliveError, UsageError
from relive.stepping.live import Breakpoint, Stop
from relive.stepping.stepping_session import SteppingSession, Variable

__all__ = ["HELP", "DebuggerCommands"]

HELP = """\
forward      step (s)           next (n)           out              continue (c)
back         reverse-step (rs)  reverse-next (rn)  reverse-out (ro) reverse-continue (rc)
places       goto POSITION|NAME (g)  start  failure  bookmark NAME  info
stops        break FILE:LINE [if EXPRESSION] (b)  watch EXPRESSION  delete NUMBER|all
look         where (w, bt)  up  down  frame NUMBER (f)  list (l)  locals  p EXPRESSION
             help (h)  quit (q)"""
_BREAK = re.compile(r"(?P<file>.*[^/\s]):(?P<line>[1-9]\d{0,8})(?:\s+if\s+(?P<when>.+))?", re.DOTALL)
_AT_BEGIN = "There is nothing before this to stop at."
_SHOWN = 12  # frames


@dataclass(slots=True)
class DebuggerCommands:
    """One conversation.

    Attributes:
        has_quit: it was told to end.
        frame: that is looked at, counted from the innermost one.
    """

    session: SteppingSession
    has_quit: bool = False
    frame: int = 0
    _words: dict[str, Callable[[str], str]] = field(init=False)

    def __post_init__(self) -> None:
        line = self.session
        words: dict[str, Callable[[str], str]] = {}
        for how, short in (("step", "s"), ("next", "n"), ("out", "out"), ("continue", "c")):
            words[how] = words[short] = partial(self._on, how)
            words[f"reverse-{how}"] = words[f"r{short[0]}"] = partial(self._back, how)
        words |= {
            **dict.fromkeys(("goto", "g"), self._goto),
            "start": lambda _: self._moved(line.go_to(1)),
            "failure": lambda _: self._moved(line.go_to_failure()),
            "bookmark": self._bookmark,
            "info": lambda _: self._info(),
            **dict.fromkeys(("break", "b"), self._break),
            "watch": self._watch,
            "delete": self._delete,
            **dict.fromkeys(("where", "w", "bt"), lambda _: self._where()),
            "up": lambda _: self._select(self.frame + 1),
            "down": lambda _: self._select(self.frame - 1),
            **dict.fromkeys(("frame", "f"), lambda text: self._select(_number(text, -1))),
            **dict.fromkeys(("list", "l"), lambda _: self._list()),
            "locals": lambda _: "\n".join(map(_value_line, line.variables(self.frame))),
            **dict.fromkeys(("p", "print"), lambda text: _value_line(line.evaluate(text, self.frame))),
            **dict.fromkeys(("help", "h"), lambda _: HELP),
            **dict.fromkeys(("quit", "q", "exit"), lambda _: self._quit()),
        }
        self._words = words

    def opening(self) -> str:
        """Where it stands at first: at the failure."""
        return self._moved(self.session.go_to_failure())

    def do(self, text: str) -> str:
        """The answer to one line; an error is told in it."""
        word, _, rest = text.strip().partition(" ")
        if not word:
            return ""
        command = self._words.get(word)
        if command is None:
            return f"There is no command {word!r}.\n{HELP}"
        try:
            return command(rest.strip())
        except ReliveError as error:
            return "\n".join(filter(None, [f"Error: {error}", error.remedy]))

    def _moved(self, stop: Stop | None) -> str:
        self.frame = 0
        if stop is None:
            return self._ended()
        why = {"breakpoint": ", a breakpoint", "watch": ", a watched value has changed"}.get(stop.stopped, "")
        names = [name for name, position in self.session.bookmarks.items() if position == stop.position]
        named = f" [{', '.join(names)}]" if names else ""
        return f"@{stop.position}{named} {stop.file}:{stop.line} {stop.function}{why}\n-> {stop.source}"

    def _ended(self) -> str:
        if not self.session.last:
            return "The request came to no line of the service's own code."
        return f"The request has ended, after @{self.session.last}."

    def _on(self, how: str, _rest: str) -> str:
        return self._moved(self.session.forward(how))

    def _back(self, how: str, _rest: str) -> str:
        stop = self.session.back(how)
        return self._moved(stop) if stop is not None else _AT_BEGIN

    def _goto(self, text: str) -> str:
        position = self.session.bookmarks.get(text)
        if position is None:
            if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 53:
                raise UsageError(
                    f"{text!r} is no position, and no bookmark",
                    cause="a position is the number behind @, from 1",
                    remedy="`info` lists the bookmarks",
                )
            position = int(text)
        return self._moved(self.session.go_to(position))

    def _bookmark(self, text: str) -> str:
        stop = self.session.stop
        if not text or stop is None:
            raise UsageError(
                "nothing to mark", cause="it takes a name, and a line to stand in", remedy="bookmark NAME"
            )
        self.session.bookmarks[text] = stop.position
        return f"@{stop.position} is {text}."

    def _break(self, text: str) -> str:
        found = _BREAK.fullmatch(text)
        if found is None:
            raise UsageError(
                f"{text!r} is no line of a file", remedy="break FILE:LINE, or break FILE:LINE if EXPRESSION"
            )
        self.session.check_place(found["file"], int(found["line"]))
        if found["when"] is not None:
            self.session.check(found["when"], is_watched=False)
        self.session.breakpoints.append(Breakpoint(found["file"], int(found["line"]), found["when"]))
        return self._info()

    def _watch(self, text: str) -> str:
        if not text:
            raise UsageError(
                "there is nothing to watch", remedy='watch EXPRESSION, such as app.cache["rates"]'
            )
        self.session.check(text, is_watched=True)
        self.session.watches.append(text)
        return self._info()

    def _delete(self, text: str) -> str:
        breakpoints, watches = self.session.breakpoints, self.session.watches
        if text == "all":
            breakpoints.clear()
            watches.clear()
            return self._info()
        number = _number(text, 0) - 1
        if 0 <= number < len(breakpoints):
            del breakpoints[number]
        elif 0 <= number - len(breakpoints) < len(watches):
            del watches[number - len(breakpoints)]
        else:
            raise UsageError(f"{text!r} is no number of a stop", remedy="`info` lists them")
        return self._info()

    def _info(self) -> str:
        line = self.session
        stops = [
            f"break {one.file}:{one.line}{f' if {one.when}' if one.when else ''}" for one in line.breakpoints
        ]
        stops += [f"watch {one}" for one in line.watches]
        lines = [f"{number} {one}" for number, one in enumerate(stops, 1)]
        lines += [f"@{position} {name}" for name, position in line.bookmarks.items()]
        return "\n".join(lines) or "No stops, no bookmarks."

    def _where(self) -> str:
        lines = []
        for number, frame in enumerate(self.session.stack()):
            if frame.own or number < _SHOWN:
                mark = ">" if number == self.frame else " "
                lines.append(f"{mark}{number} {frame.file}:{frame.line} {frame.function}")
        return "\n".join(lines) or self._ended()

    def _select(self, number: int) -> str:
        frames = self.session.stack()
        if not 0 <= number < len(frames):
            raise PlaceUnfit("there is no such frame", remedy="`where` lists them")
        self.frame, frame = number, frames[number]
        return f">{self.frame} {frame.file}:{frame.line} {frame.function}"

    def _list(self) -> str:
        first, line, lines = self.session.source(self.frame)
        return "\n".join(
            f"{number:5} {'->' if number == line else '  '} {text}"
            for number, text in enumerate(lines, first)
        )

    def _quit(self) -> str:
        self.has_quit = True
        return ""


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else otherwise


def _value_line(variable: Variable) -> str:
    return f"{variable.name} {'raises ' if variable.raised else '= '}{variable.text}"
