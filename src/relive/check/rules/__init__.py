"""From what was seen to findings: pure functions, each given a snapshot. A new kind of finding is one more of them, here."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from relive.check.finding import Finding, Severity
from relive.check.rules.descriptors import descriptors
from relive.check.rules.files import files
from relive.check.rules.memory import memory
from relive.check.rules.micro import micro
from relive.check.rules.processes import processes
from relive.check.rules.sockets import sockets
from relive.check.snapshot import Snapshot

__all__ = ["RULES", "findings_of"]

RULES: tuple[Callable[[Snapshot], Iterable[Finding]], ...] = (
    processes,
    memory,
    descriptors,
    sockets,
    files,
    micro,
)
_WORST_FIRST = list(Severity)


def findings_of(seen: Snapshot) -> list[Finding]:
    """All of them, the worst first, each once."""
    found = dict.fromkeys(one for rule in RULES for one in rule(seen))
    return sorted(found, key=lambda one: _WORST_FIRST.index(one.severity))
