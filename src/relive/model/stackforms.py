"""Stacks as other languages than Python print them, each form by one small reader.

A reader gets the lines and the place where one may begin, and gives the stack and the place behind it. Frames are given
innermost last, as everywhere; what a run-time system adds of its own (``node:``, ``jdk.internal``) stays, since it is the same
in a replay.

Forms: V8 (Node.js, Deno; https://v8.dev/docs/stack-trace-api), the JVM (Throwable.printStackTrace), .NET, PHP (uncaught errors
and exceptions as text), Go (panics), Ruby (its own, and what loggers make of it), Rust (panics), Python's faulthandler (at a fatal
signal; https://docs.python.org/3/library/faulthandler.html), and the one line that Perl's ``die`` and PHP's messages leave.
Where V8 ends a process itself, such as for want of heap, its line counts as a stack without frames: at which allocation it
happens is chance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from relive.model.capsule import INPROCESS_DIRECTORY
from relive.model.outcome import Stack

__all__ = ["is_of_signal", "read_form"]

_Frame = tuple[str, int, str]
_Reader = Callable[[Sequence[str], int], "tuple[Stack, int] | None"]

_AT = re.compile(
    r"^\s+at (?:async )?(?:(?P<function>.*?) ?\()?(?P<place>[^()]*)\)?(?: in (?P<file>.+):line (?P<line>\d{1,9}))?(?: \{)?$"
)
_PLACE = re.compile(r"^(?P<file>.*?)(?::(?P<line>\d{1,9}))?(?::\d+)?$")
_MORE = re.compile(r"^\s+\.\.\. \d+ (?:more|common frames omitted)$")
# Each word is looked at once: nothing of it is given back.
_TYPE = re.compile(
    r"(?<![\w.$])(?:[\w.$]*[.$])?+(?>\w*?(?:Error|Exception|Throwable|Failure))\w*+(?=:|\s|$).*"
)
_CAUSE = re.compile(r"^\s*(?:Caused by:|\[cause\]:|---> )")
_PHP_FRAME = re.compile(
    r"^#\d+ (?:(?P<file>.+)\((?P<line>\d{1,9})\): |\[internal function\]: )?(?P<function>.+)$"
)
_PHP_PLACE = re.compile(
    r"(?P<what>(?:PHP )?(?:Fatal error|Parse error|Warning|Notice|Deprecated): .+) in (?P<file>\S+) on line (?P<line>\d{1,9})$"
)
_PHP_HEAD = re.compile(
    r"(?:^|Uncaught |: |\] )(?P<what>[\w\\]+(?:: .*)?) in (?P<file>\S+):(?P<line>\d{1,9})$"
)
_PHP_LOGGED = re.compile(
    r"(?:^|\s)(?P<what>[\w\\]*(?:Error|Exception)\w*(?:: .*)?) in (?P<file>\S+):(?P<line>\d{1,9})$"
)
_PERL = re.compile(
    r"^\s*(?P<what>\S.*) at (?P<file>\S+) line (?P<line>\d{1,9})(?:, <.+> (?:line|chunk) \d+)?\.$"
)
_GO_HEAD = re.compile(r"panic(?: serving \S+)?: .+")
_GO_ROUTINE = re.compile(r"^goroutine \d+ \[.*\]:$")
_GO_PLACE = re.compile(r"^\t(?P<file>.+):(?P<line>\d{1,9})(?: \+0x[0-9a-f]+)?$")
_GO_FUNCTION = re.compile(r"^(?:created by )?(?P<function>.+?)(?:\([^()]*\))?(?: in goroutine \d+)?$")
_RUBY_HEAD = re.compile(r"^(?P<file>\S+):(?P<line>\d{1,9}):in [`'](?P<function>.+?)': (?P<what>.*\(\S+\))$")
_RUBY_FRAME = re.compile(r"^\s+(?:\d+: )?from (?P<file>\S+):(?P<line>\d{1,9})(?::in [`'](?P<function>.+)')?$")
_RUBY_LOGGED_FRAME = re.compile(r"^\s*(?P<file>[^\s:]\S*):(?P<line>\d{1,9}):in [`'](?P<function>.+)'$")
_RUBY_NAME = r"(?P<type>[A-Z]\w*(?:::[A-Z]\w*)*)"
_RUBY_LOGGED_HEADS = (
    re.compile(rf"(?:^|\s)(?P<message>\S.*) \({_RUBY_NAME}\)$"),  # logger
    re.compile(rf"(?:^|\s){_RUBY_NAME} \((?P<message>.*)\):$"),  # Rails
    re.compile(rf"(?:^|\s|#<){_RUBY_NAME}(?:: | - )(?P<message>.*?)[:>]?$"),  # WEBrick, Sinatra, Puma
)
_RUST = re.compile(r"^thread '.*'(?: \(\d+\))? panicked at (?P<file>\S+):(?P<line>\d{1,9}):\d+:$")
_FAULT = "Fatal Python error: "
_FAULT_THREAD = re.compile(r"^(?P<current>Current thread|Thread) 0x[0-9a-f]+.* \(most recent call first\):$")
_FAULT_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d{1,9})(?: in (?P<function>.+))?$')
_V8_END = re.compile(r"^FATAL ERROR: (?P<what>\S.*)$")
_MOST_FRAMES = 1000


def read_form(lines: Sequence[str], start: int) -> tuple[Stack, int] | None:
    """The stack that begins at ``lines[start]``, and the place behind it; None where none of these forms begins there."""
    for reader in _READERS:
        found = reader(lines, start)
        if found is not None:
            return found
    return None


def is_of_signal(stack: Stack) -> bool:
    """It was printed by a handler of the signal that then ended the process."""
    return stack.exception.startswith(_FAULT)


def _at_frames(lines: Sequence[str], start: int) -> tuple[list[_Frame], int]:
    """Frames of V8, the JVM and .NET from ``start`` on, innermost first as printed."""
    frames: list[_Frame] = []
    place = start
    while place < len(lines) and len(frames) < _MOST_FRAMES:
        match = _AT.match(lines[place])
        if match is None:
            break
        if match["file"] is not None:
            frames.append((match["file"], int(match["line"]), f"{match['function'] or ''}({match['place']})"))
        else:
            where = _PLACE.match(match["place"])
            assert where is not None  # it matches every text
            if where["line"] is None and match["function"] is None:
                break  # words that happen to begin with "at"
            frames.append((where["file"], int(where["line"] or 0), match["function"] or ""))
        place += 1
    return frames, place


def _behind_more(lines: Sequence[str], place: int) -> int:
    """The place behind the lines that stand for frames that were printed before."""
    while place < len(lines) and _MORE.match(lines[place]):
        place += 1
    return place


def _read_at(lines: Sequence[str], start: int) -> tuple[Stack, int] | None:
    """V8, the JVM, .NET: a head, then lines that begin with ``at``. Of causes only the last, which came first."""
    if start + 1 >= len(lines) or not lines[start].strip() or _AT.match(lines[start]) is not None:
        return None
    head = lines[start]
    frames, end = _at_frames(lines, start + 1)
    if not frames:
        return None
    end = _behind_more(lines, end)
    while end < len(lines) and _CAUSE.match(lines[end]):
        inner, behind = _at_frames(lines, end + 1)
        head, frames, end = lines[end], inner or frames, _behind_more(lines, behind)
    named = _TYPE.search(head)
    exception = (named[0] if named is not None else _CAUSE.sub("", head)).strip(" {")
    return Stack(exception=exception, frames=frames[::-1], text=list(lines[start:end])), end


def _read_php(lines: Sequence[str], start: int) -> tuple[Stack, int] | None:
    """PHP: ``TYPE: message in FILE:LINE``, behind whatever a logger puts there, ``Stack trace:``, ``#0 FILE(LINE): function()``."""
    if start + 1 >= len(lines) or lines[start + 1].strip() != "Stack trace:":
        return None
    head = _PHP_HEAD.search(lines[start]) or _PHP_LOGGED.search(lines[start])
    if head is None:
        return None
    frames: list[_Frame] = []
    end = start + 2
    while end < len(lines) and (match := _PHP_FRAME.match(lines[end].strip())) is not None:
        frames.append((match["file"] or "", int(match["line"] or 0), match["function"]))
        end += 1
    if end < len(lines) and lines[end].strip().startswith("thrown in "):
        end += 1
    frames = [*frames[::-1], (head["file"], int(head["line"]), "")]
    return Stack(exception=head["what"], frames=frames, text=list(lines[start:end])), end


def _read_place(lines: Sequence[str], start: int) -> tuple[Stack, int] | None:
    """One line that ends with its place: PHP's messages, Perl's ``die`` and ``warn``, Rust's panics (with text), V8's end."""
    line = lines[start]
    rust = _RUST.match(line)
    if rust is not None and start + 1 < len(lines):
        text = list(lines[start : start + 2])
        frame = (rust["file"], int(rust["line"]), "")
        return Stack(exception=lines[start + 1], frames=[frame], text=text), start + 2
    ended = _V8_END.match(line)
    if ended is not None:
        return Stack(exception=ended["what"], frames=[], text=[line]), start + 1
    match = _PHP_PLACE.search(line) or _PERL.search(line)
    if match is None:
        return None
    frame = (match["file"], int(match["line"]), "")
    return Stack(exception=match["what"], frames=[frame], text=[line]), start + 1


def _read_go(lines: Sequence[str], start: int) -> tuple[Stack, int] | None:
    """Go: ``panic: ...``, then ``goroutine N [running]:`` and pairs of a function and its place."""
    head = _GO_HEAD.search(lines[start])
    begin = next(
        (at for at in range(start + 1, min(start + 6, len(lines))) if _GO_ROUTINE.match(lines[at])), None
    )
    if head is None or begin is None:
        return None
    frames: list[_Frame] = []
    end = begin + 1
    while end + 1 < len(lines) and (place := _GO_PLACE.match(lines[end + 1])) is not None:
        function = _GO_FUNCTION.match(lines[end])
        frames.append((place["file"], int(place["line"]), function["function"] if function else lines[end]))
        end += 2
    what = re.sub(r" serving \S+:", ":", head[0])  # the client's port
    return Stack(exception=what, frames=frames[::-1], text=list(lines[start:end])), end


def _read_fault(lines: Sequence[str], start: int) -> tuple[Stack, int] | None:
    """Python's faulthandler: the words, then a block for each thread, innermost frame first; the stack is the current thread's."""
    if not lines[start].startswith(_FAULT):
        return None
    frames: list[_Frame] = []
    end, is_current = start + 1, False
    for place in range(end, min(start + _MOST_FRAMES, len(lines))):
        thread, frame = _FAULT_THREAD.match(lines[place]), _FAULT_FRAME.match(lines[place])
        if thread is not None:
            is_current = thread["current"] != "Thread"
        elif frame is not None and is_current and not frame["file"].startswith(f"{INPROCESS_DIRECTORY}/"):
            frames.append((frame["file"], int(frame["line"]), frame["function"] or ""))
        elif frame is None and lines[place].strip():
            break
        if lines[place].strip():
            end = place + 1
    return Stack(exception=lines[start], frames=frames[::-1], text=list(lines[start:end])), end


def _read_ruby(lines: Sequence[str], start: int) -> tuple[Stack, int] | None:
    """Ruby: ``FILE:LINE:in `function': message (Type)``, then ``from`` and the frames around it."""
    head = _RUBY_HEAD.match(lines[start])
    if head is None:
        return None
    frames: list[_Frame] = [(head["file"], int(head["line"]), head["function"])]
    end = start + 1
    while end < len(lines) and (match := _RUBY_FRAME.match(lines[end])) is not None:
        frames.append((match["file"], int(match["line"]), match["function"] or ""))
        end += 1
    message, _, kind = head["what"].rpartition(" (")
    return Stack(
        exception=f"{kind.rstrip(')')}: {message}", frames=frames[::-1], text=list(lines[start:end])
    ), end


def _read_ruby_logged(lines: Sequence[str], start: int) -> tuple[Stack, int] | None:
    """Ruby's loggers and servers: a line that names the exception, perhaps an empty one, frames as in ``Exception#backtrace``."""
    if not lines[start].strip() or _RUBY_LOGGED_FRAME.match(lines[start]) is not None:
        return None
    end = start + 1
    if end < len(lines) and not lines[end].strip():
        end += 1
    frames: list[_Frame] = []
    while end < len(lines) and (match := _RUBY_LOGGED_FRAME.match(lines[end])) is not None:
        frames.append((match["file"], int(match["line"]), match["function"]))
        end += 1
    if not frames:
        return None
    head = next((found for form in _RUBY_LOGGED_HEADS if (found := form.search(lines[start]))), None)
    exception = f"{head['type']}: {head['message']}" if head is not None else lines[start].strip()
    return Stack(exception=exception, frames=frames[::-1], text=list(lines[start:end])), end


_READERS: Sequence[_Reader] = (
    _read_php,
    _read_go,
    _read_fault,
    _read_ruby,
    _read_ruby_logged,
    _read_at,
    _read_place,
)
