"""An earlier commit in the place of the last one before a failure, as who asks names it."""

from __future__ import annotations

from relive.errors import UsageError
from relive.model.incident import Incident, Occurrence
from relive.store import Store
from relive.store.index import StoredCommit

__all__ = ["EARLIER_COMMIT_TEXT", "occurrence_from"]

EARLIER_COMMIT_TEXT = "Replay from this earlier commit; default: the last that is early enough"


def occurrence_from(store: Store, incident: Incident, occurrence: Occurrence, ref: str | None) -> Occurrence:
    """The occurrence with that commit before it; as it is where none is named, or it had none before it.

    Raises:
        RefUnknown, StoreError: the ref names no commit.
        UsageError: it is of another service or start than the incident, or was taken after the failing request had begun.
    """
    if ref is None or occurrence.before is None:
        return occurrence
    commit, before = store.get(store.resolve(ref)), store.get(occurrence.before)
    _check(commit, before, incident)
    return occurrence.model_copy(update={"before": commit.id})


def _check(commit: StoredCommit, before: StoredCommit, incident: Incident) -> None:
    if commit.name != incident.service or commit.life != incident.life:
        raise UsageError(
            f"commit {commit.id[:10]} is of {commit.name!r}, or of another start of it than incident {incident.number}",
            cause="from there its request cannot be sent again",
            remedy=f"`relive log {incident.service}` lists the service's commits",
        )
    if (commit.taken_wall_ns, commit.id) > (before.taken_wall_ns, before.id):
        raise UsageError(
            f"commit {commit.id[:10]} was taken after the failing request of incident {incident.number} had begun",
            remedy=f"leave it out: then it is {before.id[:10]}, the last one before the incident",
        )
