"""What the recording answered, in one line."""

from __future__ import annotations

import pytest

from relive.model.outcome import End, InsideEvent, Miss, Outcome, Stranger, Stubbed
from relive.replay.played import played_words

MISS = Miss(kind="query", asked={}, policy="fail")
OWN = "; clock and randomness within the service were the branch's own"


def events(*kinds: str) -> list[InsideEvent]:
    return [InsideEvent(kind=kind, lane=0, about={}) for kind in kinds]


@pytest.mark.parametrize(
    ("outcome", "has_inside", "words"),
    [
        ({}, False, f"the recording answered nothing{OWN}"),
        ({"events": events("clock", "query", "clock", "log-record")}, True, "2 clock readings, 1 query"),
        ({"events": events("random")}, True, "the recording answered 1 random value"),
        (
            {"stubs": Stubbed(continued=1, given=2, simulated=1, missed=0)},
            False,
            f"the recording answered 3 questions at the network{OWN}",
        ),
        ({"misses": [MISS, MISS]}, True, "the recording answered nothing; 2 calls without a recorded answer"),
        (
            {"misses": [MISS], "unreached": [Stranger(to="127.0.0.1:1", times=3)]},
            True,
            "; 1 call without a recorded answer and 3 connections to what was not recorded",
        ),
    ],
)
def test_the_line(outcome, has_inside, words):
    told = played_words(Outcome(end=End.ANSWERED, **outcome), has_inside=has_inside)
    assert told.startswith("the recording answered ")
    assert told.endswith(words)
