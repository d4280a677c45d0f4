"""What a replay's verdict says of a commit; the rest is in tests/real/test_bisect.py."""

from __future__ import annotations

import pytest

from relive.bisection.failing_again import judged_verdict
from relive.bisection.judgement import Judgement
from relive.model.outcome import End, Miss, Outcome, Verdict, VerdictKind

GOOD, BAD, SKIPPED, FAILED = Judgement


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
    assert judged_verdict(Verdict(kind=kind, difference="a difference"), None).judgement is said


def test_what_came_instead_is_told():
    came = Outcome(end=End.ANSWERED, status=200)
    told = judged_verdict(Verdict(kind=VerdictKind.NOT_REPRODUCED, difference="event 2: ..."), came)
    assert told.seen == "not reproduced: status 200"


def test_what_was_asked_and_not_recorded_is_told_before_what_came_of_it():
    miss = Miss(kind="redis-command", asked={"command": ["HGETALL", "job:b"]}, policy="fail")
    told = judged_verdict(
        Verdict(kind=VerdictKind.DIVERGED, difference="the connection broke"),
        Outcome(end=End.BROKEN, misses=[miss]),
    )
    assert told.judgement is SKIPPED
    assert told.seen.startswith("diverged: no recorded answer to redis-command") and "HGETALL" in told.seen
