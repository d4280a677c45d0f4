"""Dropping what retention does not keep."""

from __future__ import annotations

from collections.abc import Sequence

from relive.incidents.incidents import Incidents
from relive.maintenance.retention import Retention, why_kept
from relive.model.commit import CommitId
from relive.store import Store, StoredCommit

__all__ = ["doomed", "thin"]


def thin(store: Store, name: str, retention: Retention, incidents: Incidents) -> list[CommitId]:
    """Drop a target's commits that are not to be kept; returns their ids, newest first.

    Tagged commits and those of incidents stay; who writes an incident does so within ``Store.nothing_dropped``.
    """
    return store.thin(name, lambda lines: _beyond(lines, retention, incidents.pinned()))


def doomed(store: Store, name: str, retention: Retention, incidents: Incidents) -> list[CommitId]:
    """What ``thin`` would drop now."""
    pinned = incidents.pinned() | set(store.tags().values())
    return _beyond(store.log(name), retention, pinned)


def _beyond(lines: Sequence[StoredCommit], retention: Retention, pinned: set[CommitId]) -> list[CommitId]:
    kept = why_kept(lines, retention, pinned)
    return [line.id for line in lines if line.id not in kept]
