"""Replays: does it happen again from the commit before?"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from relive.config import Settings
from relive.errors import RecordingError, UsageError
from relive.incidents.incidents import Incidents
from relive.incidents.report.masking import Mask
from relive.incidents.report.outcomes import masked_replay, masked_run
from relive.incidents.report.proxied import masked_exchange
from relive.intervention.related import related_requests
from relive.intervention.schedules import given_schedule, parse_delay
from relive.intervention.varying import varied_case, varying
from relive.kernel import procfs
from relive.model.branch import Clock
from relive.model.commit import CommitId
from relive.model.incident import Occurrence
from relive.model.outcome import Replay, Run, VerdictKind
from relive.model.text import is_number
from relive.model.value import Value
from relive.operations.changing_state import (
    MODULE_TEXT,
    SET_TEXT,
    WRITE_TEXT,
    change_words,
    changed_as_asked,
    parse_file,
)
from relive.operations.grammars import each_written_as, written_as
from relive.operations.operation import Effect, Faces, Operation, Params, Tool
from relive.operations.policies import MissPolicies, RequestLimit, SentPace, check_ignore, parse_stub_policy
from relive.operations.progress import Progress
from relive.operations.resuming import Unfinished, digest
from relive.operations.runs import marked_run, save_replay
from relive.operations.targets import tend
from relive.replay.answers import Calls
from relive.replay.plan import Pace
from relive.replay.replay import replay as run_replay
from relive.replay.replay_input import ReplayInput, case_of_incident, case_of_request
from relive.replay.replay_options import ReplayOptions
from relive.replay.stubs.speed import parse_speed
from relive.store import Store

__all__ = [
    "REPLAY",
    "ReplayParams",
    "ReplayedMoment",
    "case_of_moment",
    "look_up_moment",
    "replay",
    "replay_status",
]


class ReplayedMoment(Params):
    """What is replayed."""

    what: str = Field(description="An incident's number, or a commit (then with request)")
    request: int | None = Field(
        default=None, ge=0, le=(1 << 53) - 1, description="Replay this recorded request from the commit"
    )
    first: bool = Field(default=False, description="The first time the incident was seen, not the latest")


class ReplayParams(ReplayedMoment):
    """And how."""

    times: int = Field(default=1, ge=1, le=10_000, description="How often, each in a branch of its own")
    jobs: int | None = Field(
        default=None, ge=1, le=1000, description="Branches at one time; default: the number of CPUs"
    )
    pace: SentPace = Pace.RECORDED
    clock: Clock = Field(
        default=Clock.RECORDED, description="The wall clock in the branch: as recorded, or now"
    )
    ignore: Annotated[list[str], each_written_as(check_ignore)] = Field(
        default=[],
        description="What may differ: header:NAME, body:PATH such as body:$.id, event:KIND, event:KIND:PATH; "
        "in what the service asks also query:NAME, and paths such as $.parameters[0]",
    )
    calls: Calls = Field(
        default=Calls.RECORDED,
        description="Who answers the service's calls: the recording, or the sealed network",
    )
    on_miss: MissPolicies = Field(default=[])
    speed: Annotated[str, written_as(parse_speed)] = Field(
        default="1",
        description="Divides recorded times, of requests and of answers to the service's calls: 10, max",
    )
    limit: RequestLimit = None
    lazy: bool = Field(default=False, description="Begin before the memory of the branches is all there")
    anew: bool = Field(
        default=False, description="Restore a branch for each run; put none back in place (docs/rollback.md)"
    )
    seed: int | None = Field(
        default=None,
        ge=1,
        le=(1 << 53) - 1,
        description="Under the schedule of this seed, which a search for one (--chaos) has told",
    )
    delay: Annotated[list[str], each_written_as(parse_delay)] = Field(
        default=[],
        max_length=1000,
        description="PLACE=MS: with this delay, which a search for a schedule (--chaos) has told; with seed for its delays",
    )
    set: list[str] = Field(default=[], max_length=100, description=SET_TEXT)
    write: Annotated[list[str], each_written_as(parse_file)] = Field(
        default=[], max_length=100, description=WRITE_TEXT
    )
    module: str | None = Field(default=None, max_length=400, description=MODULE_TEXT)
    measure: bool = Field(
        default=False,
        description="Count system calls (strace), Python's allocations by line, and what the processes take; for "
        "`relive diff run/A run/B`",
    )


def replay(settings: Settings, params: ReplayParams, progress: Progress) -> Replay:
    """Restore the commit before a failure, send the recorded requests again, and judge; secrets are masked in what is told.

    The one that carries ``settings.mark`` already is given as it is; runs under that mark of one that was broken off count.

    Raises:
        UsageError: what is asked for cannot be meant. ChangeUnfit: a value cannot be set.
        IncidentUnknown, RefUnknown, RecordingError, StoreError: there is nothing that could be replayed.
    """
    kept = marked_run(settings, Replay)
    if kept is not None:
        return kept
    mask = Mask(settings.secret_patterns, settings.secret_names)
    options = ReplayOptions(
        times=params.times,
        jobs=params.jobs or os.cpu_count() or 1,
        pace=params.pace,
        clock=params.clock,
        ignore=tuple(check_ignore(text) for text in params.ignore),
        limit=params.limit,
        lazily=params.lazy,
        anew=params.anew,
        calls=params.calls,
        on_miss=dict(parse_stub_policy(text) for text in params.on_miss),
        speed=parse_speed(params.speed),
        sees=lambda root: mask.learn_environment(procfs.environment_of(root)),
        changes=changed_as_asked(params.set, params.write, params.module, progress),
    )
    if params.measure:
        from relive.trial.measuring import BranchMeter, require_strace  # few replays need it

        require_strace()
        options = replace(options, measures=BranchMeter)
    tend(settings, progress)
    store = Store(settings.store)
    unfinished = Unfinished(settings, Run)
    moment = _moment(settings, store, params, unfinished.about)
    case = _case(settings, store, moment)
    schedule = given_schedule(params.seed, params.delay, related_requests(case))
    if schedule is not None:
        case, _ = varied_case(case, schedule)
        options = replace(options, changes=varying(schedule, options.changes))
    moment = moment.model_copy(update={"recorded": digest(case.recorded)})
    had = unfinished.begin(moment.model_dump_json())
    if case.exchange is not None:
        with contextlib.suppress(RecordingError):
            masked_exchange(case.exchange, mask)  # for what it learns of it

    def save(run: Run) -> None:
        unfinished.save(mask.model(masked_run(run, mask)))

    with progress.progress("replaying", params.times) as done:
        replaying = run_replay(settings, store, case, options, done, had=had, ended=save)
        result = asyncio.run(replaying)
    changed = change_words(params.set, params.write)
    changed += [f"schedule: {schedule.words}"] if schedule is not None else []
    result = result.model_copy(update={"changed": changed})
    result = mask.model(masked_replay(result, mask))
    number = save_replay(settings, result, unfinished.began_wall_ns, unfinished.seconds)
    progress.status(f"Saved as run {number}.")
    return result


def look_up_moment(settings: Settings, params: ReplayedMoment) -> None:
    """Raises what a replay would where there is no such incident or commit."""
    number = params.what.removeprefix("incident/")
    if params.request is not None:
        Store(settings.store).resolve(params.what)
    elif is_number(number):
        Incidents(settings.incidents).get(int(number))


REPLAY = Operation(
    "replay",
    ReplayParams,
    Replay,
    replay,
    Faces(
        cli=("replay",),
        rest=("POST /runs",),
        mcp=Tool(
            Effect.ADDS,
            "Restore the commit before a failure, send the recorded requests again, and judge: reproduced, not, diverged "
            "at the first difference, or same-answer: `unseen` says what was missing or why the cause was not seen.",
        ),
    ),
    look_up=look_up_moment,
)


class _Moment(Value):
    """What all runs of a replay are of. The params alone does not say it: incidents are seen again, and refs move.

    Attributes:
        params: its digest.
        incident, occurrence: which time it was seen; None where a request is replayed.
        commit, request: from which commit; None where an incident is replayed.
        recorded: digest of the outcome that runs are compared with; None before that was read.
    """

    params: str
    incident: int | None = None
    occurrence: Occurrence | None = None
    commit: CommitId | None = None
    request: int | None = None
    recorded: str | None = None


def _moment(settings: Settings, store: Store, params: ReplayedMoment, earlier: str | None) -> _Moment:
    """What is replayed: as an earlier attempt found it, of which runs are kept, or else as it is now."""
    if earlier is not None:
        found = _Moment.model_validate_json(earlier)
        if found.params == digest(params):
            return found
    number = params.what.removeprefix("incident/")
    if is_number(number) and params.request is None:
        incident = Incidents(settings.incidents).get(int(number))
        occurrence = incident.occurrence(first=params.first)
        return _Moment(params=digest(params), incident=incident.number, occurrence=occurrence)
    if params.request is None:
        raise UsageError(
            "which request?", remedy="name an incident, or write `relive replay REF --request N`"
        )
    return _Moment(params=digest(params), commit=store.resolve(params.what), request=params.request)


def case_of_moment(settings: Settings, store: Store, params: ReplayedMoment) -> ReplayInput:
    """What is replayed, as it is now; raises UsageError, IncidentUnknown, RefUnknown, RecordingError."""
    return _case(settings, store, _moment(settings, store, params, None))


def _case(settings: Settings, store: Store, moment: _Moment) -> ReplayInput:
    if moment.incident is not None and moment.occurrence is not None:
        incident = Incidents(settings.incidents).get(moment.incident)
        return case_of_incident(settings, store, incident, moment.occurrence)
    assert moment.commit is not None and moment.request is not None
    return case_of_request(settings, store, moment.commit, moment.request)


def replay_status(result: Replay) -> int:
    """What a whole replay means: 0 reproduced in every run, 1 in none, 6 none was restored, 10 all between these."""
    kinds = {run.verdict.kind for run in result.runs}
    if kinds == {VerdictKind.REPRODUCED}:
        return 0
    if kinds == {VerdictKind.FAILED_TO_RESTORE}:
        return 6
    return 1 if kinds <= {VerdictKind.NOT_REPRODUCED, VerdictKind.FAILED_TO_RESTORE} else 10
