"""The recorded answers that Relive lays beside the rings of a branch, read as something hostile.

Directory ``answers`` in that of the rings:

``PID.jsonl``       for a process that is in the commit; ``PID-SEQ.jsonl`` for one that was forked later
``started.json``    one JSON object: ``format``, ``version``, ``policy`` and ``clock`` as below, and ``started``: list of
                    ``[file, command]`` of processes that were started by exec after the commit, in order
``PID-N.body``      long bodies; events name them in ``file``, see ``bodies``

A file is JSON lines. The first one is an object:

``format``, ``version``  "relive-answers", 1
``policy``          kind of event to what becomes of a miss: "fail" (a ``NoAnswer`` is raised) or "pass" (the real call, which
                    finds a sealed network); "*" stands for all others
``clock``           "recorded", or "real": readings of clocks are not answered
``children``        list of ``[file, request, lane]`` of processes that were forked, in order
``judged``          in a file for ``afresh`` only: number of the request that is judged there; 0: the whole program is
``siblings``        list of files of processes that may be given each other's requests (workers of one server)

Each other line is one event: ``[own_seq, kind, lane, request, fields, data]`` with data in base64. Fields are those that were
recorded, see ``relive.recording.events``.
"""

from __future__ import annotations

import base64
import json
import os
import stat
from typing import Any, Dict, List, Tuple

__all__ = [
    "STARTED",
    "Answers",
    "RecordedEvent",
    "Refused",
    "Started",
    "read_answers",
    "read_body",
    "read_started",
]

VERSION = 1
STARTED = "started.json"
_LONGEST = 1 << 29  # [bytes] of a file
_LONGEST_BODY = 1 << 28  # [bytes]
_MOST = 1_000_000  # events
_MOST_CHILDREN = 100_000


class Refused(ValueError):
    """What lies there is no file of answers, or is too large."""


class RecordedEvent:
    """One recorded event; ``data`` in base64."""

    __slots__ = ("data", "fields", "kind", "lane", "own_seq", "request")

    def __init__(
        self, own_seq: int, kind: str, lane: int, request: int, fields: Dict[str, Any], data: str
    ) -> None:
        self.own_seq, self.kind, self.lane, self.request = own_seq, kind, lane, request
        self.fields, self.data = fields, data

    def body(self) -> bytes:
        """Its data. Raises ValueError."""
        return base64.b64decode(self.data, validate=True)


class Answers:
    """One file.

    Attributes:
        policy, clock, children, siblings, judged: see the module.
        events: in the order of their seq.
    """

    def __init__(self, header: Any, events: List[RecordedEvent]) -> None:
        _demand(type(header) is dict and header.get("format") == "relive-answers", "it has no header")
        _demand(header.get("version") == VERSION, f"its version is {header.get('version')!r}")
        self.policy: Dict[str, str] = header.get("policy", {})
        self.clock: str = header.get("clock", "recorded")
        self.children: List[Any] = header.get("children", [])
        self.siblings: List[Any] = header.get("siblings", [])
        self.judged: int = header.get("judged", 0)
        _demand(type(self.judged) is int and 0 <= self.judged < 1 << 63, "its judged request")
        _demand(type(self.policy) is dict, "its policy is none")
        _demand(all(one in ("fail", "pass") for one in self.policy.values()), "its policy is unknown")
        _demand(self.clock in ("recorded", "real"), "its clock is unknown")
        _demand(type(self.children) is list and len(self.children) <= _MOST_CHILDREN, "its children")
        _demand(all(_is_child(one) for one in self.children), "a child of it is none")
        _demand(type(self.siblings) is list, "its siblings")
        _demand(all(_is_name(one) for one in self.siblings), "a sibling of it is none")
        self.events = events


class Started:
    """Processes that were started by exec.

    Attributes:
        commands: (file, command line) of each, in order.
    """

    def __init__(self, header: Any) -> None:
        _demand(type(header) is dict, "it is no object")
        listed = header.pop("started", [])
        _demand(type(listed) is list and len(listed) <= _MOST_CHILDREN, "its processes")
        _demand(all(_is_started(one) for one in listed), "a process of it is none")
        self.commands: List[Tuple[str, List[str]]] = [(name, words) for name, words in listed]
        self._header = header
        self.nothing()

    def nothing(self) -> Answers:
        """No answer at all, with the policy of this replay. Raises Refused."""
        return Answers(self._header, [])


def read_started(directory: str) -> Started:
    """Read ``started.json``. Raises Refused, OSError."""
    raw = _read(f"{directory}/{STARTED}", _LONGEST)
    try:
        return Started(json.loads(raw))
    except Refused:
        raise
    except (ValueError, RecursionError) as fault:
        raise Refused(f"it is no JSON: {str(fault)[:200]}") from fault


def read_answers(directory: str, name: str) -> Answers:
    """Read one file.

    Raises:
        Refused: it is not what it should be; nothing of it is used then.
        OSError: it cannot be read; FileNotFoundError where there is none.
    """
    _demand(_is_name(name), f"{name!r} is no name of it")
    raw = _read(f"{directory}/{name}", _LONGEST)
    lines = raw.split(b"\n")
    del raw
    _demand(len(lines) - 2 <= _MOST, f"{len(lines)} lines are too many")
    try:
        header = json.loads(lines[0])
        events = [_event(json.loads(line)) for line in lines[1:] if line]
    except Refused:
        raise
    except (ValueError, RecursionError) as fault:
        raise Refused(f"it is no JSON: {str(fault)[:200]}") from fault
    events.sort(key=lambda one: one.own_seq)
    return Answers(header, events)


def read_body(directory: str, name: Any) -> bytes:
    """A long body. Raises Refused, OSError."""
    _demand(_is_of_numbers(name, ".body", 2), "no name of a body")
    return _read(f"{directory}/{name}", _LONGEST_BODY)


def _event(line: Any) -> RecordedEvent:
    _demand(type(line) is list and len(line) == 6, "a line is no event")
    own_seq, kind, lane, request, fields, data = line
    numbers = all(type(one) is int and 0 <= one < 1 << 63 for one in (own_seq, lane, request))
    texts = type(kind) is str and type(fields) is dict and type(data) is str
    _demand(numbers and texts, "a line is no event")
    return RecordedEvent(own_seq, kind, lane, request, fields, data)


def _is_name(name: Any) -> bool:
    return _is_of_numbers(name, ".jsonl", 1) or _is_of_numbers(name, ".jsonl", 2)


def _is_of_numbers(name: Any, end: str, parts: int) -> bool:
    """Such as ``7-12.body``. (Compiling an expression for it would cost every start of a service.)"""
    if type(name) is not str or not name.endswith(end) or not name.isascii():
        return False
    numbers = name[: -len(end)].split("-")
    return len(numbers) == parts and all(1 <= len(one) <= 20 and one.isdigit() for one in numbers)


def _is_child(child: Any) -> bool:
    if type(child) is not list or len(child) != 3:
        return False
    return _is_name(child[0]) and all(type(number) is int and number >= 0 for number in child[1:])


def _is_started(one: Any) -> bool:
    if type(one) is not list or len(one) != 2 or not _is_name(one[0]) or type(one[1]) is not list:
        return False
    return all(type(word) is str for word in one[1])


def _demand(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Refused(otherwise)


def _read(path: str, longest: int) -> bytes:
    # Not following links: the directory is Relive's, but it lies where the service may write.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        facts = os.fstat(fd)
        _demand(stat.S_ISREG(facts.st_mode), "it is no file")
        _demand(facts.st_size <= longest, f"{facts.st_size} bytes are too many")
        raw = file.read(longest + 1)
    _demand(len(raw) <= longest, "it grows")
    return raw
