"""Which earlier requests are about the same as the judged one: they name a value that few others name. Pure.

``POST /payments {"account": 474}`` and ``GET /accounts/474`` share 474, which hardly another request of the window names;
``payments`` is named by half of them, and says nothing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator

from relive.recording.events import Event
from relive.recording.exchanges import Exchange
from relive.replay.inprocess_events import request_inside
from relive.replay.replay_input import ReplayInput

__all__ = ["named_values", "related_numbers", "related_requests"]

_MOST_SHARE = 0.05  # of the requests may name a value that tells
_ALWAYS = 8  # so many may, however few requests there are
_LONGEST = 200  # [characters] of a value
_WORD = re.compile(r"[^/?&=#]+")


def related_requests(case: ReplayInput) -> frozenset[str]:
    """As schedules name them: ``request:NUMBER``, and ``PID:REQUEST`` inside; the judged request itself is not among them."""
    exchanges = [step.exchange for step in case.plan.steps if not step.continues]
    subject = next((one for one in exchanges if one.number == case.plan.subject), None)
    if subject is None:
        return frozenset()
    numbers = related_numbers(
        {one.number: named_values(one.target, one.request_body()) for one in exchanges}, subject.number
    )
    events = case.window.events if case.window is not None else []
    return frozenset(_names(events, [one for one in exchanges if one.number in numbers]))


def related_numbers(named: dict[int, frozenset[str]], subject: int) -> frozenset[int]:
    """Those of the other requests that name what the subject names.

    Args:
        named: number of a request to what it names.
    """
    counted = Counter(value for values in named.values() for value in values)
    few = max(_ALWAYS, int(_MOST_SHARE * len(named)))
    telling = {value for value in named[subject] if 1 < counted[value] <= few}
    return frozenset(number for number, values in named.items() if number != subject and values & telling)


def named_values(target: str, body: bytes) -> frozenset[str]:
    """What a request names: the parts of its target, and the texts and numbers of a body of JSON."""
    words = {word for word in _WORD.findall(target) if len(word) <= _LONGEST}
    try:
        return frozenset(words | set(_leaves(json.loads(body)))) if body else frozenset(words)
    except (ValueError, RecursionError):
        return frozenset(words)


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        text = str(value)
        if 0 < len(text) <= _LONGEST:
            yield text


def _names(events: list[Event], exchanges: list[Exchange]) -> Iterator[str]:
    for one in exchanges:
        yield f"request:{one.number}"
        inside = request_inside(events, one)
        if inside is not None:
            yield f"{inside[0]}:{inside[1]}"
