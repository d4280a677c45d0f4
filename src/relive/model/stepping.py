"""What was seen of a request that was replayed line by line, as values.

Terms: an *own* line is of the service's own code. The *position* of a line in a request is its number among the own lines that
ran for that request, from 1.
"""

from __future__ import annotations

from relive.model.commit import CommitId
from relive.model.value import Value

__all__ = ["Logged", "LoggedHit", "LoggedRun", "LoggedValue", "Place", "ValueWrite", "Written"]


class LoggedValue(Value):
    """An expression's value; ``raised``: ``text`` says what it raised instead. ``expression`` is None for the condition."""

    expression: str | None
    type: str
    text: str
    raised: bool


class LoggedHit(Value):
    """Values just before a line ran.

    Attributes:
        request: as the proxy numbers them; None where that is not known, or the line ran for none.
        position: of the line in its request.
    """

    request: int | None
    position: int
    function: str
    values: list[LoggedValue]


class LoggedRun(Value):
    """One replay with a logpoint.

    Attributes:
        fails: None where it could not be run; result: in words.
        is_cut: there were more hits, which had no room.
        trouble: why hits may be missing, in a sentence.
    """

    number: int
    fails: bool | None
    result: str
    hits: list[LoggedHit]
    is_cut: bool = False
    trouble: str | None = None


class Logged(Value):
    """What `relive logpoint` saw.

    Attributes:
        failing: the failing request, in words.
        file: as the service's process names it; source: the line's text, as it is in the file now.
        has_requests: it is known which request a line ran for.
    """

    incident: int
    service: str
    failing: str
    commit: CommitId
    file: str
    line: int
    source: str
    expressions: list[str]
    when: str | None
    has_requests: bool
    runs: list[LoggedRun]


class Place(Value):
    """A line of the service's own code that ran; ``about``: its request in words, None as ``request``."""

    file: str
    line: int
    function: str
    source: str
    request: int | None
    about: str | None
    position: int


class ValueWrite(Value):
    """A change of a value.

    Attributes:
        place: the line that did it; None: none of the service's own (a library, or code that is not Python).
        others: lines that other threads ran at that moment, which may have done it as well.
    """

    place: Place | None
    before: str
    after: str
    others: list[Place] = []


class Written(Value):
    """What `relive who-wrote` found.

    Attributes:
        commit: from which the replay began that is told; tried: all of them, the latest first.
        first: the value at that commit; last: at the end.
        writes: the last of them, in their order; writes_left_out: how many there were before.
        fails, result, trouble: as of a ``LoggedRun``.
        sentence: the answer.
    """

    incident: int
    service: str
    failing: str
    expression: str
    commit: CommitId
    tried: list[CommitId]
    first: str
    last: str
    writes: list[ValueWrite]
    writes_left_out: int = 0
    fails: bool | None
    result: str
    trouble: str | None = None
    has_requests: bool
    sentence: str
