"""Probing to the end: what is found, what is refused, and when it is given up. Probes are played."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from relive.bisection.finding import ProbesMade, find_jumps, find_rate_jumps, probe_again
from relive.bisection.judgement import Judged, Judgement
from relive.bisection.search import Span
from relive.errors import UsageError

GOOD, BAD, SKIPPED, FAILED = Judgement


def probe(says: Callable[[int], Judgement]) -> Callable[[int], Judged]:
    return lambda at: Judged(judgement=says(at), seen="played")


def test_a_jump_is_found_with_few_probes():
    found = find_jumps(1000, probe(lambda at: BAD if at >= 700 else GOOD), further=4, most=200)
    assert found.spans == [Span(699, 700)] and found.why_not is None
    assert len(found.evidence.probes) <= 2 + 10 + 4


def test_two_jumps_are_told_as_two_and_the_healing_between():
    found = find_jumps(90, probe(lambda at: BAD if 10 <= at < 40 or at >= 70 else GOOD), further=4, most=200)
    assert [(one.before, one.after) for one in found.spans] == [(9, 10), (39, 40), (69, 70)]


@pytest.mark.parametrize(
    ("says", "words"),
    [
        (lambda _: BAD, "first commit.*is bad, not good"),
        (lambda _: GOOD, "last commit.*is good, not bad"),
        (lambda _: SKIPPED, "last commit.*cannot be judged"),
        (lambda at: BAD if at else SKIPPED, "first commit.*cannot be judged"),
    ],
)
def test_ends_that_are_not_as_said_are_refused(says, words):
    with pytest.raises(UsageError, match=words):
        find_jumps(20, probe(says), further=0, most=50)


def test_a_last_commit_that_nobody_named_and_that_is_good_has_what_it_needs_behind_it():
    """As where all came between the last commit and the failure: there is no --bad to name another for."""
    with pytest.raises(UsageError, match="alone does not fail") as refused:
        find_jumps(20, probe(lambda _: GOOD), further=0, most=50, is_bad_named=False)
    assert "relive why" in str(refused.value.remedy)


@pytest.mark.parametrize("first_bad", [1, 13, 24])
def test_where_no_commit_before_it_can_be_judged_it_is_told_from_where_on_it_is_bad(first_bad):
    """As where an earlier state asks a server for what nobody recorded."""
    says = probe(lambda at: BAD if at >= first_bad else SKIPPED)
    found = find_jumps(25, says, further=2, most=50, is_good_named=False)
    assert found.spans == [Span(first_bad - 1, first_bad)]
    assert found.why_not == "no commit before it could be judged"
    assert len(found.evidence.probes) <= 2 + 5 + 2


def test_a_first_commit_that_nobody_named_and_that_tells_nothing_is_gone_round():
    says = probe(lambda at: BAD if at >= 20 else GOOD if at >= 4 else SKIPPED)
    found = find_jumps(25, says, further=3, most=50, is_good_named=False)
    assert found.spans == [Span(19, 20)] and found.why_not is None


def test_a_first_commit_that_nobody_named_and_that_is_bad_says_what_that_means():
    with pytest.raises(UsageError, match="bad from the first commit there is"):
        find_jumps(25, probe(lambda _: BAD), further=3, most=50, is_good_named=False)


def test_a_predicate_that_crashes_is_an_error_and_never_bad():
    truth = {0: GOOD, 30: BAD}
    with pytest.raises(UsageError, match="does not judge") as error:
        find_jumps(31, probe(lambda at: truth.get(at, FAILED)), further=0, most=50)
    assert error.value.cause == "played (3 of 5 probes)"


def test_one_probe_that_failed_is_gone_round():
    found = find_jumps(
        31, probe(lambda at: FAILED if at == 15 else BAD if at >= 15 else GOOD), further=0, most=50
    )
    assert found.spans == [Span(14, 16, (15,))]


def test_an_answer_that_ends_all_is_heard_at_once():
    asked = []

    def final(at: int) -> Judged:
        asked.append(at)
        return Judged(judgement=FAILED, seen="no such program", is_final=True)

    for find in (
        lambda: find_jumps(9, final, further=0, most=50),
        lambda: find_rate_jumps(9, final, confidence=0.95, further=0, most=50),
    ):
        asked.clear()
        with pytest.raises(UsageError, match="no such program"):
            find()
        assert len(asked) == 1


def test_probes_end_where_they_are_to_end():
    found = find_jumps(1000, probe(lambda at: BAD if at >= 700 else GOOD), further=0, most=5)
    assert found.why_not == "5 probes were made (--most)"
    assert found.spans == [Span(624, 749, tuple(range(625, 749)))]  # not as if these two were neighbours


def played(low: float, high: float, first: int, seed: int) -> Callable[[int], Judged]:
    chance = random.Random(seed)
    return probe(lambda at: BAD if chance.random() < (high if at >= first else low) else GOOD)


def test_a_rate_that_changes_is_found():
    right = 0
    for seed in range(20):
        found = find_rate_jumps(50, played(0.02, 0.9, 31, seed), confidence=0.95, further=0, most=300)
        assert found.posterior is not None
        right += found.spans == [Span(30, 31)]
    assert right >= 16  # of 20 at 95 %: fewer would come once in 10,000 times


def test_one_rate_for_all_cannot_be_told():
    found = find_rate_jumps(20, played(0.5, 0.5, 1, 3), confidence=0.95, further=2, most=60)
    assert found.spans == [] and "one rate for all" in (found.why_not or "")
    assert len(found.evidence.probes) == 60


def test_a_rate_that_goes_up_and_down_again_is_told_as_two_jumps():
    chance = random.Random(5)
    up = probe(lambda at: BAD if chance.random() < (0.9 if 20 <= at < 60 else 0.0) else GOOD)
    found = find_rate_jumps(80, up, confidence=0.95, further=6, most=300)
    assert found.two is not None and found.two > 0.95
    first, second = found.spans
    assert first.before < 20 <= first.after and second.before < 60 <= second.after


def test_a_commit_that_tells_nothing_is_not_asked_for_ever():
    found = find_rate_jumps(
        9,
        probe(lambda at: SKIPPED if at == 4 else BAD if at > 4 else GOOD),
        confidence=0.9,
        further=0,
        most=100,
    )
    assert sum(at == 4 for at, _ in found.evidence.probes) <= 2
    assert len(found.evidence.probes) <= 100


def test_commits_are_probed_again_in_turns_and_what_was_seen_before_counts():
    asked = []

    def says(at: int) -> Judgement:
        asked.append(at)
        return {5: SKIPPED}.get(at, BAD if at > 5 else GOOD)

    before = ProbesMade(10, [(9, Judged(judgement=BAD, seen="before"))])
    done: list[int] = []
    known = probe_again(before, [0, 5, 9], probe(says), times=3, done=done.append)
    # 5 tells nothing, twice is enough.
    assert asked == [0, 5, 0, 5, 9, 0, 9] and done == [
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    ]
    assert [(one.bad, one.good) for one in known.counts()][::9] == [(0, 3), (3, 0)]
    assert len(before.probes) == 1
