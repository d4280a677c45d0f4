"""Kept states: a commit and a request as a test that runs again, with the code that is here now."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.target import host_facts
from relive.config import Settings
from relive.errors import (
    KeptInvalid,
    PermissionMissing,
    RecordingError,
    RefUnknown,
    RestoreFailed,
    UsageError,
)
from relive.incidents import evidence
from relive.incidents.incidents import Incidents
from relive.incidents.report.masking import Mask
from relive.incidents.report.outcomes import masked_run
from relive.intervention.related import related_requests
from relive.intervention.schedules import Schedule, given_schedule, parse_delay
from relive.intervention.varying import varied_case, varying
from relive.kernel import procfs
from relive.kernel.atomic_write import Durability, replace_file
from relive.model.commit import CommitId
from relive.model.expectation import parse_expectation
from relive.model.incident import Incident
from relive.model.outcome import Run
from relive.model.token_scope import Scope
from relive.model.trial import TAG_PREFIX, Swapped
from relive.operations.grammars import each_written_as, written_as
from relive.operations.named import look_up_incident
from relive.operations.operation import Effect, Faces, Operation, Params, Result, Route, Tool
from relive.operations.policies import MissPolicies, SentPace, check_ignore, parse_stub_policy
from relive.operations.progress import Progress
from relive.operations.remotes import PullParams, PushParams, pull, push
from relive.operations.targets import tend
from relive.remotes.case_transfer import incident_id
from relive.remotes.compatibility import refuse_unfit
from relive.replay.plan import Pace
from relive.replay.replay_input import ReplayInput, case_of_request
from relive.replay.replay_options import ReplayOptions
from relive.store import Store
from relive.trial.kept import (
    SUFFIX,
    CodePlace,
    KeptState,
    code_places,
    parse_kept,
    read_kept,
    written_kept,
)
from relive.trial.lives import TrialLife, live_once, with_files_here

__all__ = ["KEEP", "KEPT", "KeepParams", "Kept", "KeptParams", "KeptRun", "KeptRuns", "keep", "run_kept"]

_ON_THE_HOST = frozenset({Scope.HOST})


class KeepParams(Params):
    """What is kept, and what is expected of it."""

    incident: int = Field(ge=1, description="Number of the incident")
    expect: Annotated[str, written_as(parse_expectation)] = Field(
        max_length=1000,
        description='What the answer has to be: status == 200, or status == 201 and json["id"] > 0',
    )
    output: Path | None = Field(
        default=None, description="The directory to write the file to; without, it is only told"
    )
    name: str | None = Field(
        default=None,
        pattern=r"^[0-9A-Za-z_][0-9A-Za-z._-]{0,99}$",
        description="Of the file, the test and the tag; default: SERVICE-NUMBER",
    )
    first: bool = Field(default=False, description="The first time the incident was seen, not the latest")
    commit: str | None = Field(
        default=None,
        max_length=400,
        description="From this earlier commit, with the requests since; default: the last that is early enough",
    )
    code: list[str] = Field(
        default=[],
        max_length=20,
        description="AT=HERE: a directory of the service's source files, and where they are here; default: the same, "
        "where the file is written into their repository",
    )
    remote: str | None = Field(
        default=None, description="Push it there, too, from where it is fetched when it is not here"
    )
    on_miss: MissPolicies = Field(default=[])
    pace: SentPace = Pace.RECORDED
    times: int = Field(default=1, ge=1, le=1000, description="How often it is tried each time it is run")
    seed: int | None = Field(
        default=None,
        ge=1,
        le=(1 << 53) - 1,
        description="Under the schedule of this seed, as `relive replay` has it",
    )
    delay: Annotated[list[str], each_written_as(parse_delay)] = Field(
        default=[], max_length=1000, description="PLACE=MS: with this delay, as `relive replay` has it"
    )
    force: bool = Field(default=False, description="Replace a file and move a tag of that name")


class Kept(Result):
    """What was kept.

    Attributes:
        file: that was written; None: none was to be. content: its text.
        tag: that keeps the commit from being dropped.
        fails: why the committed code does not meet the expectation, which is what a test is for; None: it meets it.
    """

    name: str
    commit: CommitId
    request: int
    tag: str
    file: str | None
    content: str
    fails: str | None
    code: list[str]


class KeptParams(Params):
    """Which kept state is run: exactly one of ``file`` and ``content``."""

    file: Path | None = Field(default=None, description="The file that `relive keep` wrote")
    content: str | None = Field(default=None, max_length=1 << 20, description="The text of such a file")
    directory: Path | None = Field(
        default=None, description="The directory that its `here` are relative to; default: the file's"
    )
    as_committed: bool = Field(
        default=False, description="With the code that was committed, not with the files that are here"
    )
    pull: bool = Field(default=True, description="Fetch the commit from its remote if it is not here")


class KeptRun(Result):
    """One life of it: why the answer was not as expected, None where it was; what of the code here reached it."""

    reason: str | None
    run: Run
    swapped: Swapped | None


class KeptRuns(Result):
    """What running a kept state showed; ``met``: it was as expected each time. ``pulled``: its commit had to be fetched."""

    name: str
    commit: CommitId
    request: int
    expect: str | None
    met: bool
    pulled: bool
    runs: list[KeptRun]


def keep(settings: Settings, params: KeepParams, progress: Progress) -> Kept:
    """Keep the state before a failure and its request as a test, after one look at whether the test fails now.

    Raises:
        UsageError: the expectation is none, the file or the tag is there, or no request failed.
        IncidentUnknown, RefUnknown, RecordingError: there is nothing that could be replayed.
        RestoreFailed, HostIncapable: it cannot be run here, so nothing was kept.
    """
    expectation = parse_expectation(params.expect)
    tend(settings, progress)
    store, mask = Store(settings.store), Mask.configured(settings)
    incident = Incidents(settings.incidents).get(params.incident)
    name = params.name or f"{incident.service}-{incident.number}"
    commit, request = _moment(incident, first=params.first)
    if params.commit is not None:
        commit = store.resolve(params.commit)
    case = case_of_request(settings, store, commit, request)
    code = _code(settings, incident, params)
    state = KeptState(
        name=name,
        service=incident.service,
        was=mask.sentence(incident.sighting.summary)[:200],
        asked=_asked(case, mask),
        commit=commit,
        request=request,
        incident=incident_id(store, incident),
        expect=expectation.text,
        code=code,
        remote=params.remote,
        times=params.times,
        pace=params.pace,
        on_miss=params.on_miss,
        seed=params.seed,
        delay=params.delay,
    )
    target = params.output / f"{name}{SUFFIX}" if params.output is not None else None
    if target is not None and target.exists() and not params.force:
        raise UsageError(f"{target} exists", remedy="give another --name, or --force to replace it")
    tag = TAG_PREFIX + name
    store.check_tag(tag, commit, force=params.force or store.tags().get(tag) == commit)
    progress.status(f"Running request {request} from commit {commit[:10]} with the code that was committed.")
    (first,) = _lives(settings, store, case, state.model_copy(update={"times": 1, "code": []}), [], mask)
    if params.remote is not None:
        push(settings, PushParams(remote=params.remote, ref=commit), progress)
    content = written_kept(state)
    if target is not None:
        _write(target, content)
    store.tag(tag, commit, force=True)
    return Kept(
        name=name,
        commit=commit,
        request=request,
        tag=tag,
        file=str(target) if target is not None else None,
        content=content,
        fails=first.reason,
        code=[f"{one.at}={one.here}" for one in code],
    )


KEEP = Operation(
    "keep",
    KeepParams,
    Kept,
    keep,
    Faces(
        cli=("keep",),
        rest=Route(
            "POST",
            "/kept",
            _ON_THE_HOST,
            "Keep the state before a failure and its request as a test",
            is_task=True,
        ),
        mcp=Tool(
            Effect.ADDS,
            "Keep the state before a failure and its request as a test that runs again; its commit is tagged.",
            is_for_host=True,
        ),
    ),
    look_up=look_up_incident,
)


def run_kept(settings: Settings, params: KeptParams, progress: Progress) -> KeptRuns:
    """Run a kept state: restore it, give it the code that is here, send the request, and compare with what is expected.

    Raises:
        UsageError: neither or both of file and content are given. KeptInvalid: it is none.
        HostIncapable: this host cannot restore it: no root, no CRIU, another machine.
        RefUnknown, ExchangeError: its commit is not here and could not be fetched. RecordingError: nor its request.
        RestoreFailed: the commit did not come to life, or could not be given the code.
    """
    state, beside = _wanted(params)
    _refuse_host(settings)
    tend(settings, progress)
    store, mask = Store(settings.store), Mask.configured(settings)
    commit, was_pulled = _commit(settings, store, state, progress, may_pull=params.pull)
    refuse_unfit(store.facts(commit).host, host_facts(CriuTools(settings.tools_path).version))
    request = state.request if state.request is not None else _request_of(settings, commit)
    case = case_of_request(settings, store, commit, request)
    places = [] if params.as_committed else code_places(state, beside)
    with progress.progress("running", state.times) as done:
        runs = []
        for one in _lives(settings, store, case, state, places, mask):
            runs.append(one)
            done(len(runs))
    return KeptRuns(
        name=state.name,
        commit=commit,
        request=request,
        expect=state.expect,
        met=all(one.reason is None for one in runs),
        pulled=was_pulled,
        runs=runs,
    )


KEPT = Operation(
    "kept",
    KeptParams,
    KeptRuns,
    run_kept,
    Faces(
        cli=("kept",),
        rest=Route(
            "POST", "/kept/runs", _ON_THE_HOST, "Run a kept state with the code that is here", is_task=True
        ),
        mcp=Tool(
            Effect.ADDS,
            "Run a kept state: restore it, give it the code that is here, send its request, judge by its expectation.",
            is_for_host=True,
        ),
    ),
)


def _lives(
    settings: Settings,
    store: Store,
    case: ReplayInput,
    state: KeptState,
    places: Sequence[tuple[str, Path]],
    mask: Mask,
) -> list[KeptRun]:
    """So often as it is to be tried; raises RestoreFailed where it did not come to life."""
    options = ReplayOptions(
        ignore=tuple(check_ignore(text) for text in state.ignore),
        on_miss=dict(parse_stub_policy(text) for text in state.on_miss),
        limit=state.limit,
        pace=state.pace,
        sees=lambda root: mask.learn_environment(procfs.environment_of(root)),
    )
    schedule = _schedule(state, related_requests(case))
    if schedule is not None:
        case, _ = varied_case(case, schedule)
        options = replace(options, changes=varying(schedule))
    expectation = parse_expectation(state.expect) if state.expect is not None else None
    change = with_files_here(places) if places else None
    found = []
    for number in range(1, state.times + 1):
        life = live_once(settings, store, case, options, change, number)
        outcome = life.run.outcome
        if outcome is None:
            raise RestoreFailed(
                f"commit {case.commit[:10]} did not come to life",
                cause=life.run.verdict.difference,
                remedy=next(iter(life.run.verdict.notes), "`relive doctor` says what works on this host"),
            )
        reason = expectation.why_not(outcome) if expectation is not None else None
        found.append(_kept_run(life, reason, mask))
    return found


def _schedule(state: KeptState, near: frozenset[str]) -> Schedule | None:
    try:
        return given_schedule(state.seed, state.delay, near)
    except UsageError as error:
        raise KeptInvalid(
            f"{state.name} is no kept state", cause=f"{error.message}: {error.cause}"
        ) from error


def _write(target: Path, content: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, content.encode(), durability=Durability.NAME)
    except OSError as error:
        raise UsageError(
            f"{target} cannot be written", cause=str(error), remedy="name another with -o"
        ) from error


def _kept_run(life: TrialLife, reason: str | None, mask: Mask) -> KeptRun:
    run = mask.model(masked_run(life.run, mask))
    return KeptRun(
        reason=mask.sentence(reason) if reason is not None else None,
        run=run,
        swapped=mask.model(life.swapped) if life.swapped is not None else None,
    )


def _moment(incident: Incident, *, first: bool) -> tuple[CommitId, int]:
    """The commit before one time that it was seen, and the request that failed then."""
    occurrence = incident.occurrence(first=first)
    if occurrence.sighting.request is None:
        raise UsageError(
            f"incident {incident.number} cannot be kept",
            cause="it did not fail in a request that the proxy recorded, and a kept state is asked one",
            remedy=f"`relive replay {incident.number}` tries it by hand",
        )
    if occurrence.before is None:
        raise RefUnknown(
            f"incident {incident.number} has no commit before it",
            cause="the service failed before the first commit, or ran with --every never",
            remedy="run it with --every request or a shorter time, and wait for the failure to come back",
        )
    return occurrence.before, occurrence.sighting.request


def _asked(case: ReplayInput, mask: Mask) -> str:
    exchange = next(step.exchange for step in case.plan.steps if step.exchange.number == case.plan.subject)
    return f"{exchange.method} {mask.target(exchange.target)}"[:200]


def _code(settings: Settings, incident: Incident, params: KeepParams) -> list[CodePlace]:
    """As asked for; else the service's repository, where the file will lie in it."""
    beside = (params.output or Path()).resolve()
    if params.code:
        found = []
        for text in params.code:
            at, equals, here = text.partition("=")
            if not at.startswith("/") or (equals and not here):
                raise UsageError(
                    f"--code cannot be {text!r}",
                    remedy="write AT=HERE, such as /srv/app=., with the service's directory first",
                )
            found.append(
                CodePlace(at=os.path.normpath(at), here=os.path.relpath(Path(here or at).resolve(), beside))
            )
        return found
    top = _top(settings, incident)
    if top is None or not beside.is_relative_to(top):
        return []
    return [CodePlace(at=str(top), here=os.path.relpath(top, beside))]


def _top(settings: Settings, incident: Incident) -> Path | None:
    """Top of the repository in which the service's code lies, as it was recorded; else where it ran."""
    with contextlib.suppress(RecordingError):
        package = evidence.package_of(settings.incidents, incident.number)
        if package is not None and package.revision is not None:
            return Path(package.revision.root).resolve()
        launch = evidence.launch_of(settings.incidents, incident.number)
        directory = package.cwd if package is not None and package.cwd else launch.directory if launch else ""
        tops = [one for one in (Path(directory), *Path(directory).parents) if (one / ".git").exists()]
        if directory:
            return (tops[0] if tops else Path(directory)).resolve()
    return None


def _wanted(params: KeptParams) -> tuple[KeptState, Path]:
    """The state, and the directory that its places are relative to."""
    if (params.file is None) == (params.content is None):
        raise UsageError("which kept state?", remedy="name the file that `relive keep` wrote")
    if params.file is not None:
        return read_kept(params.file), (params.directory or params.file.resolve().parent)
    assert params.content is not None
    return parse_kept(params.content, "the text"), params.directory or Path.cwd()


def _refuse_host(settings: Settings) -> None:
    if os.geteuid() != 0:
        raise PermissionMissing(
            "a kept state cannot be restored", cause=f"this is uid {os.geteuid()}", remedy="run it as root"
        )
    CriuTools(settings.tools_path).check()


def _commit(
    settings: Settings, store: Store, state: KeptState, progress: Progress, *, may_pull: bool
) -> tuple[CommitId, bool]:
    """Its commit, and whether it was fetched."""
    try:
        return store.resolve(state.commit), False
    except RefUnknown as error:
        if state.remote is None:
            raise RefUnknown(
                f"the commit of {state.name} is not here",
                cause=error.message,
                remedy="`relive pull REMOTE COMMIT` fetches it; `relive keep --remote` writes where from into the file",
            ) from error
        if not may_pull:
            raise
    tag = TAG_PREFIX + state.name
    pulled = pull(settings, PullParams(remote=state.remote, ref=state.commit, tag=tag, force=False), progress)
    return pulled.id, True


def _request_of(settings: Settings, commit: CommitId) -> int:
    """The request of the one incident that has the commit before it."""
    found = {
        occurrence.sighting.request
        for incident in Incidents(settings.incidents).list()
        for occurrence in (incident.occurrence(first=True), incident.occurrence(first=False))
        if occurrence.before == commit and occurrence.sighting.request is not None
    }
    if len(found) != 1:
        raise KeptInvalid(
            f"which request commit {commit[:10]} shall be asked is not said",
            cause=f"{len(found)} requests failed after it" if found else "no request failed right after it",
            remedy="name it: `request: NUMBER` in the file; `relive show` lists them",
        )
    return int(next(iter(found)))
