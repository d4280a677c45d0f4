"""What a probe found out, as a value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from relive.model.value import Value

__all__ = [
    "Finding",
    "Obstacle",
    "ProbeOutcome",
    "ProbeResult",
    "fails",
    "in_words",
    "is_ready",
    "limited",
    "works",
]


class ProbeOutcome(StrEnum):
    """How far it goes."""

    WORKS = "works"
    LIMITED = "limited"
    FAILS = "fails"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a probe returns; made by ``works``, ``limited`` and ``fails``."""

    outcome: ProbeOutcome
    found: str
    cause: str | None = None
    remedy: str | None = None


def works(found: str) -> ProbeResult:
    """It was done."""
    return ProbeResult(ProbeOutcome.WORKS, found)


def limited(found: str, *, cause: str, remedy: str) -> ProbeResult:
    """It was done, but less well than elsewhere, or only part of it."""
    return ProbeResult(ProbeOutcome.LIMITED, found, cause, remedy)


def fails(found: str, *, cause: str, remedy: str) -> ProbeResult:
    """It could not be done."""
    return ProbeResult(ProbeOutcome.FAILS, found, cause, remedy)


class Obstacle(Exception):
    """Raised within a probe: it cannot be done, and this is why and what helps. Never leaves ``relive.doctor``."""

    def __init__(self, found: str, *, cause: str, remedy: str | None = None) -> None:
        super().__init__(found, cause, remedy)
        self.found = found
        self.cause = cause
        self.remedy = remedy


def in_words(error: OSError) -> str:
    """What the system said, and about what, without the number."""
    text = error.strerror or str(error)
    return f"{text}: {error.filename}" if error.filename else text


class Finding(Value):
    """One row of ``relive doctor``.

    Attributes:
        name: what was tried; stable, used in ``--json`` output.
        required: the main job (run, commit, restore, replay) does not work without it.
        found: a few words for the table.
        cause: why it does not work, or not fully; None if it works.
        remedy: what to do about it; None if it works.
        milliseconds: how long the probe took.
    """

    name: str
    required: bool
    outcome: ProbeOutcome
    found: str
    cause: str | None
    remedy: str | None
    milliseconds: float


def is_ready(findings: Iterable[Finding]) -> bool:
    """The main job works here: nothing that is required fails (what is limited still works)."""
    return not any(finding.required and finding.outcome is ProbeOutcome.FAILS for finding in findings)
