"""Changing one thing of a failure's recording, by hand: does it still fail?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

from pydantic import Field

from relive.config import Settings
from relive.errors import RecordingError, UsageError
from relive.incidents.incidents import Incidents
from relive.incidents.report.masking import Mask, mask_for
from relive.incidents.report.outcomes import masked_run
from relive.intervention.changing import change_case
from relive.intervention.grammar import Change, Reordered, Without, WithoutMessage, parse_answer, parse_pair
from relive.intervention.judging import effect_of, probability_left
from relive.intervention.living import Bounds, Lab
from relive.intervention.steps import steps_of
from relive.intervention.telling import changeables, request_words
from relive.kernel import procfs
from relive.model.incident import Incident, Occurrence
from relive.model.intervention import ChangeDescription, Effect, Experiment, Tested
from relive.model.life_paths import LifePaths
from relive.model.token_scope import Scope
from relive.operations.earlier_commit import EARLIER_COMMIT_TEXT, occurrence_from
from relive.operations.grammars import each_written_as
from relive.operations.named import look_up_incident
from relive.operations.operation import Effect as ToolEffect
from relive.operations.operation import Faces, Operation, Params, Route, Tool
from relive.operations.policies import (
    IgnoredDifferences,
    MissPolicies,
    RequestLimit,
    SentPace,
    check_ignore,
    parse_stub_policy,
)
from relive.operations.progress import Progress
from relive.operations.targets import tend
from relive.operations.trying import FreshTrial, refuse_container, try_fresh_process
from relive.recording.exchanges import Exchanges
from relive.recording.reader import Recording
from relive.replay.fresh.environment import parse_variable
from relive.replay.plan import Pace
from relive.replay.replay_input import ReplayInput, case_of_incident
from relive.replay.replay_options import ReplayOptions
from relive.store import Store
from relive.store.index import StoredCommit

__all__ = ["WHAT_IF", "ReplayWithChanges", "WhatIfParams", "commits_before", "lab_of", "what_if"]

_MOST_LISTED = 500
_NO_BOUND = 1e9  # [s] one experiment has as many replays as are asked for


class ReplayWithChanges(Params):
    """How replays are made that are compared with each other."""

    incident: int = Field(ge=1, description="Number of the incident")
    times: int = Field(
        default=3, ge=1, le=1000, description="How often it is replayed unchanged, and with the change"
    )
    first: bool = Field(default=False, description="The first time the incident was seen, not the latest")
    ignore: IgnoredDifferences = Field(default=[])
    on_miss: MissPolicies = Field(default=[])
    limit: RequestLimit = None


class WhatIfParams(ReplayWithChanges):
    """What is changed; without any change it is listed what can be."""

    answer: Annotated[list[str], each_written_as(parse_answer)] = Field(
        default=[],
        max_length=100,
        description="CALL=VALUE: another answer or reading: http:1=503, 'query:1$[0].price=3', redis:1=null, http:1=delay:2s, "
        "http:1=fail:reset, clock:1=+1h",
    )
    without: list[int] = Field(default=[], max_length=1000, description="Leave this earlier request out")
    without_message: list[int] = Field(
        default=[], max_length=1000, description="Leave this message out, which is not HTTP/1"
    )
    swap: Annotated[list[str], each_written_as(partial(parse_pair, "swap"))] = Field(
        default=[], max_length=100, description="A,B: send these two requests in each other's place"
    )
    apart: Annotated[list[str], each_written_as(partial(parse_pair, "apart"))] = Field(
        default=[], max_length=100, description="A,B: the later one waits for the end of the other"
    )
    together: Annotated[list[str], each_written_as(partial(parse_pair, "together"))] = Field(
        default=[], max_length=100, description="A,B: send both at once"
    )
    env: Annotated[list[str], each_written_as(parse_variable)] = Field(
        default=[], max_length=1000, description="NAME=VALUE: in a fresh start, which has not the state"
    )
    commit: str | None = Field(default=None, max_length=400, description=EARLIER_COMMIT_TEXT)
    pace: SentPace = Pace.RECORDED


def what_if(settings: Settings, params: WhatIfParams, progress: Progress) -> Experiment:
    """Replay a failure unchanged and with changes of its recording; secrets are masked in what is told.

    Raises:
        ChangeUnfit: a change cannot be read, or cannot be made.
        UsageError: what is asked for cannot be meant.
        IncidentUnknown, RefUnknown, RecordingError, StoreError: there is nothing that could be replayed.
    """
    changes = _changes(params)
    tend(settings, progress)
    store = Store(settings.store)
    incident = Incidents(settings.incidents).get(params.incident)
    mask = mask_for(settings, incident.service, incident.life)
    case = _case(settings, store, incident, incident.occurrence(first=params.first), params.commit, changes)
    steps = steps_of(case)
    result = Experiment(
        incident=incident.number, service=incident.service, failing=request_words(case), commit=case.commit
    )
    if not changes and not params.env:
        listed = changeables(case, steps)
        return mask.model(
            result.model_copy(update={"changeable": listed[:_MOST_LISTED], "changeable_count": len(listed)})
        )
    if changes:
        changed = change_case(case, changes, steps)
        runs = 2 * params.times
        with progress.progress("replaying", runs) as done:
            lab = lab_of(settings, store, params, params.pace, mask, Bounds(runs, _NO_BOUND), done)
            control = lab.unchanged(case, params.times)
            tested = lab.test(case, changed, changes, control, params.times, steps)
        result = result.model_copy(update={"tested": tested})
    if params.env:
        result = result.model_copy(update={"afresh": _afresh(settings, params, case, progress)})
    return mask.model(result)


WHAT_IF = Operation(
    "what-if",
    WhatIfParams,
    Experiment,
    what_if,
    Faces(
        cli=("what-if",),
        rest=Route(
            "POST",
            "/experiments",
            frozenset({Scope.OPERATE, Scope.MEMORY}),
            "Change something of a failure's recording and replay: does it still fail?",
            is_task=True,
        ),
        mcp=Tool(
            ToolEffect.READS,
            "Change something of a failure's recording (an answer of a dependency, a row, a reading of a clock, a request left out "
            "or in another order) and replay it beside the unchanged one, in sealed branches. Without a change it lists what "
            "can be changed.",
        ),
    ),
    look_up=look_up_incident,
)


def lab_of(
    settings: Settings,
    store: Store,
    params: ReplayWithChanges,
    pace: Pace,
    mask: Mask,
    bounds: Bounds,
    done: Callable[[int], None],
) -> Lab:
    """Where replays of given params are made."""
    options = ReplayOptions(
        ignore=tuple(check_ignore(text) for text in params.ignore),
        on_miss=dict(parse_stub_policy(text) for text in params.on_miss),
        limit=params.limit,
        pace=pace,
        sees=lambda root: mask.learn_environment(procfs.environment_of(root)),
    )
    return Lab(settings, store, options, bounds, lambda run: mask.model(masked_run(run, mask)), done)


def commits_before(store: Store, incident: Incident, before: StoredCommit) -> list[StoredCommit]:
    """Commits of that start of the service up to the one before the failure, the latest first."""
    return [
        one
        for one in store.log(incident.service)
        if one.life == incident.life and (one.taken_wall_ns, one.id) <= (before.taken_wall_ns, before.id)
    ]


def _changes(params: WhatIfParams) -> list[Change]:
    found: list[Change] = [parse_answer(text) for text in params.answer]
    found += [Without(number) for number in dict.fromkeys(params.without)]
    found += [WithoutMessage(number) for number in dict.fromkeys(params.without_message)]
    orders: list[Reordered] = [parse_pair("swap", text) for text in params.swap]
    orders += [parse_pair("apart", text) for text in params.apart]
    orders += [parse_pair("together", text) for text in params.together]
    return [*found, *orders]


def _case(
    settings: Settings,
    store: Store,
    incident: Incident,
    occurrence: Occurrence,
    ref: str | None,
    changes: Sequence[Change],
) -> ReplayInput:
    """From the commit that is named, or else the last one before the failure and before all requests that are changed."""
    if ref is not None:
        occurrence = occurrence_from(store, incident, occurrence, ref)
    elif occurrence.before is not None:
        commit = _early_enough(settings, store, incident, store.get(occurrence.before), changes)
        occurrence = occurrence.model_copy(update={"before": commit.id})
    return case_of_incident(settings, store, incident, occurrence)


def _early_enough(
    settings: Settings, store: Store, incident: Incident, before: StoredCommit, changes: Sequence[Change]
) -> StoredCommit:
    numbers = [one.request for one in changes if isinstance(one, Without)]
    numbers += [number for one in changes if isinstance(one, Reordered) for number in (one.first, one.second)]
    begun = {one.message: f"message {one.message}" for one in changes if isinstance(one, WithoutMessage)}
    if not (numbers or begun) or before.sequence is None:
        return before
    try:
        exchanges = Exchanges(
            Recording(LifePaths(settings.capsules / incident.service / incident.life).recording)
        )
        begun |= {exchanges.by_number(number).started_seq: f"request {number}" for number in numbers}
    except RecordingError:
        return before  # whose plan says that there is no such request
    early = (
        one
        for one in commits_before(store, incident, before)
        if one.sequence is not None and one.sequence < min(begun)
    )
    found = next(early, None)
    if found is None:
        raise UsageError(
            f"no commit was taken before {begun[min(begun)]}",
            cause="to leave it out, or to send it at another time, the state before it is needed",
            remedy=f"`relive log {incident.service}` lists the commits",
        )
    return found


def _afresh(settings: Settings, params: WhatIfParams, case: ReplayInput, progress: Progress) -> Tested:
    """Another environment, in processes that are started anew; the control is a fresh start with the recorded one."""
    refuse_container(case)
    fresh = FreshTrial(incident=params.incident, times=params.times, limit=params.limit)
    control, changed = try_fresh_process(settings, fresh, params.env, [], progress)
    effect, why = effect_of(control.runs, changed.runs, [])
    if effect is Effect.CANNOT_TELL and not any(run.fails for run in control.runs):
        why = "a fresh start does not fail with the recorded environment either: the failure is of the state"
    result = [
        ChangeDescription(
            option=f"--env {one.partition('=')[0]}=...",
            about=f"environment variable {one.partition('=')[0]}",
            recorded="as recorded",
            instead="as given",
        )
        for one in params.env
    ]
    return Tested(
        changes=result,
        commit=case.commit,
        effect=effect,
        why=why,
        control=control.runs,
        runs=changed.runs,
        still_there=probability_left(control.runs, changed.runs),
    )
