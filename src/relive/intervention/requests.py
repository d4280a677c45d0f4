"""Plans of a replay with a request left out, two in each other's place, one after the other's end, or both at once. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from relive.errors import ChangeUnfit
from relive.intervention.grammar import Reordered, Without
from relive.replay.plan import ReplayPlan, ReplayStep
from relive.replay.replay_input import ReplayInput

__all__ = ["overlapping", "removable", "with_requests"]


def removable(case: ReplayInput) -> list[int]:
    """Numbers of the requests that are sent before and beside the failing one, in their order."""
    failing = _failing(case)
    return [
        one.exchange.number for one in case.plan.steps if not one.continues and one.exchange.number != failing
    ]


def overlapping(case: ReplayInput) -> list[tuple[int, int]]:
    """Pairs of requests, the earlier first, of which the second began before the first had ended."""
    steps = [one for one in case.plan.steps if not one.continues]
    return [
        (first.exchange.number, second.exchange.number)
        for at, second in enumerate(steps)
        for first in steps[:at]
        if first.exchange.number not in second.waits_for
    ]


def with_requests(case: ReplayInput, changes: Iterable[Without | Reordered]) -> ReplayInput:
    """The case with its requests sent otherwise; ChangeUnfit where one of them is not among them."""
    without = [one.request for one in changes if isinstance(one, Without)]
    for number in without:
        _check(case, number, f"--without {number}")
    plan = _left_out(case.plan, without)
    for one in changes:
        if isinstance(one, Reordered):
            for number in (one.first, one.second):
                _check(case, number, f"--{one.how} {one.first},{one.second}", may_fail=True)
            plan = _reordered(plan, one)
    earlier = {number: outcome for number, outcome in case.earlier.items() if number not in without}
    return replace(case, plan=plan, earlier=earlier)


def _failing(case: ReplayInput) -> int | None:
    return case.exchange.number if case.exchange is not None else case.plan.subject


def _check(case: ReplayInput, number: int, option: str, *, may_fail: bool = False) -> None:
    step = next((one for one in case.plan.steps if one.exchange.number == number), None)
    if step is not None and not step.continues and (may_fail or number != _failing(case)):
        return
    if step is None:
        cause = f"request {number} is not among the {len(case.plan.steps)} that are sent from commit {case.commit[:10]} on"
        remedy = "`relive what-if INCIDENT` lists them; an earlier commit (--commit) brings earlier ones"
    elif step.continues:
        cause = f"commit {case.commit[:10]} holds it, half served"
        remedy = "name an earlier commit (--commit)"
    else:
        cause, remedy = "it is the one that failed", "name another one"
    raise ChangeUnfit(f"{option} cannot be done", cause=cause, remedy=remedy)


def _left_out(plan: ReplayPlan, numbers: Collection[int]) -> ReplayPlan:
    gone = frozenset(numbers)
    if not gone:
        return plan
    kept = [
        replace(one, waits_for=one.waits_for - gone) for one in plan.steps if one.exchange.number not in gone
    ]
    hangups = [replace(one, waits_for=one.waits_for - gone) for one in plan.hangups]
    return replace(plan, steps=kept, hangups=hangups, left_out=[*plan.left_out, *sorted(gone)])


def _reordered(plan: ReplayPlan, order: Reordered) -> ReplayPlan:
    steps = {one.exchange.number: one for one in plan.steps}
    first, second = sorted((steps[order.first], steps[order.second]), key=plan.steps.index)
    if order.how == "swap":
        return _swapped(plan, first, second)
    one, other = first.exchange.number, second.exchange.number
    if order.how == "apart":
        later = replace(second, waits_for=second.waits_for | {one})
    else:
        at = min(first.after_commit_ns, second.after_commit_ns)
        later = replace(
            second, waits_for=(second.waits_for | first.waits_for) - {one, other}, after_commit_ns=at
        )
    return replace(plan, steps=[later if step is second else step for step in plan.steps])


def _swapped(plan: ReplayPlan, first: ReplayStep, second: ReplayStep) -> ReplayPlan:
    """Each in the place and with the waits of the other; who waited for one waits for the other."""
    names = {
        first.exchange.number: second.exchange.number,
        second.exchange.number: first.exchange.number,
    }

    def renamed(numbers: frozenset[int]) -> frozenset[int]:
        return frozenset(names.get(number, number) for number in numbers)

    in_place = {id(first): second.exchange, id(second): first.exchange}
    steps = [
        replace(one, exchange=in_place.get(id(one), one.exchange), waits_for=renamed(one.waits_for))
        for one in plan.steps
    ]
    hangups = [replace(one, waits_for=renamed(one.waits_for)) for one in plan.hangups]
    return replace(plan, steps=steps, hangups=hangups)
