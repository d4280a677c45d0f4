"""Trying fixes on the very state and request that failed: each in a branch of its own, beside the unchanged code, which runs twice.

1. The unchanged code runs twice (or as often as fixes are): what differs between these two is noise, and how often it fails
   says how many clean runs a fix needs.
2. Each patch changes the files and the living functions of a branch before anything is sent.
3. A run in which an earlier request fails that had not failed when it was recorded counts as failed, too.
4. With neighbours, the requests around the failing one are sent, too; what ends otherwise than recorded, and does not so with
   the unchanged code, is what the fix breaks.

Runs do not depend on each other: who calls decides how many go on at one time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from relive.config import Settings
from relive.errors import PatchUnfit, RecordingError, ReliveError
from relive.model.incident import Incident, Occurrence
from relive.model.life_paths import LifePaths
from relive.model.outcome import Outcome, Run, VerdictKind
from relive.model.trial import FixRun, FixTried, NeighbourDifference, Swapped
from relive.recording.exchanges import Exchange, Exchanges
from relive.recording.reader import Recording
from relive.replay.replay_input import ReplayInput, case_of_request
from relive.replay.replay_options import ReplayOptions
from relive.replay.verdict import is_failure, same_answer
from relive.sandbox.branch import Branch
from relive.store import Store
from relive.trial.effects import FileStates, effects_of, files_of, written_between
from relive.trial.findability import more_clean_runs, still_there
from relive.trial.lives import Change, TrialLife, live_once
from relive.trial.patches import apply_patch
from relive.trial.source import read_in_branch
from relive.trial.swapping import change_code, loaded_files, roots_of

__all__ = [
    "NOT_RESTORED",
    "Neighbours",
    "RunsMade",
    "TrialContext",
    "changed_by",
    "counted_elsewhere",
    "neighbours_of",
    "noise_between",
    "patching",
    "run_fix",
    "run_neighbours",
    "run_words",
    "with_odds",
]

NOT_RESTORED, FAILS_ELSEWHERE = "not restored", "another request fails"  # as results
_LAST = (1 << 63) - 1  # a sequence number behind all
_TOLD_MOST = 100
_FILES = 3  # that are named


@dataclass(frozen=True, slots=True)
class TrialContext:
    """What all fixes of a trial are tried on.

    Attributes:
        masked: takes secrets out of a life.
    """

    settings: Settings
    store: Store
    case: ReplayInput
    options: ReplayOptions
    masked: Callable[[Run], Run] = lambda run: run


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The requests around the failing one.

    Attributes:
        case: of the last of them, whose replay sends all before it, too.
        asked: number of each that is compared to its request in words; recorded: to how it ended then.
    """

    case: ReplayInput
    asked: Mapping[int, str]
    recorded: Mapping[int, Outcome]


@dataclass(frozen=True, slots=True)
class RunsMade:
    """Some runs of one fix; ``swapped``: what its change did to the code, None where there was none."""

    runs: list[FixRun]
    swapped: Swapped | None


def patching(patch: str, root: str | None) -> Change:
    """The change of a branch that a patch makes; ``root``: the directory its names are relative to, None: it is looked for.

    The change raises PatchUnfit: it does not apply, is of none of the service's files, or nothing of it could reach a process.
    """

    def change(branch: Branch) -> Swapped:
        loaded = loaded_files(branch)
        if not loaded:
            raise PatchUnfit(
                "a patch can only be tried in a living Python process, and the service has none",
                cause="no process of the commit runs a CPython whose functions can be found",
                remedy="commit it to git and start the service afresh with it: relive try INCIDENT --tree REVISION",
            )
        roots = [root] if root is not None else roots_of(branch, loaded)
        _, changes = apply_patch(patch, roots, lambda path: read_in_branch(branch.facts.root, path))
        applied = change_code(branch, changes)
        if applied.left and not (applied.swapped or applied.added or applied.unloaded):
            raise PatchUnfit(
                "nothing of the patch could reach the living process",
                cause="; ".join(f"{one.name}: {one.why}" for one in applied.left[:3]),
                remedy="start the service afresh with it: relive try INCIDENT --tree REVISION",
            )
        return applied

    return change


def with_odds(tried: FixTried, *, failed: int, ran: int) -> FixTried:
    """With the probability that the failure is still there."""
    clean = sum(run.fails is False for run in tried.runs)
    failing = sum(run.fails is True for run in tried.runs)
    if not clean and not failing:
        return tried
    return tried.model_copy(
        update={
            "still_there": still_there(failed=failed, ran=ran, clean=clean, failing=failing),
            "more_runs": 0 if failing else more_clean_runs(failed=failed, ran=ran, clean=clean),
        }
    )


def run_fix(context: TrialContext, change: Change | None, numbers: Sequence[int]) -> RunsMade:
    """Runs with these numbers, one after the other.

    Raises:
        PatchUnfit, ChangeUnfit: the change cannot be made. RestoreFailed: a branch could not be changed.
    """
    runs, swapped = [], None
    for number in numbers:
        life, files = _life(context, context.case, change, number)
        life = replace(life, run=context.masked(life.run))
        swapped = swapped or life.swapped
        runs.append(_fix_run(life, files, context.case))
    return RunsMade(runs, swapped)


def _life(
    context: TrialContext, case: ReplayInput, change: Change | None, number: int = 1
) -> tuple[TrialLife, list[str]]:
    """One life, and the files that were written in it while requests were sent."""
    branches: list[Branch] = []
    before: list[FileStates] = []
    written: list[str] = []

    def changed(branch: Branch) -> Swapped:
        applied = change(branch) if change is not None else Swapped()
        branches.append(branch)
        before.append(files_of(branch))
        return applied

    def heard(_others: Mapping[int, Outcome]) -> None:
        written.extend(written_between(before[0], files_of(branches[0])))

    life = live_once(
        context.settings, context.store, case, replace(context.options, hears=heard), changed, number
    )
    return life, written


def _fix_run(life: TrialLife, files: list[str], case: ReplayInput) -> FixRun:
    outcome = life.run.outcome
    if outcome is None:
        return FixRun(fails=None, result=NOT_RESTORED, difference=life.run.verdict.difference)
    return FixRun(
        fails=is_failure(outcome),
        result=run_words(life.run.verdict.kind, outcome),
        status=outcome.status,
        exception=outcome.stack.exception if outcome.stack is not None else None,
        seconds=outcome.seconds,
        difference=life.run.verdict.difference,
        missing=life.run.verdict.missing,
        played=life.run.verdict.played,
        effects=effects_of(outcome, files),
        elsewhere=_elsewhere(life, case),
    )


def _elsewhere(life: TrialLife, case: ReplayInput) -> list[NeighbourDifference]:
    """Requests before the judged one that failed, and had not when they were recorded."""
    asked = {step.exchange.number: step.exchange for step in case.plan.steps}
    found = []
    for number, recorded in sorted(case.earlier.items()):
        outcome = life.others.get(number)
        if outcome is None or number not in asked or not is_failure(outcome) or is_failure(recorded):
            continue
        words = f"{asked[number].method} {asked[number].target}"
        difference = same_answer(recorded, outcome) or "it failed"
        found.append(NeighbourDifference(request=number, asked=words, difference=difference))
    return found[:_TOLD_MOST]


def counted_elsewhere(runs: Sequence[FixRun], unchanged: Sequence[FixRun]) -> list[FixRun]:
    """The runs in which only another request failed count as failed: a race that is lost elsewhere is no cure.

    A request that fails in each run of the unchanged code does so since it is replayed, and says nothing of a fix.
    """
    ran = [run for run in unchanged if run.fails is not None]
    always = set.intersection(*({one.request for one in run.elsewhere} for run in ran)) if ran else set()
    counted = []
    for run in runs:
        left = [one for one in run.elsewhere if one.request not in always]
        update: dict[str, object] = {"elsewhere": left}
        if left and run.fails is False:
            update |= {"fails": True, "result": FAILS_ELSEWHERE}
        counted.append(run.model_copy(update=update))
    return counted


def run_words(kind: VerdictKind, outcome: Outcome) -> str:
    """What a life with a fix showed."""
    if not is_failure(outcome):
        return "no failure"
    if kind is VerdictKind.REPRODUCED:
        return "fails the same"
    if kind is VerdictKind.SAME_ANSWER:
        return "fails, cause not seen"
    return "fails otherwise"


def noise_between(one: FixRun, other: FixRun) -> list[str]:
    """What differs between two runs of the same code, in words."""
    found = []
    for name in ("result", "status", "exception"):
        if getattr(one, name) != getattr(other, name):
            found.append(f"{name}: {getattr(one, name)} and {getattr(other, name)}")
    if one.effects is not None and other.effects is not None:
        if one.effects.calls != other.effects.calls:
            found.append(f"calls: {one.effects.calls} and {other.effects.calls}")
        files = sorted(set(one.effects.files or ()) ^ set(other.effects.files or ()))
        if files:
            more = f", and {len(files) - _FILES} more" if len(files) > _FILES else ""
            found.append(f"files: {', '.join(files[:_FILES])}{more}")
    return found


# -- neighbours ------------------------------------------------------------------------------------------------------------


def neighbours_of(
    settings: Settings,
    store: Store,
    incident: Incident,
    occurrence: Occurrence,
    case: ReplayInput,
    around: int,
) -> Neighbours | None:
    """Up to so many recorded requests on each side of the failing one, after the commit; None where there is none.

    Raises:
        RecordingError: the recording cannot be read.
    """
    subject = case.plan.subject
    if subject is None or occurrence.before is None or case.manifest.cursor is None:
        return None
    paths = LifePaths(settings.capsules / incident.service / incident.life)
    began = Exchanges(Recording(paths.recording)).begun_in(case.manifest.cursor.sequence, _LAST)
    known = [one for one in began if _is_answered(one) or one.number == subject]
    place = next((at for at, one in enumerate(known) if one.number == subject), None)
    if place is None:
        return None
    near = [*known[max(0, place - around) : place], *known[place + 1 : place + 1 + around]]
    if not near:
        return None
    last = near[-1]
    is_later = last.started_seq > known[place].started_seq
    whole = case_of_request(settings, store, occurrence.before, last.number) if is_later else case
    recorded = dict(whole.earlier)
    if is_later:
        recorded[last.number] = whole.recorded
    asked = {one.number: f"{one.method} {one.target}" for one in near if one.number in recorded}
    return Neighbours(whole, asked, recorded) if asked else None


def _is_answered(exchange: Exchange) -> bool:
    return exchange.sent_seq is not None and not exchange.request_cut and exchange.status is not None


def run_neighbours(
    context: TrialContext, neighbours: Neighbours, change: Change | None
) -> list[NeighbourDifference]:
    """Which of the neighbours end otherwise than recorded.

    Raises:
        ReliveError: it could not be restored, or changed.
    """
    heard: dict[int, Outcome] = {}
    options = replace(context.options, hears=heard.update)
    life = live_once(context.settings, context.store, neighbours.case, options, change)
    if life.run.outcome is None:
        raise ReliveError("the neighbouring requests could not be sent", cause=life.run.verdict.difference)
    ended = heard | dict(life.others)
    if neighbours.case.plan.subject is not None:
        ended[neighbours.case.plan.subject] = life.run.outcome
    found = []
    for number, asked in sorted(neighbours.asked.items()):
        outcome, recorded = ended.get(number), neighbours.recorded[number]
        if outcome is not None and (difference := _difference(recorded, outcome, context.options)):
            cured = is_failure(recorded) and not is_failure(outcome)
            found.append(NeighbourDifference(request=number, asked=asked, difference=difference, cured=cured))
    return found


def changed_by(
    found: Sequence[NeighbourDifference], usual: Sequence[NeighbourDifference]
) -> list[NeighbourDifference]:
    """What a fix changes: what ends otherwise than recorded with it, and does not so without."""
    known = {one.request for one in usual}
    return [one for one in found if one.request not in known][:_TOLD_MOST]


def _difference(recorded: Outcome, outcome: Outcome, options: ReplayOptions) -> str | None:
    try:
        return same_answer(recorded, outcome, options.ignore)
    except RecordingError:
        return None
