"""The commits that are bisected, and how one of them is probed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from relive.bisection.judgement import Judged, Judgement
from relive.config import Settings
from relive.errors import RecordingError, RefUnknown, RestoreFailed, StoreError, UsageError
from relive.model.expectation import parse_expectation
from relive.model.incident import Incident
from relive.operations.bisect_params import BisectParams
from relive.operations.branches import inside_environment
from relive.store import Store
from relive.store.index import StoredCommit

if TYPE_CHECKING:
    from relive.bisection.branches import CommandProbe, HttpProbe
    from relive.bisection.expression import ExpressionProbe
    from relive.bisection.failing_again import FailureProbe

    CommitProbe = CommandProbe | HttpProbe | ExpressionProbe | FailureProbe

__all__ = ["asking", "commits_between", "probe_of"]

_LIMIT = 10.0  # [s] for a probe
_REQUEST_LINE = re.compile(r"(?:([A-Z]{1,20}) +)?(/[\x21-\x7e]*)")


def commits_between(store: Store, params: BisectParams, incident: Incident | None) -> list[StoredCommit]:
    """The commits from good to bad, in the order in which they were taken; at least two."""
    before = _before(store, incident) if incident is not None else None
    last = store.get(store.resolve(params.bad)) if params.bad is not None else before
    assert last is not None, "it was checked that bad is given, or an incident"
    of_target = [one for one in store.log(last.name)[::-1] if not one.is_of_branch]
    if incident is not None:
        of_target = [one for one in of_target if one.life == incident.life]
    if not of_target or (incident is not None and last.life != incident.life):
        raise _other_service(last, incident.service if incident is not None else last.name)
    if before is not None and (last.taken_wall_ns, last.id) > (before.taken_wall_ns, before.id):
        raise UsageError(
            f"commit {last.id[:10]} (bad) was taken after the failing request of incident {params.replay} had begun",
            cause="from there it cannot be sent again",
            remedy=f"leave it out: then it is {before.id[:10]}, the last one before the incident",
        )
    first = store.get(store.resolve(params.good)) if params.good is not None else of_target[0]
    if first.name != last.name:
        raise _other_service(first, last.name)
    if first.id == last.id:
        raise UsageError(
            f"commit {first.id[:10]} is both good and bad",
            cause="it is the only one before the incident"
            if incident is not None and params.good is None
            else "what is looked for lies between two commits",
            remedy="name an earlier one as good (`relive log`), or commit more often: --every request, or a shorter time",
        )
    if (first.taken_wall_ns, first.id) >= (last.taken_wall_ns, last.id):
        raise UsageError(
            f"commit {first.id[:10]} (good) was not taken before {last.id[:10]} (bad)",
            cause="what is looked for is where something begins",
            remedy="to find where it ended, turn the predicate round and swap the two",
        )
    return [
        one
        for one in of_target
        if (first.taken_wall_ns, first.id) <= (one.taken_wall_ns, one.id) <= (last.taken_wall_ns, last.id)
    ]


def _before(store: Store, incident: Incident) -> StoredCommit:
    before = incident.occurrence(first=False).before
    if before is None:
        raise UsageError(
            f"incident {incident.number} has no commit before it",
            remedy="run the service with --every request or a shorter time, and wait for the failure to come back",
        )
    return store.get(before)


def _other_service(one: StoredCommit, name: str) -> UsageError:
    return UsageError(
        f"commit {one.id[:10]} is of {one.name!r}, or of another start of it than is asked for",
        cause=f"only commits of {name!r} that follow each other have a moment between them",
        remedy=f"`relive log {name}` lists them",
    )


def asking(probe: CommitProbe, line: Sequence[StoredCommit]) -> Callable[[int], Judged]:
    """What asks a commit of the line, by its number there.

    One that cannot be brought back is a probe that failed. One that the service's own retention has dropped since is skipped.
    """

    def ask(at: int) -> Judged:
        try:
            return probe(line[at].id)
        except RefUnknown as error:
            return Judged(judgement=Judgement.SKIPPED, seen=f"{error}: it was dropped meanwhile")
        except (RestoreFailed, StoreError, RecordingError) as error:
            return Judged(judgement=Judgement.FAILED, seen=str(error))

    return ask


def probe_of(
    settings: Settings,
    store: Store,
    params: BisectParams,
    incident: Incident | None,
    line: Sequence[StoredCommit],
) -> CommitProbe:
    """What a commit of the line is asked.

    Raises:
        UsageError: that cannot be read. RecordingError: the incident's request is not there.
    """
    # Each only where it is asked for: protocols, stubs and the inspector are half of what a command imports.
    limit = params.limit or _LIMIT
    if params.when is not None:
        from relive.bisection.expression import ExpressionProbe

        return ExpressionProbe(settings, store, params.when, params.process, limit)
    if incident is not None:
        from relive.bisection.failing_again import FailureProbe, last_conversation
        from relive.replay.replay_input import case_of_incident, failing_request

        cursors = [one.sequence for one in line if one.sequence is not None]
        latest = incident.occurrence(first=False)
        request = failing_request(settings, incident, latest, cursors)
        nearest = latest.model_copy(update={"before": line[-1].id})
        said = (
            last_conversation(case_of_incident(settings, store, incident, nearest))
            if request is None
            else None
        )
        return FailureProbe(settings, store, incident, request, said, params.limit)
    from relive.bisection.branches import CommandProbe, HttpProbe

    if params.run is not None:
        return CommandProbe(settings, store, params.run, inside_environment(), limit)
    asked = _REQUEST_LINE.fullmatch((params.http or "").strip())
    if asked is None:
        raise UsageError(
            f"{params.http!r} is no request", remedy="write its path, or a method and a path: 'POST /refresh'"
        )
    expectation = parse_expectation(params.expect or "status < 500")
    return HttpProbe(settings, store, asked[1] or "GET", asked[2], expectation, limit)
