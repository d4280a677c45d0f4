"""Incidents, each a JSON file named by its number. Numbers are never used twice.

What lies beside an incident is in ``evidence.py``.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from relive.errors import IncidentUnknown
from relive.model.commit import CommitId
from relive.model.incident import Incident, Sighting
from relive.store.durable import sync_directory
from relive.store.troubles import disk_errors

__all__ = ["Incidents"]


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
    ) -> Incident:
        """Write a new incident under the next free number, durable on return."""
        with disk_errors("writing an incident"):
            self._directory.mkdir(parents=True, exist_ok=True)
            number = max((self._number(path) for path in self._directory.glob("*.json")), default=0)
            while True:
                number += 1
                try:
                    # Takes the number, so that two agents never share one.
                    descriptor = os.open(
                        self._path(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600
                    )
                    break
                except FileExistsError:
                    continue
            os.close(descriptor)
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
                self.save(incident)
            except BaseException:
                self._path(number).unlink()
                raise
        return incident

    def save(self, incident: Incident) -> None:
        """Replace what is written of an incident, durable on return."""
        path = self._path(incident.number)
        fresh = path.with_suffix(".new")
        with disk_errors("writing an incident"):
            with fresh.open("w") as file:
                file.write(incident.model_dump_json(indent=2))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
            sync_directory(self._directory)

    def get(self, number: int) -> Incident:
        """One incident; raises IncidentUnknown."""
        try:
            return Incident.model_validate_json(self._path(number).read_bytes())
        except (FileNotFoundError, ValueError):
            raise IncidentUnknown(
                f"there is no incident {number}", remedy="`relive incidents` lists them"
            ) from None

    def list(self, service: str | None = None) -> list[Incident]:
        """All incidents, newest first; one whose writing a crash interrupted is passed over."""
        found = []
        for path in self._directory.glob("*.json"):
            if not self._number(path):  # it lies beside one
                continue
            with contextlib.suppress(ValueError, OSError):
                found.append(Incident.model_validate_json(path.read_bytes()))
        found.sort(key=lambda incident: -incident.number)
        return [incident for incident in found if service in (None, incident.service)]

    def pinned(self) -> set[CommitId]:
        """Commits that incidents refer to; they are kept."""
        found: set[CommitId | None] = set()
        for incident in self.list():
            latest = incident.latest.before if incident.latest is not None else None
            found |= {incident.before, incident.at, latest}
        return {commit for commit in found if commit is not None}

    def _path(self, number: int) -> Path:
        return self._directory / f"{number}.json"

    @staticmethod
    def _number(path: Path) -> int:
        return int(path.stem) if path.stem.isdigit() else 0
