"""Incidents, each a JSON file named by its number. Numbers are never used twice (``numbers.py``).

What lies beside an incident is in ``evidence.py``; what they are listed and searched by in ``index.py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from relive.errors import IncidentUnknown, RecordingCorrupt
from relive.incidents.checksums import decode_incident, encode_incident
from relive.incidents.index import StoredIncident, ask, enter_quietly
from relive.incidents.numbers import allocate_number
from relive.incidents.query import IncidentOrder, IncidentQuery
from relive.kernel.atomic_write import Durability, replace_file
from relive.kernel.disk_errors import disk_errors
from relive.model.commit import CommitId
from relive.model.incident import Incident, Sighting
from relive.store.paging import Page

__all__ = ["IncidentOrder", "IncidentQuery", "Incidents", "StoredIncident"]

_ALL_INCIDENTS = IncidentQuery()
_INDEX = "delete the directory index of the incidents; it is made anew from their files"


class Incidents:
    """The directory of incidents; safe for several processes, each incident having one writer (its capsule's agent)."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def add(
        self,
        service: str,
        life: str,
        sighting: Sighting,
        *,
        before: CommitId | None,
        at: CommitId | None,
        log_end: int | None,
        log_tail: list[str],
        lay: Callable[[int], None] = lambda _number: None,
    ) -> Incident:
        """Write a new incident under the next free number, durable on return.

        Args:
            lay: called with its number before it is there, to lay beside it what belongs to it: who sees it sees all of it. What
                it raises is raised when the incident is written.
        """
        with disk_errors("writing an incident"):
            self._directory.mkdir(parents=True, exist_ok=True)
            number = allocate_number(self._directory)
            incident = Incident(
                number=number,
                service=service,
                life=life,
                sighting=sighting,
                before=before,
                at=at,
                last_seen_wall_ns=sighting.seen_wall_ns,
                log_end=log_end,
                log_tail=log_tail,
            )
            try:
                lay(number)
            finally:
                self._save_new(incident)
        return incident

    def _save_new(self, incident: Incident) -> None:
        try:
            self.save(incident)
        except BaseException:
            self._path(incident.number).unlink()
            raise

    def enter(self, incident: Incident, number: int | None, lay: Callable[[int], None]) -> int:
        """Write an incident that came from another home, durable on return.

        Args:
            number: that it has here already; None: it gets the next free one.
            lay: called with its number before it is there, to lay beside it what belongs to it.

        Returns:
            Its number here.
        """
        with disk_errors("writing an incident"):
            self._directory.mkdir(parents=True, exist_ok=True)
            own = number if number is not None else allocate_number(self._directory)
            lay(own)
        self.save(incident.model_copy(update={"number": own}))
        return own

    def save(self, incident: Incident) -> None:
        """Replace what is written of an incident, durable on return."""
        path = self._path(incident.number)
        with disk_errors("writing an incident"):
            # For its owner only: lines of the service's log are in it.
            replace_file(path, encode_incident(incident), durability=Durability.NAME, mode=0o600)
        enter_quietly(self._directory, incident.number)

    def get(self, number: int) -> Incident:
        """One incident; raises IncidentUnknown, and RecordingCorrupt where something has changed what is written of it."""
        try:
            data = self._path(number).read_bytes()
        except FileNotFoundError:
            data = b""
        if not data:  # a number that was taken, and no more, is what a crash leaves
            raise IncidentUnknown(f"there is no incident {number}", remedy="`relive incidents` lists them")
        return decode_incident(data)

    def read(self, numbers: Iterable[int]) -> list[Incident]:
        """Those of the numbers that are there, in their order."""
        found = []
        for number in numbers:
            with contextlib.suppress(IncidentUnknown, RecordingCorrupt):  # `verify` tells of what is damaged
                found.append(self.get(number))
        return found

    def numbers(self) -> list[int]:
        """Of all files of incidents, in order, whatever stands in them."""
        return sorted(number for path in self._directory.glob("*.json") if (number := self._number(path)))

    def index_faults(self) -> list[int]:
        """Incidents of which the index does not say what their files say; those are entered anew."""
        with disk_errors("reading the incidents", damaged=_INDEX):
            return ask(self._directory, lambda index: index.renew(), strictly=True)

    def list(self, service: str | None = None) -> list[Incident]:
        """All incidents, newest first; one whose writing a crash interrupted is passed over."""
        found = []
        for path in self._directory.glob("*.json"):
            if not self._number(path):  # it lies beside one
                continue
            with contextlib.suppress(OSError, RecordingCorrupt):
                found.append(decode_incident(path.read_bytes()))
        found.sort(key=lambda incident: -incident.number)
        return [incident for incident in found if service in (None, incident.service)]

    def page(
        self, query: IncidentQuery = _ALL_INCIDENTS, *, after: str | None = None, limit: int = 50
    ) -> Page[StoredIncident]:
        """A page of the incidents that fit, newest first.

        By number, pages that follow each other by their cursors hold each incident exactly once that is there all the time;
        by the time last seen, see ``IncidentOrder``.

        Args:
            after: the cursor of the page before; None for the first.
            limit: at most so many; at least 1.

        Raises:
            UsageError: the cursor is none of this list, the limit too small, or the search too long.
        """
        with disk_errors("reading the incidents", damaged=_INDEX):
            return ask(self._directory, lambda index: index.page(query, after, limit), strictly=False)

    def pinned(self) -> set[CommitId]:
        """Commits that incidents refer to; they are kept. All that was written before is heeded, by whomever."""
        with disk_errors("reading the incidents", damaged=_INDEX):
            return ask(self._directory, lambda index: index.pinned(), strictly=True)

    def _path(self, number: int) -> Path:
        return self._directory / f"{number}.json"

    @staticmethod
    def _number(path: Path) -> int:
        return int(path.stem) if path.stem.isdigit() else 0
