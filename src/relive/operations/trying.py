"""Trials: fixes on the very state and request that failed, beside the unchanged code."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from relive.bisection.failing_again import judged_verdict, with_the_request_alone
from relive.bisection.judgement import Judgement
from relive.config import Settings
from relive.errors import PatchUnfit, UsageError
from relive.incidents.incidents import Incidents
from relive.incidents.report.masking import Mask
from relive.incidents.report.outcomes import masked_run
from relive.intervention.judging import fails_as_recorded
from relive.kernel import procfs
from relive.model.commit import TargetKind
from relive.model.outcome import Outcome, Run, VerdictKind
from relive.model.reproduction import Attempt, ReproductionKind
from relive.model.token_scope import Scope
from relive.model.trial import FixRun, FixTried, Swapped, Trial
from relive.operations.branch_memory import branches_with_memory
from relive.operations.changing_state import (
    MODULE_TEXT,
    SET_TEXT,
    WRITE_TEXT,
    change_words,
    changed_as_asked,
    parse_file,
)
from relive.operations.earlier_commit import EARLIER_COMMIT_TEXT, occurrence_from
from relive.operations.grammars import each_written_as
from relive.operations.named import look_up_incident
from relive.operations.operation import Effect, Faces, Operation, Params, Route, Tool
from relive.operations.policies import (
    IgnoredDifferences,
    MissPolicies,
    RequestLimit,
    SentPace,
    check_ignore,
    parse_stub_policy,
)
from relive.operations.progress import Progress
from relive.operations.reproductions import ReproduceParams, reproduce
from relive.operations.targets import tend
from relive.operations.trial_parts import FixParts, run_parts
from relive.operations.trial_words import too_late_words
from relive.replay.fresh.environment import parse_variable
from relive.replay.plan import Pace
from relive.replay.replay_input import ReplayInput, case_of_incident
from relive.replay.replay_options import ReplayOptions
from relive.replay.verdict import is_failure
from relive.sandbox.branch import Branch
from relive.store import Store
from relive.trial.effects import effects_of
from relive.trial.findability import PRIOR
from relive.trial.lives import Change, live_once
from relive.trial.patches import PATCH_MOST, paths_of_patch
from relive.trial.trying import (
    Neighbours,
    TrialContext,
    changed_by,
    counted_elsewhere,
    neighbours_of,
    noise_between,
    patching,
    run_words,
    with_odds,
)

__all__ = [
    "NONE",
    "TRY",
    "FreshTrial",
    "TryParams",
    "fails_by_its_state",
    "has_worked",
    "refuse_container",
    "try_fixes",
    "try_fresh_process",
]

NONE = "none"  # as a fix: the unchanged code, which is run in any case
_BASELINE = 2  # runs of the unchanged code, at least
_FRESH_WORDS = {
    ReproductionKind.NOT_REPRODUCED: "no failure",
    ReproductionKind.REPRODUCED: "fails the same",
    ReproductionKind.SAME_ANSWER: "fails, cause not seen",
    ReproductionKind.DIVERGED: "fails otherwise",
}


class TryParams(Params):
    """Which fixes are tried, on what."""

    incident: int = Field(ge=1, description="Number of the incident")
    fix: list[str] = Field(
        default=[],
        max_length=20,
        description="A patch as `git diff` makes it (on the command line its file), or none for the unchanged code",
    )
    root: str | None = Field(
        default=None,
        pattern=r"^/",
        description="The service's directory that patches are relative to; default: it is looked for",
    )
    env: Annotated[list[str], each_written_as(parse_variable)] = Field(
        default=[], max_length=1000, description="NAME=VALUE: start the service afresh with it"
    )
    tree: list[str] = Field(
        default=[],
        max_length=20,
        description="A revision of git, or . for the files as they are: start the service afresh with it",
    )
    times: int = Field(default=1, ge=1, le=1000, description="How often each fix is run")
    jobs: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="Branches at one time; default: one for each CPU and one more, as they mostly wait",
    )
    around: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="Also up to so many recorded requests before and after the failing one: what does a fix break?",
    )
    first: bool = Field(default=False, description="The first time the incident was seen, not the latest")
    commit: str | None = Field(default=None, max_length=400, description=EARLIER_COMMIT_TEXT)
    pace: SentPace = Pace.RECORDED
    ignore: IgnoredDifferences = Field(default=[])
    on_miss: MissPolicies = Field(default=[])
    limit: RequestLimit = None
    set: list[str] = Field(
        default=[], max_length=100, description=f"A fix of the state beside those of the code: {SET_TEXT}"
    )
    write: Annotated[list[str], each_written_as(parse_file)] = Field(
        default=[], max_length=100, description=f"With set, or alone: {WRITE_TEXT}"
    )
    module: str | None = Field(default=None, max_length=400, description=MODULE_TEXT)


def try_fixes(settings: Settings, params: TryParams, progress: Progress) -> Trial:
    """Run the unchanged code and each fix in branches of the state before a failure; secrets are masked in what is told.

    A patch that does not apply is refused in its row; of params with one fix only, it is an error.

    Raises:
        UsageError: what is asked for cannot be meant. PatchUnfit: a patch is none, or the only one does not apply.
        IncidentUnknown, RefUnknown, RecordingError, StoreError: there is nothing that could be replayed.
        RestoreFailed: a branch could not be given other code.
    """
    patches = _patches(params.fix)
    tend(settings, progress)
    store, mask = Store(settings.store), Mask.configured(settings)
    incident = Incidents(settings.incidents).get(params.incident)
    occurrence = occurrence_from(store, incident, incident.occurrence(first=params.first), params.commit)
    case = case_of_incident(settings, store, incident, occurrence)
    options = ReplayOptions(
        ignore=tuple(check_ignore(text) for text in params.ignore),
        on_miss=dict(parse_stub_policy(text) for text in params.on_miss),
        limit=params.limit,
        pace=params.pace,
        sees=lambda root: mask.learn_environment(procfs.environment_of(root)),
    )
    if params.env or params.tree:
        refuse_container(case)
    near = (
        neighbours_of(settings, store, incident, occurrence, case, params.around) if params.around else None
    )
    context = TrialContext(settings, store, case, options, lambda run: mask.model(masked_run(run, mask)))
    fixes = _in_branches(context, params, patches, near, mask, progress)
    unchanged = fixes[0]
    fresh = FreshTrial(params.incident, params.times, params.limit)
    fixes += try_fresh_process(settings, fresh, params.env, params.tree, progress)
    came_too_late = any(map(_failed_the_same, fixes)) and _fails_alone(context, progress)
    return mask.model(
        Trial(
            incident=incident.number,
            service=incident.service,
            commit=case.commit,
            request=case.plan.subject,
            recorded=FixRun(
                fails=is_failure(case.recorded),
                result=run_words(VerdictKind.REPRODUCED, case.recorded),
                status=case.recorded.status,
                exception=case.recorded.stack.exception if case.recorded.stack is not None else None,
                seconds=case.recorded.seconds,
                effects=effects_of(case.recorded, None),
            ),
            noise=noise_between(*unchanged.runs[:2]),
            failed=_failed(unchanged),
            ran=_ran(unchanged),
            prior=PRIOR,
            fixes=fixes,
            around=params.around,
            hint=too_late_words(case.commit, incident.number) if came_too_late else None,
        )
    )


def _in_branches(
    context: TrialContext,
    params: TryParams,
    patches: Sequence[tuple[str, str]],
    near: Neighbours | None,
    mask: Mask,
    progress: Progress,
) -> list[FixTried]:
    """The unchanged code first."""
    changes: list[tuple[str, str, Change | None]] = [(NONE, NONE, None)]
    changes += [(name, "patch", patching(patch, params.root)) for name, patch in patches]
    changes += _of_state(params, progress)
    fixes = [(change, params.times if change else max(_BASELINE, params.times)) for _, _, change in changes]
    wanted = sum(times for _, times in fixes) + (len(fixes) + 1 if near is not None else 0)
    jobs = branches_with_memory(context.case.manifest, params.jobs or (os.cpu_count() or 1) + 1)
    with progress.progress("running", wanted) as done:
        parts = run_parts(context, fixes, near, jobs, mask.model, done)
    is_only = len(changes) == 2 and not params.env and not params.tree
    if is_only and (refusal := parts[1].refusal) is not None:
        raise refusal
    unchanged = counted_elsewhere(parts[0].runs, parts[0].runs)
    return [
        _tried(name, kind, one, parts[0], unchanged, near)
        for (name, kind, _), one in zip(changes, parts, strict=True)
    ]


def _failed_the_same(tried: FixTried) -> bool:
    return tried.kind == "patch" and bool(tried.runs) and all(map(fails_as_recorded, tried.runs))


def _fails_alone(context: TrialContext, progress: Progress) -> bool:
    """Whether the unchanged code fails the same without the requests that came between the commit and the failing one."""
    if context.case.exchange is None:
        return False
    progress.status("Sending the failing request alone: does it need those before it?")
    alone = with_the_request_alone(context.case)
    with contextlib.closing(Store(context.settings.store)) as store:
        run = live_once(context.settings, store, alone, context.options).run
    return fails_by_its_state(run, alone.recorded)


def fails_by_its_state(run: Run, recorded: Outcome) -> bool:
    """Whether a run of the failing request alone shows that the commit's state makes it fail.

    Only where the cause was seen again, and it asked others for nothing new and for nothing without an answer: else it may have
    failed for want of what it was told, or of what the requests before it had made.
    """
    if run.outcome is None or run.outcome.misses or run.verdict.missing:
        return False
    judged = judged_verdict(run.verdict, run.outcome, recorded)
    return run.verdict.kind is VerdictKind.REPRODUCED and judged.judgement is Judgement.BAD


def _tried(
    name: str, kind: str, parts: FixParts, usual: FixParts, unchanged: list[FixRun], near: Neighbours | None
) -> FixTried:
    """One row; ``unchanged``: the runs of the unchanged code, ``usual``: all of its parts."""
    if (refusal := parts.refusal) is not None:
        why = f"{refusal.message}: {refusal.cause}" if refusal.cause else refusal.message
        return FixTried(name=name, kind=kind, refused=why)
    tried = FixTried(
        name=name,
        kind=kind,
        runs=counted_elsewhere(parts.runs, parts.runs if kind == NONE else usual.runs),
        swapped=parts.swapped,
        neighbours=len(near.asked) if near is not None else 0,
        breaks=changed_by(parts.differing, usual.differing if kind != NONE else []),
    )
    if kind == NONE:
        return tried
    failed = sum(run.fails is True for run in unchanged)
    return with_odds(tried, failed=failed, ran=sum(run.fails is not None for run in unchanged))


def _failed(tried: FixTried) -> int:
    return sum(run.fails is True for run in tried.runs)


def _ran(tried: FixTried) -> int:
    return sum(run.fails is not None for run in tried.runs)


TRY = Operation(
    "try",
    TryParams,
    Trial,
    try_fixes,
    Faces(
        cli=("try",),
        rest=Route(
            "POST",
            "/trials",
            frozenset({Scope.OPERATE, Scope.MEMORY}),
            "Try fixes on the very state and request that failed, beside the unchanged code",
            is_task=True,
        ),
        mcp=Tool(
            Effect.ADDS,
            "Try patches on the very state and request that failed, each in a sealed branch beside the unchanged code; "
            "`around` tells what they break.",
        ),
    ),
    look_up=look_up_incident,
)


def _patches(fixes: Sequence[str]) -> list[tuple[str, str]]:
    """(name, patch) of each that is one; raises PatchUnfit for what is none."""
    found: list[tuple[str, str]] = []
    for text in fixes:
        if text.strip() == NONE:
            continue
        if len(text) > PATCH_MOST:
            raise UsageError("a patch is too long", cause=f"it has over {PATCH_MOST} characters")
        number = len(found) + 1
        try:
            paths = paths_of_patch(text)
        except PatchUnfit as error:
            raise PatchUnfit(
                f"patch {number} cannot be applied",
                cause=f"{error.message}: {error.cause}",
                remedy=error.remedy,
            ) from error
        found.append((f"patch {number} ({', '.join(path.rpartition('/')[2] for path in paths[:3])})", text))
    return found


def _of_state(params: TryParams, progress: Progress) -> list[tuple[str, str, Change | None]]:
    """The other state that is tried, as all others are: (name, kind, change) of none or one."""
    words = change_words(params.set, params.write)
    if not words:
        return []
    make = changed_as_asked(params.set, params.write, params.module, progress)

    def change(branch: Branch) -> Swapped:
        make(branch)
        return Swapped()

    return [("; ".join(words), "state", change)]


@dataclass(frozen=True, slots=True)
class FreshTrial:
    """Which failure is tried in processes that are started anew, how often, and the seconds that its request has."""

    incident: int
    times: int
    limit: float | None


def refuse_container(case: ReplayInput) -> None:
    """Raises UsageError where the service cannot be started afresh here: its files are those of its container."""
    if case.manifest.target.kind is TargetKind.CONTAINER:
        raise UsageError(
            f"{case.service} runs in a container, and is not started afresh outside of it",
            cause="its interpreter, its libraries and its paths are those of the container's image, not of this host",
            remedy="--fix PATCH and --write PATH=FILE change its files, --set its state, in a branch of the container; another "
            "environment or image is a container of its own, which the recorded request can be sent to",
        )


def try_fresh_process(
    settings: Settings, params: FreshTrial, env: Sequence[str], trees: Sequence[str], progress: Progress
) -> list[FixTried]:
    """Processes that are started anew: as recorded, for comparison, then with another environment, then with other trees."""
    if not env and not trees:
        return []
    variants: list[tuple[str, dict[str, object]]] = [("fresh start", {})]
    if env:
        variants.append(
            (f"fresh start, {', '.join(one.partition('=')[0] for one in env)}", {"env": list(env)})
        )
    variants += [(f"fresh start, tree {one}", {"env": list(env), "checkout": one}) for one in trees]
    found: list[FixTried] = []
    failed = ran = 0
    for name, options in variants:
        asked = {"incident": str(params.incident), "times": params.times, **options}
        if params.limit is not None:
            asked["limit"] = params.limit
        # Without the mark of a task: it stands for all of this, and each of these would be taken for the one before.
        reproduction = reproduce(
            settings.model_copy(update={"mark": None}), ReproduceParams.model_validate(asked), progress
        )
        tried = FixTried(name=name, kind="fresh", runs=[_fresh_run(one) for one in reproduction.attempts])
        if not found:
            failed = sum(run.fails is True for run in tried.runs)
            ran = sum(run.fails is not None for run in tried.runs)
        else:
            tried = with_odds(tried, failed=failed, ran=ran)
        found.append(tried)
    return found


def _fresh_run(attempt: Attempt) -> FixRun:
    if attempt.kind is ReproductionKind.COULD_NOT_START:
        return FixRun(fails=None, result="not started", difference=attempt.difference)
    return FixRun(
        fails=attempt.kind is not ReproductionKind.NOT_REPRODUCED,
        result=_FRESH_WORDS[attempt.kind],
        status=attempt.status,
        exception=f"{attempt.raised.type}: {attempt.raised.text}" if attempt.raised is not None else None,
        seconds=None,
        difference=attempt.difference or next(iter(attempt.unseen), None),
        missing=attempt.missing,
        played=attempt.played,
    )


def has_worked(result: Trial) -> bool:
    """Some fix ran, and did not fail."""
    tried = [one for one in result.fixes if one.kind != NONE and one.name != "fresh start"]
    return any(one.runs and all(run.fails is False for run in one.runs) for one in tried)
