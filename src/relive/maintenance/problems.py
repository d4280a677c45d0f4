"""What can be wrong with a store, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from relive.model.commit import CommitId

__all__ = ["Kind", "Problem", "Report"]


class Kind(StrEnum):
    """What it is about.

    The first four are things that another store may still have (``source``); an index and what is laid out are made from others,
    and anew; incidents, recordings and which micro-commits were compared lie beside the store.
    """

    MANIFEST = "manifest"
    PLACEMENT = "placement"
    PACK = "pack"
    OBJECT = "object"
    TAG = "tag"
    INDEX = "index"
    LAID_OUT = "laid-out"
    INCIDENT = "incident"
    INCIDENT_INDEX = "incident-index"
    RECORDING = "recording"
    COMPARISON = "comparison"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is missing, damaged or not to be trusted.

    Attributes:
        name: an id for manifests and placements, else the thing's own name.
        code: of the error that using it would raise; message: in words.
        commits: those that cannot be given back because of it, in order.
    """

    kind: Kind
    name: str
    code: str
    message: str
    commits: list[CommitId]


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, and what is wrong.

    Attributes:
        objects: contents of files, each once, wherever they lie.
        bytes_read: of packs and objects, 0 where only their presence was looked at.
    """

    commits: int
    packs: int
    objects: int
    bytes_read: int
    problems: list[Problem]

    @property
    def spoiled(self) -> list[CommitId]:
        """Commits that cannot be given back."""
        return sorted({commit for problem in self.problems for commit in problem.commits})
