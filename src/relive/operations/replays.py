"""Replays: does it happen again from the commit before?"""

from __future__ import annotations

import asyncio
import os
import time

from pydantic import Field

from relive.config import Settings
from relive.errors import UsageError
from relive.model.branch import Clock
from relive.model.outcome import Replay, VerdictKind
from relive.model.text import is_number
from relive.operations.operation import Operation, Wish
from relive.operations.policies import parse_policy
from relive.operations.progress import Progress
from relive.operations.runs import keep_replay, marked_run
from relive.operations.targets import tend
from relive.replay.answers import Calls
from relive.replay.case import Case, case_of_incident, case_of_request
from relive.replay.plan import Pace
from relive.replay.replay import Wishes
from relive.replay.replay import replay as run_replay
from relive.replay.stubs.speed import parse_speed
from relive.store import Store
from relive.store.incidents import Incidents

__all__ = ["REPLAY", "ReplayWish", "replay", "replay_status"]


class ReplayWish(Wish):
    """What is replayed, and how."""

    what: str = Field(description="An incident's number, or a commit (then with request)")
    request: int | None = Field(
        default=None, ge=0, le=(1 << 53) - 1, description="Replay this recorded request from the commit"
    )
    first: bool = Field(default=False, description="The first time the incident was seen, not the latest")
    times: int = Field(default=1, ge=1, le=10_000, description="How often, each in a branch of its own")
    jobs: int | None = Field(
        default=None, ge=1, le=1000, description="Branches at one time; default: the number of CPUs"
    )
    pace: Pace = Field(
        default=Pace.RECORDED, description="Send again at the recorded pace, or as fast as order allows"
    )
    clock: Clock = Field(
        default=Clock.RECORDED, description="The wall clock in the branch: as recorded, or now"
    )
    ignore: list[str] = Field(
        default=[],
        description="What may differ: header:NAME, body:PATH such as body:$.id, event:KIND, event:KIND:PATH; "
        "in what the service asks also query:NAME, and paths such as $.parameters[0]",
    )
    calls: Calls = Field(
        default=Calls.RECORDED,
        description="Who answers the service's calls: the recording, or the sealed network",
    )
    on_miss: list[str] = Field(
        default=[],
        description="A call without a recorded answer: fail or pass, or KIND=pass such as http-call=pass",
    )
    speed: str = Field(
        default="1",
        description="Divides recorded times, of requests and of answers to the service's calls: 10, max",
    )
    limit: float | None = Field(default=None, ge=0.1, le=86_400, description="Seconds for the judged request")
    lazy: bool = Field(default=False, description="Begin before the memory of the branches is all there")


def replay(settings: Settings, wish: ReplayWish, progress: Progress) -> Replay:
    """Restore the commit before a failure, send the recorded requests again, and judge.

    The run that carries ``settings.mark`` already is given as it is.

    Raises:
        UsageError: what is asked for cannot be meant.
        IncidentUnknown, RefUnknown, RecordingError, StoreError: there is nothing that could be replayed.
    """
    kept = marked_run(settings, Replay)
    if kept is not None:
        return kept
    wishes = Wishes(
        times=wish.times,
        jobs=wish.jobs or os.cpu_count() or 1,
        pace=wish.pace,
        clock=wish.clock,
        ignore=tuple(wish.ignore),
        limit=wish.limit,
        lazily=wish.lazy,
        calls=wish.calls,
        on_miss=dict(parse_policy(text, has_stubs=True) for text in wish.on_miss),
        speed=parse_speed(wish.speed),
    )
    tend(settings, progress)
    store = Store(settings.store)
    case = _case(settings, store, wish)
    began_wall_ns, began = time.time_ns(), time.monotonic()
    with progress.progress("replaying", wish.times) as done:
        result = asyncio.run(run_replay(settings, store, case, wishes, done))
    keep_replay(settings, result, began_wall_ns, time.monotonic() - began)
    return result


REPLAY = Operation("replay", ReplayWish, Replay, replay)


def _case(settings: Settings, store: Store, wish: ReplayWish) -> Case:
    number = wish.what.removeprefix("incident/")
    if is_number(number) and wish.request is None:
        incident = Incidents(settings.incidents).get(int(number))
        return case_of_incident(settings, store, incident, first=wish.first)
    if wish.request is None:
        raise UsageError(
            "which request?", remedy="name an incident, or write `relive replay REF --request N`"
        )
    return case_of_request(settings, store, store.resolve(wish.what), wish.request)


def replay_status(result: Replay) -> int:
    """What a whole replay means: 0 reproduced in every run, 1 in none, 10 diverged or in some only, 6 none was restored."""
    kinds = {run.verdict.kind for run in result.runs}
    if kinds == {VerdictKind.REPRODUCED}:
        return 0
    if kinds == {VerdictKind.FAILED_TO_RESTORE}:
        return 6
    return 1 if kinds <= {VerdictKind.NOT_REPRODUCED, VerdictKind.FAILED_TO_RESTORE} else 10
