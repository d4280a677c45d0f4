"""What is told of a commit that came from elsewhere, by a remote or by a file."""

from __future__ import annotations

from collections.abc import Collection

from relive.cli.terminal import Terminal
from relive.model.commit import CommitId

__all__ = ["report_incidents", "report_untagged"]


def report_incidents(terminal: Terminal, numbers: Collection[int], new: Collection[int]) -> None:
    """Of each incident that came along how it is looked at; ``new``: numbers of those that were not here."""
    for number in numbers:
        came = "came with it" if number in new else "is here already"
        terminal.status(f"Incident {number} {came}: `relive show {number}`, `relive replay {number}`.")


def report_untagged(terminal: Terminal, commit: CommitId, tag: str | None) -> None:
    """How it is kept, where no tag does."""
    if tag is None:
        terminal.hint(f"keep it with `relive tag NAME {commit[:10]}`")
