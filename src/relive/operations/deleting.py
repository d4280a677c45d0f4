"""Deleting one commit. Many go by a schedule in ``retaining``."""

from __future__ import annotations

from relive.config import Settings
from relive.errors import UsageError
from relive.incidents.incidents import Incidents
from relive.model.commit import CommitId
from relive.operations.commits import tags_of
from relive.operations.operation import Result
from relive.store import Store

__all__ = ["Deleted", "delete_commit"]


class Deleted(Result):
    """A commit that is no more."""

    id: CommitId


def delete_commit(settings: Settings, ref: str) -> Deleted:
    """Delete a commit that nothing holds.

    Raises:
        RefUnknown, RefAmbiguous: there is none.
        UsageError: a tag or an incident holds it.
    """
    store = Store(settings.store)
    found = store.resolve(ref)
    incidents = Incidents(settings.incidents)
    # Asked with the store's lock held: no incident can begin to need it in between.
    if found not in store.thin(store.get(found).name, lambda _lines: {found} - incidents.pinned()):
        raise _held(found, tags_of(store).get(found, []))
    return Deleted(id=found)


def _held(commit_id: CommitId, tags: list[str]) -> UsageError:
    if tags:
        return UsageError(
            f"{commit_id[:10]} is kept",
            cause=f"it is tagged {', '.join(tags)}",
            remedy="remove the tag first: relive tag --delete NAME",
        )
    return UsageError(
        f"{commit_id[:10]} is kept",
        cause="an incident needs it to be replayed",
        remedy="`relive incidents` tells which; what belongs to incidents is never deleted",
    )
