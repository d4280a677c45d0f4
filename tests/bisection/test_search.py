"""The search by halves: right for any truth, in few probes, and honest about more than one jump."""

from __future__ import annotations

import itertools
import math
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.bisection.judgement import Judgement
from relive.bisection.search import Span, jumps, likely_probes, next_probe

GOOD, BAD, SKIPPED, FAILED = Judgement


def searched(truth: list[Judgement], further: int = 0) -> tuple[dict[int, Judgement], int]:
    """All that is known at the end, and how many probes that took."""
    known = {0: truth[0], len(truth) - 1: truth[-1]}
    while True:
        is_narrowing = next_probe(known, further=0) is not None
        at = next_probe(known, further=further)
        if at is None:
            return known, len(known)
        assert at not in known
        known[at] = truth[at]
        further -= not is_narrowing


@given(st.integers(2, 2000).flatmap(lambda count: st.tuples(st.just(count), st.integers(1, count - 1))))
def test_the_first_bad_commit_is_found_in_logarithmically_many_probes(case):
    count, first = case
    known, probes = searched([GOOD] * first + [BAD] * (count - first))
    assert jumps(known) == [Span(first - 1, first)]
    assert probes <= 2 + math.ceil(math.log2(count))


@given(
    st.integers(3, 60).flatmap(
        lambda count: st.tuples(
            st.integers(1, count - 1),
            st.lists(st.sampled_from([None, None, SKIPPED, FAILED]), min_size=count, max_size=count),
        )
    )
)
def test_commits_that_tell_nothing_leave_the_fewest_suspects(case):
    """The span that is left holds the truth, and within it nothing that could be judged."""
    first, told = case
    truth = [one or (GOOD if at < first else BAD) for at, one in enumerate(told)]
    truth[0], truth[-1] = GOOD, BAD
    known, _ = searched(truth)
    (span,) = jumps(known)
    assert span.before < first <= span.after
    assert all(truth[at] in (SKIPPED, FAILED) for at in range(span.before + 1, span.after))
    assert span.unjudged == tuple(range(span.before + 1, span.after))


@given(st.lists(st.sampled_from([GOOD, BAD]), min_size=1, max_size=80), st.integers(0, 100))
def test_every_jump_that_is_told_is_one(truth, further):
    truth = [GOOD, *truth, BAD]
    known, _ = searched(truth, further)
    for span in jumps(known):
        assert span.after == span.before + 1 and truth[span.before] is not truth[span.after]


@given(st.lists(st.sampled_from([GOOD, BAD]), min_size=1, max_size=40))
def test_with_enough_probes_no_jump_is_missed(truth):
    truth = [GOOD, *truth, BAD]
    known, _ = searched(truth, further=100)
    assert len(jumps(known)) == sum(one is not other for one, other in itertools.pairwise(truth))


def test_a_state_that_healed_in_between_is_seen_by_further_probes():
    truth = [GOOD] * 10 + [BAD] * 30 + [GOOD] * 30 + [BAD] * 30
    known, _ = searched(truth, further=4)
    assert [(span.before, known[span.after]) for span in jumps(known)] == [(9, BAD), (39, GOOD), (69, BAD)]


def answers(jump: int, ended: int) -> dict[int, Judgement]:
    """What commits say of which those from ``jump`` up to ``ended`` are bad."""
    return {at: BAD if jump <= at < ended else GOOD for at in range(1000)}


@pytest.mark.parametrize(("jump", "ended"), [(1, 1000), (500, 1000), (777, 1000), (300, 320)])
def test_the_next_probe_is_foreseen_and_most_of_those_behind_it(jump, ended):
    """Of three probes at a time the first is the next one always, and the other two are wanted in every second case and more."""
    truth, known, further = answers(jump, ended), {0: GOOD, 999: GOOD if ended < 1000 else BAD}, 4
    order: list[int] = []
    foreseen: list[list[int]] = []
    while (at := next_probe(known, further=further)) is not None:
        foreseen.append(list(islice(likely_probes(known, further=further), 3)))
        order.append(at)
        further -= next_probe(known, further=0) is None
        known[at] = truth[at]
    assert [likely[0] for likely in foreseen] == order
    ahead = [
        one in order[place + 1 : place + 3] for place, likely in enumerate(foreseen) for one in likely[1:]
    ]
    assert sum(ahead) * 2 >= len(ahead) - 2


def test_what_is_foreseen_ends_and_names_each_commit_once():
    known = {0: GOOD, 9: BAD}
    likely = list(likely_probes(known, further=20))
    assert sorted(likely) == sorted(set(likely)) and set(likely) <= set(range(1, 9))
    assert list(likely_probes({0: GOOD, 1: BAD}, further=4)) == []
