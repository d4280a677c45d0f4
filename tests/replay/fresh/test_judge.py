"""The rules of judging, each without a process."""

from __future__ import annotations

from typing import Any

import pytest

from relive.model.outcome import End, Fault, InsideEvent, Miss, Outcome, Stranger, ThreadPlace
from relive.model.reproduction import Raised, ReproductionKind
from relive.replay.fresh.judge import Came, FreshJudgement, judge, judge_end, same_failure

KEY = Raised(
    type="builtins.KeyError",
    text="'CHF' of <secret:00000001> at 0x7f01",
    fingerprint="ab",
    file="/srv/shop.py",
    line=12,
    function="pay",
    source="rate = rates[name]",
)
REPRODUCED, NOT = ReproductionKind.REPRODUCED, ReproductionKind.NOT_REPRODUCED
DIVERGED, SAME = ReproductionKind.DIVERGED, ReproductionKind.SAME_ANSWER


def inside(kind: str, **about: Any) -> InsideEvent:
    return InsideEvent(kind=kind, lane=1, about=about)


ASKED = inside("query", asked={"sql": "SELECT 1"}, answer=1)
OTHER = inside("query", asked={"sql": "SELECT 2"}, answer=1)
FAILED = inside("failure", type="builtins.KeyError", fingerprint="ab")
ENDED = inside("handling-ended", status=500)


NOTHING = Outcome(end=End.NOTHING)
MISSED = [Miss(kind="query", asked={}, policy="fail")]


def answered(*raised: Raised, status: int = 500, events: tuple[InsideEvent, ...] = (), **more: Any) -> Came:
    outcome = Outcome(end=End.ANSWERED, status=status, **more)
    return Came(raised, outcome, status, events=events, is_answered=True)


def test_the_same_exception_at_the_same_place_with_the_same_status_is_reproduced():
    again = KEY.model_copy(update={"text": "'CHF' of <secret:000000ff> at 0x7fee"})
    made = judge(KEY, 500, [ASKED, FAILED], answered(again, events=(ASKED, FAILED, ENDED)))
    assert (made.kind, made.difference, made.notes, made.raised) == (REPRODUCED, None, [], again)
    assert made.evidence[0].startswith("the same exception at the same place: builtins.KeyError")
    assert made.unseen == []


@pytest.mark.parametrize(
    ("lacking", "words"),
    [
        ({"unreached": [Stranger(to="127.0.0.1:5432", times=2)]}, "could not reach 127.0.0.1:5432 (2 times)"),
        ({"misses": MISSED}, "1 call had no recorded answer"),
    ],
)
def test_the_same_exception_where_something_was_missing_is_only_the_same_answer(
    lacking: dict[str, Any], words: str
) -> None:
    """A missing server may be what leads to the line that fails."""
    made = judge(KEY, 500, [], answered(KEY, **lacking))
    assert (made.kind, made.difference, made.raised) == (SAME, None, KEY)
    assert words in made.unseen[0]


def test_a_line_that_moved_is_the_same_by_its_text_and_function_and_that_is_said():
    moved = KEY.model_copy(update={"line": 15})
    made = judge(KEY, 500, [], answered(moved))
    assert (made.kind, made.notes) == (
        REPRODUCED,
        ["the line moved from 12 to 15: its text and its function are the same"],
    )
    for other in ({"source": "rate = 1"}, {"function": "refund"}, {"source": None}):
        assert judge(KEY, 500, [], answered(moved.model_copy(update=other))).kind is DIVERGED


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"type": "builtins.ValueError"}, "builtins.ValueError"),
        ({"text": "'EUR'"}, "message"),
        ({"file": "/srv/other.py"}, "/srv/other.py:12"),
        ({"line": 13, "source": "x"}, "/srv/shop.py:13 in pay came"),
    ],
)
def test_another_exception_diverged_at_what_is_other(change, words):
    made = judge(KEY, 500, [], answered(KEY.model_copy(update=change)))
    assert made.kind is DIVERGED
    assert words in (made.difference or "")
    assert made.raised is not None


def test_of_several_exceptions_the_one_that_is_the_same_counts():
    before = KEY.model_copy(update={"type": "builtins.OSError"})
    assert judge(KEY, 500, [], answered(before, KEY)).kind is REPRODUCED


def test_another_status_diverged_and_an_unknown_one_is_not_compared():
    assert judge(KEY, 502, [], answered(KEY)).difference == "status 502 was recorded, 500 came"
    assert judge(KEY, None, [], answered(KEY)).kind is REPRODUCED


def test_what_differed_first_is_told_before_the_exception_it_led_to():
    other = KEY.model_copy(update={"type": "builtins.OSError"})
    made = judge(KEY, 500, [ASKED, FAILED], answered(other, events=(OTHER, FAILED, ENDED)))
    assert made.kind is DIVERGED
    assert made.difference == "event 1: query 'SELECT 1' was recorded, query 'SELECT 2' came"
    assert "builtins.OSError" in made.notes[0]


def test_a_call_that_nobody_had_recorded_is_told_before_the_exception_it_led_to():
    other = KEY.model_copy(update={"type": "builtins.OSError"})
    came = Came((other,), NOTHING, 500, is_answered=True, missed="no recorded answer to query 'SELECT 3'")
    made = judge(KEY, 500, [], came)
    assert (made.kind, made.difference) == (DIVERGED, "no recorded answer to query 'SELECT 3'")


def test_the_same_failure_by_another_way_is_reproduced_and_the_way_is_noted():
    made = judge(KEY, 500, [ASKED, FAILED], answered(KEY, events=(OTHER, FAILED)))
    assert (made.kind, len(made.notes)) == (REPRODUCED, 1)


def test_what_other_threads_did_behind_the_failure_is_not_compared():
    late = inside("log-record", text="late")
    made = judge(KEY, 500, [ASKED, FAILED, late], answered(KEY, events=(ASKED, FAILED, ENDED)))
    assert (made.kind, made.notes) == (REPRODUCED, [])


def test_placeholders_of_secrets_are_equal_to_each_other():
    one = inside("http-call", asked={"token": "<secret:00000001>"})
    two = inside("http-call", asked={"token": "<secret:0000000a>"})
    assert judge(KEY, 500, [one, FAILED], answered(KEY, events=(two, FAILED))).notes == []


def test_without_a_failure_it_is_not_reproduced():
    made = judge(KEY, 500, [], answered(status=200))
    assert (made.kind, made.difference) == (NOT, "no exception escaped: status 200 came")
    made = judge(KEY, None, [], Came((), NOTHING, exit_status=0, is_request=False))
    assert (made.kind, made.difference) == (NOT, "no exception escaped: the program ended with status 0")


def test_a_service_that_went_on_until_the_time_was_over_did_not_fail():
    """Of what had failed outside of any request: no request is sent, and a service has no end to wait for."""
    went_on = Came((), NOTHING, how="it went on for 30 s without failing", is_request=False)
    made = judge(KEY, None, [], went_on)
    assert (made.kind, made.difference) == (NOT, "no exception escaped: it went on for 30 s without failing")


@pytest.mark.parametrize(
    ("came", "words"),
    [
        (Came((), NOTHING, 500, is_answered=True), "no exception was told; status 500 came"),
        (Came((), NOTHING, how="the connection broke"), "the connection broke"),
        (
            Came((), NOTHING, how="no answer", exit_status=139),
            "no exception was told; the program ended with status 139",
        ),
        (
            Came((), NOTHING, how="it went on", exit_status=1, is_request=False),
            "no exception was told; the program ended with status 1",
        ),
    ],
)
def test_a_failure_of_which_no_exception_is_told_diverged(came, words):
    made = judge(KEY, 500, [], came)
    assert (made.kind, made.difference, made.raised) == (DIVERGED, words, None)


def test_an_exception_without_frames_has_no_place_that_could_differ():
    bare = Raised(type="a.B", text="", fingerprint="ab")
    assert same_failure(bare, bare) is None
    assert "no frame" in (same_failure(bare, bare.model_copy(update={"file": "/x", "line": 1})) or "")


def bad(*log: str, status: int = 500, **more: Any) -> Outcome:
    return Outcome(end=End.ANSWERED, status=status, log=list(log), **more)


def came(outcome: Outcome, **more: Any) -> Came:
    return Came([], outcome, outcome.status, is_answered=outcome.end is End.ANSWERED, **more)


def told(made: FreshJudgement) -> str:
    return " ".join([made.difference or "", *made.evidence, *made.unseen])


STACK = ["Traceback (most recent call last):", '  File "app.py", line 9, in price', "KeyError: 'EUR'"]
GONE = bad(*STACK, unreached=[Stranger(to="/run/x", times=1)])


@pytest.mark.parametrize(
    ("again", "kind", "words"),
    [
        (came(bad(status=200)), NOT, "status 200 came"),
        (came(bad(*STACK)), REPRODUCED, "the same stack in the log"),
        (came(bad()), SAME, "only the recorded side printed a stack"),
        (came(bad(*STACK[:2], "OSError: refused")), DIVERGED, "was recorded"),
        (came(bad(*STACK, status=503)), DIVERGED, "status 500 was recorded, status 503 came"),
        (came(Outcome(end=End.NO_ANSWER), how="no answer in time"), DIVERGED, "no answer in time"),
        (came(GONE), SAME, "could not reach /run/x"),
        (came(bad(*STACK, misses=MISSED)), SAME, "no recorded answer"),
        (came(bad(status=503), missed="no recorded answer to query"), DIVERGED, "no recorded answer"),
    ],
)
def test_an_answer_without_an_exception_is_judged_by_what_shows_its_cause(
    again: Came, kind: ReproductionKind, words: str
) -> None:
    made = judge_end(bad(*STACK), [], again)
    assert made.kind is kind
    assert words in told(made)


DEAD = Outcome(
    end=End.DIED,
    signal=11,
    exit_status=139,
    fault=Fault(
        process=4,
        is_root=True,
        signal=11,
        code="SEGV_MAPERR",
        address=16,
        place=ThreadPlace(thread=4, instruction=0x1010, stack=0x7F00),
        callers=[0x2020],
    ),
)
EXITED = Outcome(end=End.DIED, exit_status=3, log=["no room"])
SILENT = Outcome(end=End.NO_ANSWER)


@pytest.mark.parametrize(
    ("recorded", "again", "kind", "words"),
    [
        (DEAD, came(DEAD), REPRODUCED, "the same signal at the same instruction"),
        (DEAD, came(bad(status=200)), NOT, "status 200 came, and the service went on"),
        (DEAD, came(bad()), DIVERGED, "died of signal 11; replayed: answered with status 500"),
        (DEAD, came(EXITED), DIVERGED, "ended with status 3"),
        (EXITED, came(EXITED), REPRODUCED, "the same last line in the log"),
        (EXITED, came(EXITED.model_copy(update={"exit_status": 4})), DIVERGED, "ended with status 4"),
        (EXITED, came(EXITED.model_copy(update={"worker": True})), DIVERGED, "a worker ended"),
        (SILENT, came(SILENT, how="no answer came"), SAME, "neither side printed"),
        (SILENT, came(bad(status=200)), NOT, "status 200 came"),
        (SILENT, came(bad()), DIVERGED, "no answer came; replayed: answered with status 500"),
    ],
)
def test_a_death_and_silence_are_judged_by_how_it_ends_and_what_shows_its_cause(
    recorded: Outcome, again: Came, kind: ReproductionKind, words: str
) -> None:
    made = judge_end(recorded, [], again)
    assert made.kind is kind
    assert words in told(made)
