"""What a store holds and what takes the room, as values; summing up is pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from relive.model.commit import CommitId

__all__ = ["KINDS", "CommitFacts", "CommitShare", "Dominance", "ServiceShare", "share_out"]

# What bytes of a store are for, in the order in which they are shown.
KINDS = {
    "full": "pages kept full",
    "xor": "pages kept as XOR",
    "index": "indexes and small images",
    "file": "files",
    "dead": "of no use to any commit",
    "unknown": "pages that cannot be read (damaged, or sealed without the key)",
    "list": "manifests, placements, headers, the database",
}
Dominance = Mapping[str, int]  # bytes by the keys of KINDS


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """A commit as it is asked about.

    Attributes:
        logical: bytes of all that it brings back; new: bytes by which the store grew when it was taken.
        needs: names of the packs and objects that it needs.
    """

    id: CommitId
    name: str
    taken_wall_ns: int
    logical: int
    new: int
    needs: Collection[str]


@dataclass(frozen=True, slots=True)
class CommitShare:
    """``alone``: bytes of packs and objects that no other commit needs, so that dropping it frees them."""

    id: CommitId
    name: str
    taken_wall_ns: int
    logical: int
    new: int
    alone: int


@dataclass(frozen=True, slots=True)
class ServiceShare:
    """``stored``: bytes of packs and objects that its commits need; what services share is counted for each."""

    name: str
    commits: int
    logical: int
    stored: int


def share_out(
    commits: Sequence[CommitFacts], sizes: Mapping[str, int]
) -> tuple[list[ServiceShare], list[CommitShare]]:
    """Services, the largest first, and commits in the order given.

    Args:
        sizes: bytes of packs and objects by name; one that is missing has none.
    """
    users = Counter(name for commit in commits for name in commit.needs)
    shares = [
        CommitShare(
            commit.id,
            commit.name,
            commit.taken_wall_ns,
            commit.logical,
            commit.new,
            sum(sizes.get(name, 0) for name in commit.needs if users[name] == 1),
        )
        for commit in commits
    ]
    services = []
    for service in {commit.name for commit in commits}:
        own = [commit for commit in commits if commit.name == service]
        needed = {name for commit in own for name in commit.needs}
        stored = sum(sizes.get(name, 0) for name in needed)
        services.append(ServiceShare(service, len(own), sum(commit.logical for commit in own), stored))
    return sorted(services, key=lambda one: (-one.stored, one.name)), shares
