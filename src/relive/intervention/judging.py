"""What runs prove: the failure goes away, stays, or nobody can tell. Pure.

1. The unchanged replay is the control: where it does not fail as recorded, a change proves nothing. Where it fails now and
   then, one run that fails as recorded with the change shows that the failure stays; clean ones count as for a fix: once it is
   under 5 % that the failure is still there (``trial.findability``).
2. A change that no run read or asked for proves nothing: "not asked".
3. It goes away where each run with the change passes, and none of them asked for something that nobody had recorded: then it
   may have passed for want of an answer.
4. It stays where each run fails as recorded. Another failure is neither.
"""

from __future__ import annotations

from collections.abc import Sequence

from relive.model.intervention import Effect, Tested
from relive.model.trial import FixRun
from relive.trial.findability import ENOUGH, more_clean_runs, still_there

__all__ = [
    "LACKING",
    "counted",
    "effect_of",
    "fails_as_recorded",
    "is_now_and_then",
    "judged_again",
    "lacking_words",
    "probability_left",
]

LACKING = "fails, and lacked answers"
_SAME = frozenset({"fails the same", "fails, cause not seen"})


def fails_as_recorded(run: FixRun) -> bool:
    """Whether a run showed the recorded failure."""
    return run.result in _SAME


def is_now_and_then(control: Sequence[FixRun]) -> bool:
    """The unchanged runs show the recorded failure, or none, and both came."""
    failed = sum(map(fails_as_recorded, control))
    return 0 < failed < len(control) and all(run.fails is False or fails_as_recorded(run) for run in control)


def effect_of(
    control: Sequence[FixRun], runs: Sequence[FixRun], unread: Sequence[str], *, varies: bool = False
) -> tuple[Effect, str | None]:
    """(what the runs with a change show beside the unchanged ones, why it is "not asked" or "cannot tell").

    Args:
        unread: names of what was changed and not asked for in some run.
        varies: the failure comes now and then, also where each of these few unchanged runs failed.
    """
    varies = varies or is_now_and_then(control)
    if varies and any(map(fails_as_recorded, runs)):
        return Effect.STAYS, None
    weak = _weak_control(control, runs, varies=varies)
    if weak is not None:
        return Effect.CANNOT_TELL, weak
    if unread:
        return Effect.NOT_ASKED, f"the replay never asked for {', '.join(unread)}"
    return _effect(control, runs)


def probability_left(control: Sequence[FixRun], runs: Sequence[FixRun]) -> float | None:
    """That the failure is still there; None where no run passed."""
    clean = sum(run.fails is False for run in runs)
    ran = sum(run.fails is not None for run in control)
    failed = sum(fails_as_recorded(run) for run in control)
    failing = sum(run.fails is True for run in runs)
    return still_there(failed=failed, ran=ran, clean=clean, failing=failing) if clean and ran else None


def judged_again(tested: Tested, runs: Sequence[FixRun], unread: Sequence[str]) -> Tested:
    """The same with further runs, of a failure that comes now and then."""
    all_runs, all_unread = [*tested.runs, *runs], list(dict.fromkeys([*tested.unread, *unread]))
    effect, why = effect_of(tested.control, all_runs, all_unread, varies=True)
    return tested.model_copy(
        update={
            "runs": all_runs,
            "unread": all_unread,
            "effect": effect,
            "why": why,
            "still_there": probability_left(tested.control, all_runs),
        }
    )


def lacking_words(runs: Sequence[FixRun]) -> list[str]:
    """What was missing in runs, and what the recording answered in the first, a line for each."""
    lines = [f"missing: {text}" for text in dict.fromkeys(text for run in runs for text in run.missing)]
    return [*lines, *(f"answered: {run.played}" for run in runs[:1] if run.played is not None)]


def counted(runs: Sequence[FixRun]) -> str:
    """Runs in words: ``passes 3 of 3``, ``fails the same 2 of 3, no failure 1 of 3``."""
    results = list(dict.fromkeys(run.result for run in runs))
    counts = [
        f"{_WORDS.get(one, one)} {sum(run.result == one for run in runs)} of {len(runs)}" for one in results
    ]
    return ", ".join(counts) or "never ran"


_WORDS = {"no failure": "passes", "fails the same": "fails", "not restored": "could not be restored"}


def _weak_control(control: Sequence[FixRun], runs: Sequence[FixRun], *, varies: bool) -> str | None:
    """Why the unchanged replay proves nothing; None where it does."""
    ran = [run for run in control if run.fails is not None]
    if not ran:
        difference = control[0].difference if control else None
        return f"the unchanged replay could not be run: {difference or 'it was not tried'}"
    failed = sum(map(fails_as_recorded, ran))
    if failed == len(ran) and not varies:
        return None
    if not failed:
        difference = next((f" ({run.difference})" for run in ran if run.difference), "")
        return f"unchanged, the replay does not fail as recorded: {counted(control)}{difference}"
    clean = sum(run.fails is False for run in runs)
    if clean < len(runs):
        return (
            f"unchanged, it fails in {failed} of {len(ran)} replays only, and with the change not all passed"
        )
    if still_there(failed=failed, ran=len(ran), clean=clean) < ENOUGH:
        return None
    more = more_clean_runs(failed=failed, ran=len(ran), clean=clean)
    return (
        f"unchanged, it fails in {failed} of {len(ran)} replays only; {more} more runs without failure would tell "
        "(--times; of `why` --most)"
    )


def _effect(control: Sequence[FixRun], runs: Sequence[FixRun]) -> tuple[Effect, str | None]:
    if not runs or any(run.fails is None for run in runs):
        difference = next((run.difference for run in runs if run.fails is None), None)
        return (
            Effect.CANNOT_TELL,
            f"with the change it could not be replayed: {difference or 'it was not tried'}",
        )
    if all(map(fails_as_recorded, runs)):
        return Effect.STAYS, None
    if all(run.fails is False for run in runs):
        usual = max((_unanswered(run) for run in control), default=0)
        more = max(map(_unanswered, runs)) - usual
        if more > 0:
            return (
                Effect.CANNOT_TELL,
                f"it passes, but asked for {more} more {'answer' if more == 1 else 'answers'} that nobody had recorded",
            )
        return Effect.GOES_AWAY, None
    if all(run.fails and not fails_as_recorded(run) for run in runs):
        how = (
            runs[0].exception
            or runs[0].difference
            or (f"status {runs[0].status}" if runs[0].status else "no answer")
        )
        return Effect.CANNOT_TELL, f"it fails in another way: {how}"
    return Effect.CANNOT_TELL, f"the runs with the change do not agree: {counted(runs)}"


def _unanswered(run: FixRun) -> int:
    return run.effects.unanswered if run.effects is not None else 0
