"""What an import did, whatever kind of archive it was."""

from __future__ import annotations

from dataclasses import dataclass

from relive.model.commit import CommitId
from relive.remotes.case_transfer import ReceivedIncident

__all__ = ["Imported"]


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did.

    Attributes:
        parts, bytes: that were taken in. held: parts that were here.
        is_new: the commit was not here before.
        incidents: that came along.
    """

    commit: CommitId
    parts: int
    bytes: int
    held: int
    is_new: bool
    incidents: tuple[ReceivedIncident, ...] = ()
