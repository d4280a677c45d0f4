"""Logpoints after the fact: values of expressions at a line, in replays of a request that failed. The service is not touched."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from relive.config import Settings
from relive.errors import UsageError
from relive.incidents.incidents import Incidents
from relive.incidents.report.masking import Mask, mask_for
from relive.inspection.masking import masked_text
from relive.intervention.telling import request_words
from relive.kernel import procfs
from relive.model.stepping import Logged, LoggedHit, LoggedRun, LoggedValue
from relive.model.token_scope import Scope
from relive.operations.grammars import written_as
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
from relive.operations.targets import tend
from relive.replay.plan import Pace
from relive.replay.replay_input import ReplayInput, case_of_incident
from relive.replay.replay_options import ReplayOptions
from relive.stepping.following import HitRecord, Point
from relive.stepping.replaying import FollowedReplay, Requests, replay_followed, result_words, trouble_of
from relive.store import Store

__all__ = [
    "EXPRESSION_MOST",
    "LOGPOINT",
    "LogpointParams",
    "ReplayFollowed",
    "logpoint",
    "parse_place",
    "replay_options_of",
]

_PLACE = re.compile(r"(?P<file>.*[^/]):(?P<line>[1-9]\d{0,8})", re.DOTALL)
EXPRESSION_MOST = 10_000  # characters


def parse_place(text: str) -> tuple[str, int]:
    """(file, line) of ``app.py:88``; raises UsageError."""
    found = _PLACE.fullmatch(text)
    if found is None or "\0" in text:
        raise UsageError(
            f"{text!r} is no line of a file", cause="it is FILE:LINE", remedy="write it as app.py:88"
        )
    return found["file"], int(found["line"])


class ReplayFollowed(Params):
    """How a failure is replayed that is followed line by line."""

    incident: int = Field(ge=1, description="Number of the incident")
    first: bool = Field(default=False, description="The first time the incident was seen, not the latest")
    pace: SentPace = Pace.FAST
    on_miss: MissPolicies = Field(default=[])
    ignore: IgnoredDifferences = Field(default=[])
    limit: RequestLimit = None


class LogpointParams(ReplayFollowed):
    """Which values are wanted, and where."""

    at: Annotated[str, written_as(parse_place)] = Field(
        max_length=4096,
        description="FILE:LINE of the service, such as app.py:88; values are those before the line",
    )
    expression: list[str] = Field(
        min_length=1, max_length=100, description="What is evaluated there, such as order.total"
    )
    when: str | None = Field(
        default=None,
        min_length=1,
        max_length=EXPRESSION_MOST,
        description="Only where this expression is true",
    )
    all_requests: bool = Field(
        default=False,
        description="Also in the requests since the commit, which are sent before the failing one",
    )
    times: int = Field(default=1, ge=1, le=1000, description="How often it is replayed")
    most: int = Field(default=1000, ge=1, le=20_000, description="So many times of each replay are kept")


def replay_options_of(params: ReplayFollowed, mask: Mask) -> ReplayOptions:
    """How it is replayed; the mask learns the secrets of each branch."""
    return ReplayOptions(
        ignore=tuple(check_ignore(text) for text in params.ignore),
        on_miss=dict(parse_stub_policy(text) for text in params.on_miss),
        limit=params.limit,
        pace=params.pace,
        sees=lambda root: mask.learn_environment(procfs.environment_of(root)),
    )


def logpoint(settings: Settings, params: LogpointParams, progress: Progress) -> Logged:
    """Replay a failure with expressions at a line; secrets are masked in what is told.

    Raises:
        PlaceUnfit: there is no such line, an expression is none, or the service is not in Python.
        IncidentUnknown, RefUnknown, RecordingError, StoreError, UsageError: there is nothing that could be replayed.
        RestoreFailed: a branch could not be followed.
    """
    file, line = parse_place(params.at)
    tend(settings, progress)
    store = Store(settings.store)
    incident = Incidents(settings.incidents).get(params.incident)
    case = case_of_incident(settings, store, incident, incident.occurrence(first=params.first))
    mask = mask_for(settings, incident.service, incident.life)
    point = Point(file, line, tuple(params.expression), params.when)
    runs: list[LoggedRun] = []
    place, has_requests = None, False
    with progress.progress("replaying", params.times) as done:
        for number in range(1, params.times + 1):
            with replay_followed(
                settings, store, case, replay_options_of(params, mask), [point], most=params.most
            ) as followed:
                runs.append(_logged_run(number, case, params, followed, mask))
                has_requests = has_requests or bool(followed.requests.exchanges)
                if followed.following is not None and place is None:
                    place = followed.following.points[0]
            done(number)
    return mask.model(
        Logged(
            incident=incident.number,
            service=incident.service,
            failing=request_words(case),
            commit=case.commit,
            file=place.file if place is not None else file,
            line=line,
            source=place.source if place is not None else "",
            expressions=params.expression,
            when=params.when,
            has_requests=has_requests,
            runs=runs,
        )
    )


LOGPOINT = Operation(
    "logpoint",
    LogpointParams,
    Logged,
    logpoint,
    Faces(
        cli=("logpoint",),
        # As for the debugger: an expression does whatever it is told, as the service, within the seal.
        rest=Route(
            "POST",
            "/logpoints",
            frozenset({Scope.OPERATE, Scope.MEMORY}),
            "Values of expressions at a line, in replays of a request that failed",
            is_task=True,
        ),
        mcp=Tool(
            Effect.READS,
            "Values of expressions at a line of the service's code (FILE:LINE), in replays of the very request and state that "
            "failed, in sealed branches: a log line after the fact, without a new deployment. Only for Python.",
        ),
    ),
    look_up=look_up_incident,
)


def _logged_run(
    number: int, case: ReplayInput, params: LogpointParams, followed: FollowedReplay, mask: Mask
) -> LoggedRun:
    fails, result = result_words(followed.run)
    following, requests = followed.following, followed.requests
    if following is None:
        return LoggedRun(number=number, fails=fails, result=result, hits=[])
    records, is_cut = following.hits()
    subject = case.exchange.number if case.exchange is not None else None
    if not params.all_requests and requests.exchanges and subject is not None:
        records = [one for one in records if requests.number(one.pid, one.request) == subject]
    return LoggedRun(
        number=number,
        fails=fails,
        result=result,
        hits=[_hit(one, requests, mask) for one in records],
        is_cut=is_cut,
        trouble=trouble_of(followed),
    )


def _hit(record: HitRecord, requests: Requests, mask: Mask) -> LoggedHit:
    return LoggedHit(
        request=requests.number(record.pid, record.request),
        position=record.position,
        function=record.function,
        values=[
            LoggedValue(
                expression=one.expression,
                type=one.type,
                text=masked_text(mask, one.expression or "", one.text),
                raised=one.raised,
            )
            for one in record.values
        ],
    )
