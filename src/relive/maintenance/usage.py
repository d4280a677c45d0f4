"""What a store holds and what takes the room, as values; summing up is pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from relive.model.commit import CommitId

__all__ = ["KINDS", "CommitShare", "CommitUsage", "Dominance", "ServiceShare", "share_out"]

# What bytes of a store are for, in the order in which they are shown.
KINDS = {
    "full": "pages of memory kept full",
    "xor": "changed words of pages of memory",
    "index": "indexes and small images",
    "file": "files",
    "dead": "of no use to any commit",
    "unknown": "pages that cannot be read (damaged, or sealed without the key)",
    "list": "manifests, placements, headers, the database",
}
Dominance = Mapping[str, int]  # bytes by the keys of KINDS


@dataclass(frozen=True, slots=True)
class CommitUsage:
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
    """The commits of one service.

    Attributes:
        stored: bytes of packs and objects that they need; what services share is counted for each.
        a_commit: bytes by which a commit made the store grow, all in, on average, so that key commits count; the oldest, which
            holds all, left out. 0 where there is no other.
    """

    name: str
    commits: int
    logical: int
    stored: int
    a_commit: int


def share_out(
    commits: Sequence[CommitUsage], sizes: Mapping[str, int]
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
        grew = [commit.new for commit in sorted(own, key=lambda one: one.taken_wall_ns)][1:]
        services.append(
            ServiceShare(
                service,
                len(own),
                sum(commit.logical for commit in own),
                stored,
                round(mean(grew)) if grew else 0,
            )
        )
    return sorted(services, key=lambda one: (-one.stored, one.name)), shares
