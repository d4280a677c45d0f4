"""The search, with replays that are played: which groups are tried, what is narrowed, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from relive.errors import ChangeUnfit, RefUnknown
from relive.intervention.changing import Changed
from relive.intervention.grammar import Reordered, Without, option_of
from relive.intervention.judging import effect_of
from relive.intervention.living import Bounds, BoundsReached, Lab
from relive.intervention.requests import overlapping, removable, with_requests
from relive.intervention.searching import Scene, Search, earlier_cases
from relive.model import intervention as model
from relive.model.outcome import End, Outcome
from relive.model.trial import Effects, FixRun
from relive.replay.replay_input import ReplayInput
from replay.test_plan import exchange, manifest, plan

FAILS = FixRun(fails=True, result="fails the same", status=500)
PASSES = FixRun(fails=False, result="no failure", status=200)
OTHERWISE = FixRun(fails=True, result="fails otherwise", status=502)
LACKS = PASSES.model_copy(update={"effects": Effects(unanswered=1)})


def case_with(*numbers: int, failing: int = 99, commit: str = "c1") -> ReplayInput:
    """Requests one after the other, the last of which failed."""
    begun = [exchange(number, 110 + 10 * at, 115 + 10 * at) for at, number in enumerate((*numbers, failing))]
    made = plan(begun, subject=failing)
    outcome = Outcome(end=End.ANSWERED, status=500)
    about = ("pay", 1, commit, manifest(), made, outcome, {}, 10.0)
    return ReplayInput(*cast("Any", about), exchange=begun[-1])


@dataclass
class PlayedLab:
    """Fails while one of each of some groups of requests is sent, and from one commit in any case; within a bound.

    Attributes:
        every: it fails in the last of so many runs only.
        answered: where it passes it asks for what these were answered, each of which will do; empty: for nothing.
        lacks_in_any: it asks for that wherever it is sent from, and fails otherwise without.
    """

    poison: Sequence[set[int]]
    wrong_from: str = ""
    answered: frozenset[int] = frozenset()
    lacks_in_any: bool = False
    most: int = 1000
    every: int = 1
    replays: int = 0
    asked: list[list[str]] = field(default_factory=list)

    def _run(self, case: ReplayInput, times: int) -> list[FixRun]:
        if self.replays + times > self.most:
            raise BoundsReached(f"{self.most} replays were allowed")
        self.replays += times
        is_due = self.replays % self.every == 0
        sent = {one.exchange.number for one in case.plan.steps}
        is_wrong = case.commit == self.wrong_from or all(sent & one for one in self.poison)
        lacks = bool(self.answered) and not sent & self.answered
        if lacks and self.lacks_in_any:
            return [OTHERWISE] * times
        return [FAILS if is_wrong and is_due else LACKS if lacks else PASSES] * times

    def unchanged(self, case: ReplayInput, times: int) -> list[FixRun]:
        return self._run(case, times)

    def test(self, case, changed: Changed, changes, control, times, _steps) -> model.Tested:
        runs = self._run(changed.case, times)
        effect, why = effect_of(control, runs, [])
        told = [
            model.ChangeDescription(option=option_of(one), about="", recorded="", instead="")
            for one in changes
        ]
        self.asked.append([one.option for one in told])
        return model.Tested(
            changes=told, commit=case.commit, effect=effect, why=why, control=control, runs=runs
        )


def search(lab: PlayedLab, *cases: ReplayInput) -> Search:
    varies = lab.every > 1
    made = Search(cast("Lab", lab), 2, varies=varies)
    made.run(Scene(cases[0], [], [FAILS] * 2 + [PASSES] * 2 * varies), [], iter(cases))
    return made


def found(made: Search) -> list[list[str]]:
    return [[change.option for change in one.changes] for one in made.causes]


def test_the_one_request_of_many_is_found():
    lab = PlayedLab([{7}])
    made = search(lab, case_with(*range(1, 22)))
    assert found(made) == [["--without 7"]]
    assert [run.fails for run in made.causes[0].runs] == [False, False]
    assert lab.replays <= 14


def test_requests_that_are_needed_and_not_enough_are_told_from_those_that_suffice():
    """Of a table that four requests fill together each is needed: the one that is found is not *the* cause."""
    (filled,) = search(PlayedLab([{3}, {5}, {6}, {8}]), case_with(*range(1, 9))).causes
    assert ([one.option for one in filled.changes], filled.enough) == (["--without 3"], False)
    (spoilt,) = search(PlayedLab([{3}]), case_with(*range(1, 9))).causes
    assert spoilt.enough is True


def test_of_one_that_is_the_only_one_since_the_commit_nobody_can_tell_whether_it_is_enough():
    """Of a leak to ten the commit holds nine: that it fails with the tenth was told to show that the tenth is enough."""
    (tenth,) = search(PlayedLab([{10}]), case_with(10)).causes
    assert ([one.option for one in tenth.changes], tenth.enough) == (["--without 10"], None)


def test_earlier_commits_are_gone_back_to_where_nothing_nearer_helps():
    """The nearer commit holds the wrong state already: there it fails whatever is left out."""
    lab = PlayedLab([{1}], wrong_from="c1")
    made = search(lab, case_with(2), case_with(1, 2, commit="c0"))
    assert found(made) == [["--without 1"]] and made.causes[0].commit == "c0"
    assert [[change.option for change in one.changes] for one in made.tried] == [["--without 2"]]


def test_two_that_are_enough_each_have_both_to_be_left_out_and_their_order_is_tried():
    made = search(PlayedLab([{3, 5}]), case_with(*range(1, 9)))
    assert found(made) == [["--without 3", "--without 5"]]
    assert [change.option for change in made.tried[-1].changes] == ["--swap 3,5"]


def test_what_lacks_answers_without_all_is_taken_apart_until_it_does_not():
    """The failing request, once it goes well, asks for what only requests 11 and 22 were answered."""
    lab = PlayedLab([{46}], answered=frozenset({11, 22}))
    made = search(lab, case_with(*range(1, 67)))
    assert found(made) == [["--without 46"]]
    assert made.notes == [] and lab.replays <= 20


def test_what_lacks_answers_in_any_part_is_not_told_to_fail():
    made = search(PlayedLab([{3}], answered=frozenset({3})), case_with(*range(1, 6)))
    assert made.causes == [] and made.notes == []
    assert made.tried[0].why == "it passes, but asked for 1 more answer that nobody had recorded"
    assert [change.option for change in made.lead.changes] == ["--without 3"]
    others = made.tried[-1]
    assert [change.option for change in others.changes] == [f"--without {one}" for one in (1, 2, 4, 5)]
    assert others.effect is model.Effect.STAYS


def test_what_poisoned_a_cache_is_named_in_few_replays():
    """The failing request reads what request 61 has put there, and without that asks for what nobody was answered.

    Halves, quarters and so on were tried first, 30 replays of no use, and the time was over before the one was found.
    """
    lab = PlayedLab([{61}], answered=frozenset({61}))
    made = search(lab, case_with(*range(1, 301)))
    assert [change.option for change in made.lead.changes] == ["--without 61"]
    assert lab.replays <= 24


def test_a_request_that_only_answered_for_it_does_not_hide_the_one_that_matters():
    """GIVEN one that spoils and one that is needed, in either of which it does not fail as recorded without it."""
    lab = PlayedLab([{9}], answered=frozenset({2}))
    made = search(lab, case_with(*range(1, 13)))
    assert found(made) == [["--without 9"]] and made.lead is None


def test_behind_a_lead_that_only_answered_for_it_earlier_commits_are_gone_back_to():
    """GIVEN a request that spoiled the state of the nearest commit, and a later one that the failing one reads an answer of
    WHEN without the later one nobody can tell THEN the one that spoiled it is found from the commit before it.
    """
    lab = PlayedLab([{1}], wrong_from="c1", answered=frozenset({11}), lacks_in_any=True)
    made = search(lab, case_with(11), case_with(*range(1, 12), commit="c0"))
    assert found(made) == [["--without 1"]] and made.causes[0].commit == "c0"
    assert made.lead is None


def test_a_lead_stays_where_nothing_else_matters_from_earlier_commits_either():
    lab = PlayedLab([{61}], answered=frozenset({61}))
    made = search(lab, case_with(*range(50, 99)), case_with(*range(1, 99), commit="c0"))
    assert made.causes == []
    assert [change.option for change in made.lead.changes] == ["--without 61"]
    assert len(made.tried[-1].changes) == 97 and made.tried[-1].effect is model.Effect.STAYS


def test_a_lead_is_looked_for_only_where_there_is_no_cause_and_it_leads_somewhere():
    assert search(PlayedLab([{46}], answered=frozenset({11})), case_with(*range(1, 67))).lead is None
    assert search(PlayedLab([{99}]), case_with(1, 2)).lead is None
    every = frozenset(range(1, 9))
    assert search(PlayedLab([every], answered=every), case_with(*range(1, 9))).lead is None


def test_what_no_request_caused_is_said():
    made = search(PlayedLab([{99}]), case_with(1), case_with(1, 2, commit="c0"))
    assert made.causes == [] and "without the 2 requests" in made.notes[-1]
    later = search(PlayedLab([{99}]), case_with(25, 26, commit="c0"))
    assert "was taken after request 24" in later.notes[-1]
    assert "no request came" in search(PlayedLab([{99}]), case_with()).notes[-1]


def test_a_commit_from_which_it_does_not_fail_again_ends_the_search():
    made = search(PlayedLab([{99}, {1}]), case_with(), case_with(2, commit="c0"))
    assert made.causes == [] and "from commit c0 it does not fail again" in made.notes[-1]


def test_a_bound_ends_it_with_what_was_found_so_far():
    made = search(PlayedLab([{7}], most=4), case_with(*range(1, 22)))
    assert made.causes == [] and "4 replays were allowed" in made.notes[-1]
    assert made.tried[-1].why == "the bound was reached before it was narrowed"


def test_of_what_fails_now_and_then_each_question_is_asked_until_it_is_sure():
    """Two of four runs failed: nine clean ones are enough, and one that fails is enough, too."""
    made = search(PlayedLab([{1}], wrong_from="c1", every=2), case_with(2), case_with(1, 2, 3, commit="c0"))
    assert found(made) == [["--without 1"]]
    assert made.causes[0].still_there is not None and made.causes[0].still_there < 0.05 < 9 / len(
        made.causes[0].runs
    )
    assert [(one.effect.value, len(one.runs) <= 2) for one in made.tried] == [("stays", True)]


def test_of_what_fails_now_and_then_it_is_told_how_many_more_runs_would_tell():
    made = search(PlayedLab([{7}], every=2, most=5), case_with(*range(1, 22)))
    assert made.causes == [] and "5 replays were allowed" in made.notes[-1]
    assert made.tried[-1].why is not None and "more runs without failure would tell" in made.tried[-1].why


def test_bounds_count_replays_and_time():
    bounds = Bounds(3, 1000)
    bounds.reserve_replays(2)
    with pytest.raises(BoundsReached, match="3 replays"):
        bounds.reserve_replays(2)
    with pytest.raises(BoundsReached, match="0 s were allowed"):
        Bounds(3, 0).reserve_replays(1)


def test_commits_are_looked_at_ever_further_apart():
    asked: list[str] = []

    def case_of(commit: str) -> ReplayInput:
        asked.append(commit)
        return case_with(commit=commit)

    commits = [f"c{number}" for number in range(12)]
    assert len(list(earlier_cases(commits, case_of))) == 6
    assert asked == ["c0", "c1", "c2", "c4", "c8", "c11"]

    def gone(_commit: str) -> ReplayInput:
        raise RefUnknown("it is gone")

    assert list(earlier_cases(commits, gone)) == []


# -- plans -----------------------------------------------------------------------------------------------------------------


def sent(case: ReplayInput) -> list[tuple[int, set[int]]]:
    return [(one.exchange.number, set(one.waits_for)) for one in case.plan.steps]


def test_who_is_left_out_is_waited_for_by_nobody():
    case = case_with(1, 2)
    assert removable(case) == [1, 2]
    assert sent(with_requests(case, [Without(1)])) == [(2, set()), (99, {2})]


def test_two_change_places_and_waits():
    assert sent(with_requests(case_with(1, 2), [Reordered("swap", 1, 2)])) == [
        (2, set()),
        (1, {2}),
        (99, {1, 2}),
    ]


def test_overlapping_requests_are_put_apart_and_others_together():
    begun = [exchange(1, 110, 140), exchange(2, 120, 130), exchange(99, 150, 160)]
    case = replace(case_with(), plan=plan(begun, subject=99), exchange=begun[-1])
    assert overlapping(case) == [(1, 2)]
    assert sent(with_requests(case, [Reordered("apart", 2, 1)]))[1] == (2, {1})
    together = with_requests(case_with(1, 2), [Reordered("together", 1, 2)])
    assert sent(together)[1] == (2, set())
    assert together.plan.steps[0].after_commit_ns == together.plan.steps[1].after_commit_ns


@pytest.mark.parametrize("change", [Without(99), Without(4), Reordered("swap", 1, 4)])
def test_what_is_not_sent_cannot_be_changed(change):
    with pytest.raises(ChangeUnfit):
        with_requests(case_with(1), [change])
