"""Changes of a recording as they are written: ``CALL[PATH]=VALUE``, numbers and pairs of requests. docs/why.md has the tables.

CALL is ``[REQUEST/]KIND:N``: the Nth step of that kind of a request, of the failing one where none is named; ``0/`` are those
outside of any request. PATH is a path in the answer, as ``--ignore`` takes it: ``$[0].price``. VALUE is

* ``delay:TIME``: the same answer, so long after the question
* ``fail:reset``, ``fail:closed``, ``fail:silent``: no answer; ``fail:error:TEXT``: the server's error; ``fail:TYPE:TEXT``: that
  exception
* for HTTP a status, a status and a body, or a body: ``503``, ``200 {"rate": 2}``, ``{"rate": 2}``
* for a reading of the clock a number, a moment (``2026-11-23T12:00:00``) or a shift (``+1h``, ``-90s``)
* else JSON: rows as a list of lists, a value of Redis, a random number
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any, Literal

from relive.errors import ChangeUnfit
from relive.protocols.matching import PathStep, path_steps
from relive.recording.events import EventKind

__all__ = [
    "KINDS",
    "AnswerChange",
    "CallName",
    "Change",
    "Delay",
    "Failure",
    "HttpAnswer",
    "Instead",
    "Reordered",
    "Shift",
    "Without",
    "WithoutMessage",
    "option_of",
    "parse_answer",
    "parse_pair",
]

KINDS: dict[str, EventKind] = {
    "http": EventKind.HTTP_CALL,
    "s3": EventKind.S3_CALL,
    "query": EventKind.QUERY,
    "redis": EventKind.REDIS_COMMAND,
    "bytes": EventKind.DIALOGUE_UP,
    "clock": EventKind.CLOCK,
    "random": EventKind.RANDOM,
}
"""The words for what can be changed, as a timeline has them."""

_HTTP = ("http", "s3")
_CALL = re.compile(r"(?:(?P<request>\d{1,15})/)?(?P<label>[a-z0-9-]+):(?P<number>\d{1,9})")
_PATH = re.compile(r"\$(?:\.[^.\[\]='\s]+|\[\d+\]|\['[^']*'\])+")
_STATUS = re.compile(r"([1-5]\d\d)(?: (.*))?", re.DOTALL)
_TIME = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d)?")
_UNITS = {"us": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9, "d": 86400e9, None: 1e9}
_EXCEPTION = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_LONGEST = 1 << 20  # [characters] of a change
_LONGEST_DELAY = 3600e9  # [ns]
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)?)?")


@dataclass(frozen=True, slots=True)
class CallName:
    """Which step of a recording; ``request`` None: of the failing request."""

    request: int | None
    label: str
    number: int

    def __str__(self) -> str:
        return f"{'' if self.request is None else f'{self.request}/'}{self.label}:{self.number}"


@dataclass(frozen=True, slots=True)
class Delay:
    """The same answer, so many nanoseconds after the question."""

    ns: int


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer: ``reset``, ``closed``, ``silent``; or the server's ``error``; or the name of an exception."""

    how: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer of HTTP with another status, body, or both; None: as it was."""

    status: int | None
    body: str | None


@dataclass(frozen=True, slots=True)
class Shift:
    """A clock that shows so many nanoseconds more."""

    ns: int


@dataclass(frozen=True, slots=True)
class Instead:
    """Another value, as JSON has it; ``is_moment``: a text that is a moment."""

    value: Any
    is_moment: bool = False


@dataclass(frozen=True, slots=True)
class AnswerChange:
    """One step is answered otherwise; ``path``: only what lies there in the answer."""

    call: CallName
    path: tuple[PathStep, ...]
    to: Delay | Failure | HttpAnswer | Shift | Instead
    written: str


@dataclass(frozen=True, slots=True)
class Without:
    """A request that is left out."""

    request: int


@dataclass(frozen=True, slots=True)
class WithoutMessage:
    """A message that is not HTTP/1 and is left out, with what the service answered to it."""

    message: int


@dataclass(frozen=True, slots=True)
class Reordered:
    """Two requests: each in the other's place, one after the end of the other, or both at once."""

    how: Literal["swap", "apart", "together"]
    first: int
    second: int


Change = AnswerChange | Without | WithoutMessage | Reordered


def option_of(change: Change) -> str:
    """As it is written on a command line."""
    if isinstance(change, Without):
        return f"--without {change.request}"
    if isinstance(change, WithoutMessage):
        return f"--without-message {change.message}"
    if isinstance(change, Reordered):
        return f"--{change.how} {change.first},{change.second}"
    return f"--answer {shlex.quote(change.written)}"


def parse_answer(text: str) -> AnswerChange:
    """One ``CALL[PATH]=VALUE``; raises ChangeUnfit."""
    if len(text) > _LONGEST:
        raise ChangeUnfit("a change is too long", cause=f"it has over {_LONGEST} characters")
    call = _CALL.match(text)
    if call is None or call["label"] not in KINDS:
        raise _unfit(text, f"it does not begin with a call, KIND:N, of {', '.join(KINDS)}")
    name = CallName(
        int(call["request"]) if call["request"] else None, call["label"], max(0, int(call["number"]))
    )
    rest = text[call.end() :]
    path = _PATH.match(rest)
    steps = tuple(path_steps(path[0])) if path is not None else ()
    rest = rest[path.end() :] if path is not None else rest
    if not rest.startswith("="):
        what = f"behind {text[: len(text) - len(rest)]!r}"
        raise _unfit(text, f"{what} comes neither a path such as $[0].price nor =VALUE")
    return AnswerChange(name, steps, _value(text, name.label, rest[1:], has_path=bool(steps)), text)


def parse_pair(how: Literal["swap", "apart", "together"], text: str) -> Reordered:
    """``A,B`` of two requests; raises ChangeUnfit."""
    one, comma, other = text.partition(",")
    numbers = [part.strip() for part in (one, other)]
    if not comma or not all(part.isdecimal() and len(part) < 16 for part in numbers):
        raise ChangeUnfit(
            f"--{how} cannot be {text[:80]!r}",
            cause="it takes the numbers of two requests",
            remedy=f"write --{how} 21,22; `relive show INCIDENT` tells numbers",
        )
    first, second = map(int, numbers)
    if first == second:
        raise ChangeUnfit(f"--{how} needs two requests", cause=f"both are {first}")
    return Reordered(how, first, second)


def _value(
    text: str, label: str, value: str, *, has_path: bool
) -> Delay | Failure | HttpAnswer | Shift | Instead:
    word, colon, rest = value.partition(":")
    if colon and word in ("delay", "fail"):
        if has_path:
            raise _unfit(text, "a delay or a failure is of a whole answer, not of a part of it")
        return _delay(text, rest) if word == "delay" else _failure(text, rest)
    if has_path:
        return Instead(_json(text, value))
    if label in _HTTP:
        status = _STATUS.fullmatch(value)
        return HttpAnswer(int(status[1]), status[2]) if status is not None else HttpAnswer(None, value)
    if label == "clock":
        return _moment(text, value)
    return Instead(_json(text, value))


def _delay(text: str, value: str) -> Delay:
    span = _span(value)
    if span is None or span > _LONGEST_DELAY:
        raise _unfit(text, f"{value!r} is no time up to an hour, such as 300ms or 2s")
    return Delay(span)


def _failure(text: str, value: str) -> Failure:
    how, _, words = value.partition(":")
    if _EXCEPTION.fullmatch(how) is None:
        raise _unfit(
            text, "a failure is reset, closed, silent, error:TEXT, or an exception such as TimeoutError:TEXT"
        )
    return Failure(how, words)


def _moment(text: str, value: str) -> Shift | Instead:
    if value[:1] in ("+", "-") and _span(value[1:]) is not None and not _NUMBER.fullmatch(value):
        span = _span(value[1:]) or 0
        return Shift(span if value[0] == "+" else -span)
    if _NUMBER.fullmatch(value) is not None:
        return Instead(_json(text, value))
    if _MOMENT.fullmatch(value) is not None:
        return Instead(value, is_moment=True)
    raise _unfit(text, f"{value[:80]!r} is no number, no moment and no shift such as +1h")


def _span(text: str) -> int | None:
    """Nanoseconds of ``300ms``; a number alone is of seconds."""
    found = _TIME.fullmatch(text)
    return round(float(found[1]) * _UNITS[found[2]]) if found is not None and len(found[1]) < 16 else None


def _json(text: str, value: str) -> Any:
    try:
        return json.loads(value, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        quoted = json.dumps(value[:80])
        raise ChangeUnfit(
            f"{text[:120]!r} is no change",
            cause=f"its value is no JSON: {str(error)[:200]}",
            remedy=f"a text has quotation marks: {shlex.quote(quoted)}",
        ) from error


def _refused(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


def _unfit(text: str, cause: str) -> ChangeUnfit:
    return ChangeUnfit(
        f"{text[:120]!r} is no change",
        cause=cause,
        remedy="write CALL=VALUE such as query:1='[[1, \"tea\"]]' or http:1=503; `relive what-if INCIDENT` lists the calls",
    )
