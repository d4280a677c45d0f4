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

    Tagged commits, those of incidents and those that led to them stay. Who writes an incident does so within
    ``Store.nothing_dropped``.
    """
    return store.thin(name, lambda lines: _beyond(lines, retention, incidents.pinned()))


def doomed(store: Store, name: str, retention: Retention, incidents: Incidents) -> list[CommitId]:
    """What ``thin`` would drop now."""
    tagged = set(store.tags().values())
    return [one for one in _beyond(store.log(name), retention, incidents.pinned()) if one not in tagged]


def _beyond(lines: Sequence[StoredCommit], retention: Retention, failed: set[CommitId]) -> list[CommitId]:
    lived = [line for line in lines if not line.is_of_branch]  # somebody asked for the others to be kept
    kept = why_kept(lived, retention, failed)
    return [line.id for line in lived if line.id not in kept]
