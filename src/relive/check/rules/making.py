"""How rules make findings: one function for each severity, so that they read as sentences."""

from __future__ import annotations

from relive.check.finding import Finding, Severity
from relive.check.snapshot import Process

__all__ = ["IN_A_CAPSULE", "blocks", "left_out", "lost", "note_finding"]

IN_A_CAPSULE = "start it with `relive run`"


def blocks(code: str, process: Process | None, subject: str, cause: str, remedy: str | None) -> Finding:
    """No commit can be taken, or no branch made of it."""
    return _made(Severity.BLOCKS, code, process, subject, cause, remedy)


def lost(code: str, process: Process | None, subject: str, cause: str, remedy: str | None) -> Finding:
    """A branch does not have it."""
    return _made(Severity.LOST, code, process, subject, cause, remedy)


def left_out(code: str, process: Process | None, subject: str, cause: str, remedy: str | None) -> Finding:
    """A branch sees it as it is then."""
    return _made(Severity.LEFT_OUT, code, process, subject, cause, remedy)


def note_finding(
    code: str, process: Process | None, subject: str, cause: str, remedy: str | None = None
) -> Finding:
    """Good to know."""
    return _made(Severity.NOTE, code, process, subject, cause, remedy)


def _made(
    severity: Severity, code: str, process: Process | None, subject: str, cause: str, remedy: str | None
) -> Finding:
    return Finding(
        severity=severity,
        code=code,
        pid=process.pid if process is not None else None,
        process=process.name if process is not None else None,
        subject=subject,
        cause=cause,
        remedy=remedy,
    )
