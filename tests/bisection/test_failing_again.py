"""What a replay's verdict says of a commit; the rest is in tests/real/test_bisect.py."""

from __future__ import annotations

import pytest

from relive.bisection.failing_again import judged_verdict
from relive.bisection.judgement import Judgement
from relive.model.outcome import End, InsideEvent, Miss, Outcome, Verdict, VerdictKind

GOOD, BAD, SKIPPED, FAILED = Judgement
_FAILED = Outcome(end=End.ANSWERED, status=500, events=[])
_ASKED = InsideEvent(
    kind="redis-command", lane=1, about={"asked": {"command": ["GET", "flag"]}, "answer": None}
)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (VerdictKind.REPRODUCED, BAD),
        (VerdictKind.SAME_ANSWER, BAD),
        (VerdictKind.NOT_REPRODUCED, GOOD),
        (VerdictKind.DIVERGED, SKIPPED),
        (VerdictKind.FAILED_TO_RESTORE, FAILED),
    ],
)
def test_another_failure_says_nothing_of_this_one(kind, said):
    assert judged_verdict(Verdict(kind=kind, difference="a difference"), None, _FAILED).judgement is said


def test_what_came_instead_is_told():
    came = Outcome(end=End.ANSWERED, status=200)
    told = judged_verdict(Verdict(kind=VerdictKind.NOT_REPRODUCED, difference="event 2: ..."), came, _FAILED)
    assert told.seen == "not reproduced: status 200"


def test_what_was_asked_and_not_recorded_is_told_before_what_came_of_it():
    miss = Miss(kind="redis-command", asked={"command": ["HGETALL", "job:b"]}, policy="fail")
    told = judged_verdict(
        Verdict(kind=VerdictKind.DIVERGED, difference="the connection broke"),
        Outcome(end=End.BROKEN, misses=[miss]),
        _FAILED,
    )
    assert told.judgement is SKIPPED
    assert told.seen.startswith("diverged: no recorded answer to redis-command") and "HGETALL" in told.seen


def test_a_failure_for_which_others_were_asked_anew_says_nothing_of_the_commit():
    """GIVEN a request that failed by a cached value WHEN in an earlier state it asks for it THEN the answer is of another time."""
    came = _FAILED.model_copy(update={"events": [_ASKED]})
    told = judged_verdict(Verdict(kind=VerdictKind.REPRODUCED), came, _FAILED)
    assert told.judgement is SKIPPED
    assert "GET flag" in told.seen
    assert judged_verdict(Verdict(kind=VerdictKind.REPRODUCED), came, came).judgement is BAD
    passed = came.model_copy(update={"status": 200})
    assert judged_verdict(Verdict(kind=VerdictKind.NOT_REPRODUCED), passed, _FAILED).judgement is GOOD
