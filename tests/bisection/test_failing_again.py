"""What a replay's verdict says of a commit; the rest is in tests/real/test_bisect.py."""

from __future__ import annotations

import pytest

from relive.bisection.failing_again import judged_verdict, with_the_request_alone
from relive.bisection.judgement import Judgement
from relive.model.commit import CommitId
from relive.model.outcome import End, InsideEvent, Miss, Outcome, Verdict, VerdictKind
from relive.recording.exchanges import Exchange
from relive.replay.plan import Hangup, ReplayPlan, ReplayStep
from relive.replay.replay_input import ReplayInput
from store.builders import make_manifest

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


def test_an_answer_that_another_worker_may_have_given_says_nothing_of_the_commit():
    came = Outcome(end=End.ANSWERED, status=200, elsewhere=[10])
    told = judged_verdict(Verdict(kind=VerdictKind.NOT_REPRODUCED), came, _FAILED)
    assert told.judgement is SKIPPED
    assert "worker 10 was busy" in told.seen
    failed = came.model_copy(update={"status": 500})
    assert judged_verdict(Verdict(kind=VerdictKind.REPRODUCED), failed, _FAILED).judgement is BAD


def test_clients_of_what_the_commit_holds_half_served_go_away_as_they_had():
    """A worker that waits for its client to close takes no other request, and another one has other values."""

    def step(number: int, continues: bool, answer: bytes) -> ReplayStep:
        head = b"GET / HTTP/1.1\r\n\r\n"
        exchange = Exchange(number, number + 20, head, number, number, number, local_port=5000 + number)
        exchange.answer_head = b"HTTP/1.1 500 No\r\n%s\r\n" % answer
        return ReplayStep(exchange, continues, 5, frozenset())

    steps = [
        step(1, True, b"Connection: x, Close\r\n"),
        step(2, True, b"Connection: keep-alive\r\n"),
        step(3, False, b"Connection: close\r\n"),
        step(4, False, b"Connection: close\r\n"),
    ]
    case = ReplayInput(
        *("shop", 1, CommitId("0" * 64), make_manifest(), ReplayPlan(steps, 4, 9), _FAILED, {}, 1.0),
        exchange=steps[3].exchange,
    )
    alone = with_the_request_alone(case).plan
    assert [one.exchange.number for one in alone.steps] == [1, 2, 4]
    assert alone.hangups == [Hangup(21, 5001, 0, frozenset({1}))]
