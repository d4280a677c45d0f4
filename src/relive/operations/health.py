"""Health: what this host can do."""

from __future__ import annotations

from relive.config import Settings
from relive.doctor import Finding, examine, is_ready
from relive.operations.operation import Effect, Faces, Operation, Params, Result, Tool
from relive.operations.progress import Progress

__all__ = ["DOCTOR", "DoctorParams", "Health", "doctor"]


class DoctorParams(Params):
    """Nothing can be chosen."""


class Health(Result):
    """``ready``: everything works that is required to run, commit, restore and replay."""

    ready: bool
    findings: list[Finding]


def doctor(settings: Settings, _params: DoctorParams, _progress: Progress) -> Health:
    """Find out what works on this host by trying it."""
    findings = examine(settings)
    return Health(ready=is_ready(findings), findings=findings)


DOCTOR = Operation(
    "doctor",
    DoctorParams,
    Health,
    doctor,
    Faces(
        cli=("doctor",),
        rest=("GET /doctor",),
        mcp=Tool(
            Effect.READS,
            "What works on this host, found out by trying it, and what to do about the rest.",
        ),
    ),
)
