"""What runs prove beside unchanged ones."""

from __future__ import annotations

from relive.intervention.judging import (
    LACKING,
    counted,
    effect_of,
    is_now_and_then,
    judged_again,
    lacking_words,
    probability_left,
)
from relive.model import intervention as model
from relive.model.commit import CommitId
from relive.model.intervention import Effect
from relive.model.trial import Effects, FixRun

SAME = FixRun(fails=True, result="fails the same", status=500)
UNSEEN = FixRun(fails=True, result="fails, cause not seen", status=500)
OTHER = FixRun(fails=True, result="fails otherwise", status=500, exception="KeyError: 1")
LACKED = FixRun(fails=True, result=LACKING)
PASSES = FixRun(fails=False, result="no failure", status=200)
LOST = FixRun(fails=None, result="not restored", difference="no room")


def judged(control, runs, unread=()):
    effect, why = effect_of(control, runs, unread)
    return effect, why or ""


def test_the_failure_goes_away_or_stays():
    assert judged([SAME] * 3, [PASSES] * 3) == (Effect.GOES_AWAY, "")
    assert judged([SAME, UNSEEN], [SAME, UNSEEN]) == (Effect.STAYS, "")
    assert probability_left([SAME] * 3, [PASSES] * 3) < 0.05 < probability_left([SAME], [PASSES])
    assert probability_left([SAME], [SAME]) is None


def test_without_a_failing_control_nothing_is_proved():
    for control in ([], [LOST], [PASSES] * 3, [OTHER] * 3, [LACKED]):
        effect, why = judged(control, [PASSES] * 3)
        assert effect is Effect.CANNOT_TELL and "unchanged" in why
    assert "no room" in judged([LOST], [PASSES])[1]


def test_what_fails_now_and_then_needs_more_runs_without_failure():
    effect, why = judged([SAME, PASSES], [PASSES] * 2)
    assert effect is Effect.CANNOT_TELL and "more runs" in why
    assert judged([SAME, SAME, SAME, PASSES], [PASSES] * 20)[0] is Effect.GOES_AWAY
    assert judged([SAME, PASSES], [PASSES, OTHER])[0] is Effect.CANNOT_TELL


def test_of_what_fails_now_and_then_one_failing_run_shows_that_it_stays():
    assert judged([SAME, PASSES], [PASSES] * 9 + [SAME]) == (Effect.STAYS, "")
    assert not is_now_and_then([SAME] * 2) and not is_now_and_then([SAME, OTHER])
    tested = model.Tested(
        changes=[], commit=CommitId("c1"), effect=Effect.STAYS, control=[SAME] * 2, runs=[PASSES]
    )
    assert (
        judged_again(tested, [], []).effect is Effect.CANNOT_TELL
    )  # two that failed do not make it one that always does
    assert judged_again(tested, [PASSES] * 9, []).effect is Effect.GOES_AWAY


def test_what_was_missing_is_told_once_and_what_was_answered_of_the_first_run():
    lacked = LACKED.model_copy(update={"missing": ["GET /rates"], "played": "3 queries"})
    assert lacking_words([lacked, lacked]) == ["missing: GET /rates", "answered: 3 queries"]


def test_what_was_never_asked_for_proves_nothing():
    assert judged([SAME], [SAME], ["http:2"]) == (Effect.NOT_ASKED, "the replay never asked for http:2")


def test_another_failure_a_missing_answer_and_runs_that_do_not_agree_cannot_be_told():
    assert "another way: KeyError: 1" in judged([SAME], [OTHER])[1]
    lacking = PASSES.model_copy(update={"effects": Effects(unanswered=2)})
    effect, why = judged([SAME], [lacking])
    assert effect is Effect.CANNOT_TELL and "2 more answers" in why
    assert "do not agree" in judged([SAME], [PASSES, SAME])[1]
    assert "no room" in judged([SAME], [LOST])[1]


def test_runs_in_words():
    assert counted([PASSES] * 2) == "passes 2 of 2"
    assert counted([SAME, PASSES]) == "fails 1 of 2, passes 1 of 2"
    assert counted([]) == "never ran"
