"""Dropping what retention does not keep."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from relive.incidents.incidents import Incidents
from relive.maintenance.retention import Retention, why_kept
from relive.model.commit import CommitId
from relive.store import Store, StoredCommit

__all__ = ["doomed", "thin"]


def thin(
    store: Store,
    name: str,
    retention: Retention,
    incidents: Incidents,
    branched: Callable[[], Collection[CommitId]],
) -> list[CommitId]:
    """Drop a target's commits that are not to be kept; returns their ids, newest first.

    Tagged commits, those of incidents and those that led to them stay. Who writes an incident does so within
    ``Store.nothing_dropped``.

    Args:
        branched: gives the commits of which there are living branches; they stay. Asked with the store's lock held.
    """
    return store.thin(name, lambda lines: _beyond(lines, retention, incidents.pinned(), branched()))


def doomed(
    store: Store,
    name: str,
    retention: Retention,
    incidents: Incidents,
    branched: Callable[[], Collection[CommitId]],
) -> list[CommitId]:
    """What ``thin`` would drop now."""
    tagged = set(store.tags().values())
    beyond = _beyond(store.log(name), retention, incidents.pinned(), branched())
    return [one for one in beyond if one not in tagged]


def _beyond(
    lines: Sequence[StoredCommit],
    retention: Retention,
    failed: set[CommitId],
    branched: Collection[CommitId],
) -> list[CommitId]:
    lived = [line for line in lines if not line.is_of_branch]  # somebody asked for the others to be kept
    kept = why_kept(lived, retention, failed).keys() | branched
    return [line.id for line in lived if line.id not in kept]
