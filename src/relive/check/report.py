"""The answer of ``relive check``: findings, what to expect, and a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from relive.check.estimate import Estimate
from relive.check.finding import Finding, Severity
from relive.model.text import NativeText
from relive.model.value import Value

__all__ = ["CheckReport", "CheckVerdict", "Expected", "capsule_helps", "verdict_of"]


class CheckVerdict(StrEnum):
    """``whole``: with nothing lost or left out, as far as can be seen. ``partly``: something is. ``refused``: not at all."""

    WHOLE = "whole"
    PARTLY = "partly"
    REFUSED = "refused"


class Expected(Value):
    """One thing that is known of a command before it runs.

    Attributes:
        name: what it is about; stable (``program``, ``interpreter``, ``recorder``, ``recorded``, ``port``, ``unit``,
            ``replay``).
        value: in words.
    """

    name: str
    value: NativeText


class CheckReport(Value):
    """What was found.

    Attributes:
        target: as it was asked for; of a command, its words.
        pid: host pid of the tree's root, None of a command.
        command: the words it runs with.
        capsule_helps: it cannot be committed, and started with ``relive run`` it could.
        estimate: None of a command, whose memory nobody knows yet.
        expected: of a command only.
        unseen: what only a running process, or only a real commit, can tell.
    """

    target: NativeText
    pid: int | None
    command: list[NativeText]
    verdict: CheckVerdict
    capsule_helps: bool
    findings: list[Finding]
    estimate: Estimate | None
    expected: list[Expected]
    unseen: list[str]


# What a capsule hides, or has of its own.
_CURED_BY_A_CAPSULE = frozenset(
    {"io-uring", "shared-memory-outside", "outside-mount", "session-outside-namespace"}
)


def capsule_helps(findings: Iterable[Finding]) -> bool:
    """Something blocks, and nothing that would not be cured by starting the service with ``relive run``."""
    codes = {one.code for one in findings if one.severity is Severity.BLOCKS}
    return bool(codes) and codes <= _CURED_BY_A_CAPSULE


def verdict_of(findings: Iterable[Finding]) -> CheckVerdict:
    """By the worst of them."""
    severities = {one.severity for one in findings}
    if Severity.BLOCKS in severities:
        return CheckVerdict.REFUSED
    if severities & {Severity.LOST, Severity.LEFT_OUT}:
        return CheckVerdict.PARTLY
    return CheckVerdict.WHOLE
