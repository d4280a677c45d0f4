"""Checking what is kept beside the store: incidents with what belongs to them, recordings, which micro-commits were compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from relive.checkpoint.uncompared import damaged_spans
from relive.errors import IncidentUnknown, RecordingCorrupt, RecordingError, ReliveError
from relive.incidents.checksums import damaged_beside
from relive.incidents.incidents import Incidents
from relive.maintenance.problems import Kind, Problem
from relive.recording.reader import Recording

__all__ = ["comparison_problems", "incident_problems", "recording_problems"]

_RECORDINGS = ("recording", "inside", "egress")  # directories of a life


def incident_problems(directory: Path) -> list[Problem]:
    """Files of incidents that were changed or are gone, and lines of their index that were wrong (made anew by now)."""
    if not directory.is_dir():
        return []
    incidents = Incidents(directory)
    problems = [
        _problem(
            Kind.INCIDENT_INDEX, str(number), "the index said something else of it; it has been made anew"
        )
        for number in incidents.index_faults()
    ]
    for number in incidents.numbers():
        try:
            incidents.get(number)
        except RecordingCorrupt as error:
            problems.append(_of(Kind.INCIDENT, f"{number}.json", error))
        except IncidentUnknown:
            pass  # a number that was taken, and no more
        problems += [
            _problem(Kind.INCIDENT, name, why) for name, why in damaged_beside(directory, number).items()
        ]
    return problems


def recording_problems(capsules: Path) -> Iterator[Problem]:
    """Recordings of which a record does not match its checksum; every byte is read."""
    for life in sorted(capsules.glob("*/*")):
        if life.is_symlink():
            continue
        for name in _RECORDINGS:
            recording = Recording(life / name)
            try:
                recording.cursor()
                for _ in recording.events():
                    pass
            except RecordingError as error:
                yield _of(Kind.RECORDING, str((life / name).relative_to(capsules)), error)


def comparison_problems(home: Path) -> list[Problem]:
    """Files of ``checkpoint.uncompared`` that tell nothing: all commits of their lives count as not compared."""
    return [_problem(Kind.COMPARISON, life, str(error)) for life, error in damaged_spans(home)]


def _of(kind: Kind, name: str, error: ReliveError) -> Problem:
    return Problem(kind, name, error.code, str(error), [])


def _problem(kind: Kind, name: str, message: str) -> Problem:
    return Problem(kind, name, RecordingCorrupt.code, message, [])
