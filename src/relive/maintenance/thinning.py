"""Dropping what retention does not keep."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from relive.incidents.incidents import Incidents
from relive.maintenance.retention import Retention, why_kept
from relive.model.commit import CommitId
from relive.store import Store, StoredCommit

__all__ = ["Thinning"]


@dataclass(frozen=True, slots=True)
class Thinning:
    """By what the commits of a target are thinned. Tagged commits, those of incidents and those that led to them stay.

    Attributes:
        branched: gives the commits of which there are living branches; they stay. Asked with the store's lock held.
    """

    retention: Retention
    incidents: Incidents
    branched: Callable[[], Collection[CommitId]]

    def thin(self, store: Store, name: str) -> list[CommitId]:
        """Drop a target's commits that are not to be kept; returns their ids, newest first.

        Who writes an incident does so within ``Store.nothing_dropped``.
        """
        return store.thin(name, self._beyond)

    def doomed(self, store: Store, name: str) -> list[CommitId]:
        """What ``thin`` would drop now."""
        tagged = set(store.tags().values())
        return [one for one in self._beyond(store.log(name)) if one not in tagged]

    def _beyond(self, lines: Sequence[StoredCommit]) -> list[CommitId]:
        lived = [line for line in lines if not line.is_of_branch]  # somebody asked for the others to be kept
        kept = why_kept(lived, self.retention, self.incidents.pinned()).keys() | self.branched()
        return [line.id for line in lived if line.id not in kept]
