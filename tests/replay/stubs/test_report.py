"""What stubs did, in values and words."""

from __future__ import annotations

from typing import cast

from relive.model.outcome import Stranger, Stubbed, Unasked
from relive.protocols.pool import PoolMatch
from relive.recording.events import EventKind
from relive.replay.sequence import miss_words
from relive.replay.stubs.plan import StubPlan
from relive.replay.stubs.report import misses_of_stubs, stub_words, stubbed
from relive.replay.stubs.server import StubServer

from .sealed import call


class Done:
    """A server that has ended."""

    def __init__(self) -> None:
        self.given, self.simulated, self.missed, self.opened = 7, 3, 1, 2
        self.strangers = {("fd00::5", 80): 2, ("10.0.0.9", 1): 1}
        self.notes = ["a note of the server"]
        asked = {"statement": "select 1", "parameters": [5]}
        nearest = call("q", 10, asked={"statement": "select 1", "parameters": [4]})
        found = PoolMatch(3, EventKind.QUERY, asked, None, nearest, ("$.parameters[0]",))
        self.misses = [(("10.0.0.5", 5432), found)]

    def left(self) -> list[object]:
        return [call("early", 10), call("late", 99)]


DONE = cast(StubServer, Done())
PLAN = StubPlan(
    destinations={}, names=(), lookups=[], resumes={}, calls=[], used=[], notes=["a note of the plan"]
)


def test_what_was_to_be_asked_after_the_failure_is_not_missing() -> None:
    told = stubbed(DONE, PLAN, 50)
    assert (told.given, told.simulated, told.missed, told.left) == (7, 3, 1, 1)
    assert [one.asked for one in told.unasked] == [{"data": "early"}]
    assert told.strangers == [Stranger(to="[fd00::5]:80", times=2), Stranger(to="10.0.0.9:1", times=1)]
    assert told.notes == ["a note of the plan", "a note of the server"]
    assert stubbed(DONE, PLAN, None).left is None


def test_a_miss_says_what_would_take_it() -> None:
    (miss,) = misses_of_stubs(DONE)
    assert (miss.to, miss.connection, miss.nearest) == (
        "10.0.0.5:5432",
        3,
        {"statement": "select 1", "parameters": [4]},
    )
    words = miss_words(miss)
    assert "query 'select 1' at 10.0.0.5:5432" in words and "differs in $.parameters[0]" in words
    assert words.endswith("to take that: --ignore '$.parameters[0]'")


def test_words_are_few() -> None:
    told = Stubbed(
        continued=1,
        given=2,
        missed=0,
        left=3,
        unasked=[Unasked(kind="query", asked={"statement": "select 2"}, to="10.0.0.5:5432", connection=1)],
        strangers=[Stranger(to=f"10.0.0.9:{port}", times=1) for port in range(9)],
    )
    words = stub_words(told)
    assert len(words) == 7
    assert words[0] == "the service wanted to connect to 10.0.0.9:0, which was never recorded (once)"
    assert words[5] == "and to 4 more that were never recorded"
    assert words[6] == "3 recorded calls were not asked for; the first: query 'select 2' to 10.0.0.5:5432"


def test_long_values_are_cut() -> None:
    done = Done()
    asked = {"body": "x" * 100_000}
    done.misses = [(None, PoolMatch(1, EventKind.HTTP_CALL, asked, None))]
    (miss,) = misses_of_stubs(cast(StubServer, done))
    assert len(miss.asked["body"]) < 3000 and miss.to is None
