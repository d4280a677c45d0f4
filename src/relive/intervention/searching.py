"""The search for what a failure is caused by: groups of changes, each tried together, then narrowed to the fewest that are needed.

1. The unchanged replay must fail as recorded: in each run, or now and then. Of the latter each question below is asked until a
   run fails, or so many passed that it is under 5 % that the failure is still there.
2. In the failing request itself: answers of dependencies, readings of the clock, readings of chance, each as in the last good
   request.
3. Requests, and messages that are not HTTP/1, before it: from the commit before the failure, then from ever earlier ones (1, 2,
   4, 8 commits before it, to the first of that start), all that came since are left out. Once that lets it pass, the fewest of
   them are found that have to be left out. Two requests that are needed are tried in each other's place, too, and their answers
   are changed to those of good requests.
4. Requests that overlap it: one after the other.

Each group that lets the failure pass is narrowed by ``fewest``, one run for a question; what is left is run again as often as
the control. Requests that were found are then sent without all others since the commit: where it passes, too, they are needed and
not enough, as each of many is that use up a limit. Where there are no others, nobody can tell: the commit may hold them.

Where nobody can tell what leaving out requests shows, mostly since the failing request then asks for what only they had been
answered, or what nobody ever was, the fewest are found without which it does not fail as recorded, whatever it does instead. If
it passes without them, they are the cause. Else they are a *lead*, and no proof; then

- their own answers are changed to those of good requests, which may prove it: the failing request need not ask for anything then;
- all others are left out. If it does not still fail as recorded, smaller parts of the group are tried, the latest first: without
  them it may ask for nothing new.

A lead may only have answered for the failing request, in a state that an earlier one spoiled. So the search goes on from earlier
commits, where the lead is sent and all others are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from relive.errors import ReliveError
from relive.intervention.changing import change_case
from relive.intervention.grammar import AnswerChange, Change, Reordered, Without, WithoutMessage
from relive.intervention.judging import fails_as_recorded, judged_again
from relive.intervention.living import BoundsReached, Lab
from relive.intervention.messages import removable_messages
from relive.intervention.minimal import fewest, split
from relive.intervention.requests import overlapping, removable
from relive.intervention.steps import Step, steps_of
from relive.model.intervention import Effect, Tested
from relive.model.trial import FixRun
from relive.replay.replay_input import ReplayInput

__all__ = ["RATE_RUNS", "Scene", "Search", "earlier_cases"]

RATE_RUNS = 10  # of the unchanged replay, at most, that tell how often it fails
_RATE_FAILED = 2  # from an earlier commit, where fewer will do
_MOST_PARTS = 16  # that a group is taken apart into where all of it together says nothing
_MOST_REQUESTS = 2000
_MOST_PAIRS = 100
_MOST_LEADING = 3  # requests that are a lead together: more of them lead nowhere
_MOST_DEEPER = 3  # requests that were found to be needed, whose answers are changed


@dataclass(frozen=True, slots=True)
class Scene:
    """A case, what of it can be changed, and its unchanged runs."""

    case: ReplayInput
    steps: Sequence[Step]
    control: list[FixRun]


@dataclass(slots=True)
class Search:
    """One search.

    Attributes:
        times: how often a cause, and the control beside it, are run.
        tell: called with a sentence on what is being done.
        answers_of: changes of an earlier request's answers, as in a request to its route that went well.
        varies: the failure comes now and then.
        causes: changes with which the failure goes away, the fewest of their kind; tried: groups that did not settle it.
        lead: the fewest requests without which it does not fail as recorded, where no cause was found; None: there are none.
        notes: why something could not be told.
    """

    lab: Lab
    times: int
    tell: Callable[[str], None] = lambda _text: None
    answers_of: Callable[[Scene, int], list[AnswerChange]] = lambda _scene, _number: []
    varies: bool = False
    causes: list[Tested] = field(default_factory=list)
    tried: list[Tested] = field(default_factory=list)
    lead: Tested | None = None
    notes: list[str] = field(default_factory=list)
    _leading: Sequence[Change] = ()  # that are the lead

    def run(
        self, scene: Scene, groups: Sequence[tuple[str, list[AnswerChange]]], earlier: Iterator[ReplayInput]
    ) -> None:
        """Everything, as far as the bounds allow.

        Args:
            groups: of changes of the failing request, with their names.
            earlier: cases from commits further and further back, that of ``scene`` first.
        """
        try:
            for name, changes in groups:
                self._group(scene, name, changes)
            self._requests(scene, earlier)
            pairs = overlapping(scene.case)[:_MOST_PAIRS]
            if self.lead is None:
                self._group(scene, "overlapping requests", [Reordered("apart", *pair) for pair in pairs])
        except BoundsReached as bound:
            self.notes.append(f"not all was tried: {bound}")
        if self.causes:
            self.lead = None

    # -- a group of changes --------------------------------------------------------------------------------------------------

    def _group(self, scene: Scene, name: str, changes: Sequence[Change]) -> bool:
        """Whether the failure goes away with some of them."""
        if not changes:
            return False
        self.tell(f"Changing {name} ({len(changes)}), from commit {scene.case.commit[:10]}.")
        together = self._probe(scene, changes)
        if together.effect is Effect.NOT_ASKED:
            changes = [
                one
                for one in changes
                if not isinstance(one, AnswerChange) or str(one.call) not in together.unread
            ]
            if changes:
                together = self._probe(scene, changes)
        if (found := self._settled(scene, changes, together)) is not None:
            return found
        if isinstance(changes[0], Without | WithoutMessage):
            return self._lead_of(scene, changes, together)
        if len(changes) < 2:
            return False
        parts = [self._alone(scene, part) for part in _answers(changes)[:_MOST_PARTS]]
        return any(parts)

    def _settled(self, scene: Scene, changes: Sequence[Change], probed: Tested) -> bool | None:
        """Whether the failure goes away with some of what was probed; None: that cannot be told of all together."""
        if probed.effect is Effect.GOES_AWAY:
            return self._narrow(scene, changes, probed)
        self.tried.append(probed)
        return None if probed.effect is Effect.CANNOT_TELL else False

    def _alone(self, scene: Scene, changes: Sequence[Change]) -> bool:
        probed = self._probe(scene, changes)
        return probed.effect is Effect.GOES_AWAY and self._narrow(scene, changes, probed)

    def _narrow(self, scene: Scene, changes: Sequence[Change], last: Tested) -> bool:
        """Find the fewest of changes that are enough together, and run them as often as the control."""

        def is_enough(part: Sequence[Change]) -> bool:
            nonlocal last
            probed = self._probe(scene, part)
            if probed.effect is Effect.GOES_AWAY:
                last = probed
            return probed.effect is Effect.GOES_AWAY

        try:
            needed = fewest(changes, is_enough)
            control = scene.control
            if len(control) < self.times and not self.varies:
                control = control + self.lab.unchanged(scene.case, self.times - len(control))
            tested = self._test(scene, needed, control, self.times)
        except BoundsReached:
            self.tried.append(
                last.model_copy(
                    update={
                        "effect": Effect.CANNOT_TELL,
                        "why": "the bound was reached before it was narrowed",
                    }
                )
            )
            raise
        scene = Scene(scene.case, scene.steps, control)
        (self.causes if tested.effect is Effect.GOES_AWAY else self.tried).append(tested)
        if tested.effect is Effect.GOES_AWAY and isinstance(needed[0], Without | WithoutMessage):
            self.causes[-1] = tested.model_copy(update={"enough": self._is_enough(scene, needed)})
        self._of_requests(scene, needed)
        return tested.effect is Effect.GOES_AWAY

    def _is_enough(self, scene: Scene, needed: Sequence[Change]) -> bool | None:
        """Whether it fails with these alone of all that was sent since the commit; None: not tried, or nobody can tell."""
        if self.varies:
            return None  # it would be asked too often, for what is no part of the proof
        sent: list[Change] = [Without(number) for number in removable(scene.case)]
        sent += [WithoutMessage(number) for number in removable_messages(scene.case)]
        others = [one for one in sent if one not in needed]
        if not others:
            return None  # the control shows no more than that it fails with them and what the commit holds
        return {Effect.STAYS: True, Effect.GOES_AWAY: False}.get(self._probe(scene, others).effect)

    def _lead_of(self, scene: Scene, changes: Sequence[Change], last: Tested) -> bool:
        """Whether the failure goes away without some of these requests, of which nobody can tell that without all."""
        needed, last = self._fewest_that_matter(scene, changes, last)
        if last.effect is Effect.GOES_AWAY:
            return self._narrow(scene, needed, last)
        rest = [one for one in changes if one not in needed]
        if len(needed) <= _MOST_LEADING:
            if self.lead is None:
                self.lead, self._leading = last, needed
            causes = len(self.causes)
            self._of_requests(scene, needed)
            if len(self.causes) > causes:
                return True
            if not rest:
                return False
            others = self._probe(scene, rest)
            if (found := self._settled(scene, rest, others)) is not None:
                return found
        return len(changes) > 1 and any(self._alone(scene, part) for part in _halves(changes))

    def _fewest_that_matter(
        self, scene: Scene, changes: Sequence[Change], last: Tested
    ) -> tuple[Sequence[Change], Tested]:
        """Those without which it does not fail as recorded, and what it does instead."""
        self.tell(
            f"Looking for what came before it and without which it does not fail as recorded, from commit {scene.case.commit[:10]}."
        )

        def fails_otherwise(part: Sequence[Change]) -> bool:
            nonlocal last
            probed = self._probe(scene, part)
            if probed.effect in (Effect.CANNOT_TELL, Effect.GOES_AWAY):
                last = probed
                return True
            return False

        return fewest(changes, fails_otherwise), last

    def _of_requests(self, scene: Scene, needed: Sequence[Change]) -> None:
        """Requests that have to be left out: does their order matter, where there are two, and what they were answered?"""
        numbers = [one.request for one in needed if isinstance(one, Without)]
        if len(numbers) == 2:
            swapped = self._test(scene, [Reordered("swap", *numbers)], scene.control, self.times)
            (self.causes if swapped.effect is Effect.GOES_AWAY else self.tried).append(swapped)
        for number in numbers[:_MOST_DEEPER]:
            self._group(scene, f"answers of request {number}", self.answers_of(scene, number))

    def _probe(self, scene: Scene, changes: Sequence[Change]) -> Tested:
        return self._test(scene, changes, scene.control, 1)

    def _test(self, scene: Scene, changes: Sequence[Change], control: list[FixRun], times: int) -> Tested:
        changed = change_case(scene.case, changes, scene.steps)

        def run(count: int) -> Tested:
            return self.lab.test(scene.case, changed, changes, control, count, scene.steps)

        if not self.varies:
            return run(times)
        tested = judged_again(run(1), [], [])
        while tested.effect is Effect.CANNOT_TELL and all(one.fails is False for one in tested.runs):
            try:
                more = run(1)
            except BoundsReached:
                self.tried.append(tested)  # which says how many more runs would tell
                raise
            tested = judged_again(tested, more.runs, more.unread)
        return tested

    # -- requests before it --------------------------------------------------------------------------------------------------

    def _requests(self, scene: Scene, earlier: Iterator[ReplayInput]) -> None:
        looked_at, words, before, first = 0, "", 0, len(self.tried)
        for case in earlier:
            requests, messages = removable(case), removable_messages(case)
            changes: list[Change] = [Without(number) for number in requests]
            changes += [WithoutMessage(number) for number in messages]
            if len(changes) <= looked_at:  # no other than from the commit before
                continue
            looked_at, words = len(changes), _counted(len(requests), len(messages))
            if looked_at > _MOST_REQUESTS:
                self.notes.append(f"from commit {case.commit[:10]} on there are {words}, which is too many")
                return
            before = min(requests, default=1) - 1
            there = scene if case.commit == scene.case.commit else self._scene(case)
            if there is None:
                return
            others = [one for one in changes if one not in self._leading]
            if self._group(there, f"{'requests' if requests else 'messages'} before it", others):
                return
        if any(one.effect is Effect.CANNOT_TELL for one in self.tried[first:]):
            return
        if looked_at:
            self.notes.append(f"without the {words} between the first commit and it, it fails as well")
            if before:
                self.notes.append(
                    f"the first commit that there is was taken after request {before}, so none up to that one could be left out"
                )
        else:
            self.notes.append("no request came between the first commit of that start and the failing one")

    def _scene(self, case: ReplayInput) -> Scene | None:
        """An earlier commit's, with one unchanged run; None, with a note, where it does not fail again from there."""
        control = self.lab.unchanged(case, 1)
        while (
            self.varies and len(control) < RATE_RUNS and sum(map(fails_as_recorded, control)) < _RATE_FAILED
        ):
            control = control + self.lab.unchanged(case, 1)
        if any(map(fails_as_recorded, control)) if self.varies else all(map(fails_as_recorded, control)):
            return Scene(case, steps_of(case), control)
        why = control[0].difference or control[0].result
        self.notes.append(
            f"from commit {case.commit[:10]} it does not fail again, so earlier requests cannot be judged: {why}"
        )
        return None


def earlier_cases(commits: Sequence[str], case_of: Callable[[str], ReplayInput]) -> Iterator[ReplayInput]:
    """Cases from the first of some commits (the latest), from 1, 2, 4, ... further back, and from the last.

    One that cannot be made ends it; nothing is raised.
    """
    places = [0, *(2**power for power in range(32) if 2**power < len(commits) - 1), len(commits) - 1]
    for place in dict.fromkeys(places):
        try:
            yield case_of(commits[place])
        except ReliveError:
            return


def _counted(requests: int, messages: int) -> str:
    counts = ((requests, "request"), (messages, "message"))
    return " and ".join(f"{count} {what}{'s' * (count > 1)}" for count, what in counts if count)


def _answers(changes: Sequence[Change]) -> list[list[Change]]:
    """Changes of one answer together."""
    by_call: dict[str, list[Change]] = {}
    for one in changes:
        key = str(one.call) if isinstance(one, AnswerChange) else repr(one)
        by_call.setdefault(key, []).append(one)
    return list(by_call.values())


def _halves(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """Requests in their order by halves, quarters and so on, the latest first."""
    pieces = 2
    while True:
        yield from reversed(split(changes, pieces))
        if pieces >= min(_MOST_PARTS, len(changes)):
            return
        pieces *= 2
