"""Who wrote a value: the line and the request that last set it, found by replaying from commits ever further back."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from relive.config import Settings
from relive.errors import PlaceUnfit, RestoreFailed
from relive.incidents.incidents import Incidents
from relive.incidents.report.masking import Mask, mask_for
from relive.inspection.masking import masked_text
from relive.intervention.searching import earlier_cases
from relive.intervention.telling import request_words
from relive.model.commit import CommitId
from relive.model.incident import Incident
from relive.model.stepping import Place, ValueWrite, Written
from relive.model.token_scope import Scope
from relive.operations.interventions import commits_before
from relive.operations.logpoints import EXPRESSION_MOST, ReplayFollowed, replay_options_of
from relive.operations.named import look_up_incident
from relive.operations.operation import Effect, Faces, Operation, Route, Tool
from relive.operations.progress import Progress
from relive.operations.targets import tend
from relive.replay.replay_input import ReplayInput, case_of_incident
from relive.stepping.following import PlaceRecord, WatchedExpression, WriteRecord
from relive.stepping.replaying import FollowedReplay, Requests, replay_followed, result_words, trouble_of
from relive.store import Store

__all__ = ["WHO_WROTE", "WhoWroteParams", "who_wrote"]

_WRITES_MOST = 20_000
_ELSEWHERE = (
    "the replay's failing request was in another worker than in the recording, and the value is that worker's"
)
_OF_ONE = "the value of one process only: it is not known which of several worked for the failing request"


class WhoWroteParams(ReplayFollowed):
    """Which value is asked about."""

    expression: str = Field(
        min_length=1,
        max_length=EXPRESSION_MOST,
        description='A value of the service, such as app.cache["rates"], as `relive eval` takes it',
    )
    module: str | None = Field(
        default=None, max_length=400, description="Use the names of this module, not the program's"
    )
    last: int = Field(default=20, ge=1, le=1000, description="So many of the last writes are told")
    most: int = Field(
        default=16, ge=1, le=1000, description="At most so many replays, each from a commit further back"
    )


def who_wrote(settings: Settings, params: WhoWroteParams, progress: Progress) -> Written:
    """Replay a failure while a value is watched; secrets are masked in what is told.

    Raises:
        PlaceUnfit: the expression is none, names nothing that the process has, or the service is not in Python.
        IncidentUnknown, RefUnknown, RecordingError, StoreError, UsageError: there is nothing that could be replayed.
        RestoreFailed: a branch could not be followed.
    """
    tend(settings, progress)
    store = Store(settings.store)
    incident = Incidents(settings.incidents).get(params.incident)
    case = case_of_incident(settings, store, incident, incident.occurrence(first=params.first))
    mask = mask_for(settings, incident.service, incident.life)
    tried: list[CommitId] = []
    found: Written | None = None
    with progress.progress("replaying", params.most) as done:
        for one in _cases(settings, store, incident, case, params):
            try:
                replayed = _replayed(settings, store, incident, one, params, mask)
            except (PlaceUnfit, RestoreFailed):
                if found is None:
                    raise
                break  # further back the process had not yet what is asked about
            tried.append(one.commit)
            if found is None or replayed.fails is not None:  # one that could not be run says nothing
                found = replayed
            done(len(tried))
            if found.writes or len(tried) >= params.most:
                break
    assert found is not None
    found = found.model_copy(update={"tried": tried})
    return mask.model(found.model_copy(update={"sentence": _sentence(found)}))


WHO_WROTE = Operation(
    "who-wrote",
    WhoWroteParams,
    Written,
    who_wrote,
    Faces(
        cli=("who-wrote",),
        rest=Route(
            "POST",
            "/value-writes",
            frozenset({Scope.OPERATE, Scope.MEMORY}),
            "The line and the request that last set a value before a failure",
            is_task=True,
        ),
        mcp=Tool(
            Effect.READS,
            "The line of the service's code, and the request, that last set a value before a failure (`expression`, such as "
            'app.cache["rates"]), found by replays in sealed branches from commits ever further back. Only for Python.',
        ),
    ),
    look_up=look_up_incident,
)


def _cases(
    settings: Settings, store: Store, incident: Incident, case: ReplayInput, params: WhoWroteParams
) -> Iterator[ReplayInput]:
    """From the commit before the failure, then from 1, 2, 4, ... further back, and from the first."""
    occurrence = incident.occurrence(first=params.first)

    def case_from(commit: str) -> ReplayInput:
        earlier = occurrence.model_copy(update={"before": CommitId(commit)})
        return case_of_incident(settings, store, incident, earlier)

    yield case
    commits = [one.id for one in commits_before(store, incident, store.get(case.commit))][1:]
    if commits:
        yield from earlier_cases(commits, case_from)


def _replayed(
    settings: Settings,
    store: Store,
    incident: Incident,
    case: ReplayInput,
    params: WhoWroteParams,
    mask: Mask,
) -> Written:
    watch = WatchedExpression(params.expression, params.module)
    options = replay_options_of(params, mask)
    with replay_followed(settings, store, case, options, [], watch, most=_WRITES_MOST) as followed:
        return _written(incident, case, params, followed, mask)


def _written(
    incident: Incident, case: ReplayInput, params: WhoWroteParams, followed: FollowedReplay, mask: Mask
) -> Written:
    fails, result = result_words(followed.run)
    records: list[WriteRecord] = []
    first, trouble = "", trouble_of(followed)
    requests = followed.requests
    if followed.following is not None:
        records, is_cut = followed.following.writes()
        known = followed.following.first
        process = requests.process if requests.process in known else next(iter(known), None)
        if process is not None:  # each worker has a value of its own
            records = [one for one in records if one.pid == process]
            first = masked_text(mask, params.expression, known[process])
        if is_cut:
            trouble = f"it was written more than {_WRITES_MOST} times, of which only the first were kept"
        elif requests.is_elsewhere:
            trouble = trouble or _ELSEWHERE
        elif len(known) > 1 and requests.process is None:
            trouble = trouble or _OF_ONE
    writes = [_write(one, params.expression, requests, mask) for one in records]
    return Written(
        incident=incident.number,
        service=incident.service,
        failing=request_words(case),
        expression=params.expression,
        commit=case.commit,
        tried=[],
        first=first,
        last=writes[-1].after if writes else first,
        writes=writes[-params.last :],
        writes_left_out=max(0, len(writes) - params.last),
        fails=fails,
        result=result,
        trouble=trouble,
        has_requests=bool(requests.exchanges),
        sentence="",
    )


def _write(record: WriteRecord, expression: str, requests: Requests, mask: Mask) -> ValueWrite:
    def place(seen: PlaceRecord) -> Place:
        return Place(
            file=seen.file,
            line=seen.line,
            function=seen.function,
            source=seen.source,
            request=requests.number(record.pid, seen.request),
            about=requests.words(record.pid, seen.request),
            position=seen.position,
        )

    return ValueWrite(
        place=place(record.place) if record.place is not None else None,
        before=masked_text(mask, expression, record.before),
        after=masked_text(mask, expression, record.after),
        others=[place(one) for one in record.others],
    )


def _sentence(found: Written) -> str:
    if found.fails is None:
        return f"Cannot tell who wrote {found.expression}: the replay was {found.result}."
    earliest = found.tried[-1][:10]
    if not found.writes:
        return (
            f"Nothing wrote {found.expression} since commit {earliest}, the earliest that was replayed. "
            f"There it was as at the end: {found.first}."
        )
    write = found.writes[-1]
    change = f"{write.before} -> {write.after}"
    if write.place is None:
        return (
            f"{found.expression} was last set ({change}) outside of the lines of the service's own code: by a library, or by code "
            "that is not Python."
        )
    place = write.place
    about = place.about or (
        "no request that is known" if found.has_requests else "a request that is not known"
    )
    where = f"{place.file}:{place.line} in {place.function}"
    return f"{found.expression} was last set ({change}) by {where}, in {about}."
