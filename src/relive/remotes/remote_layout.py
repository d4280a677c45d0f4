"""Where things lie at a remote, and the pieces in which parts travel. Values only.

A part lies in pieces, so that a transfer which broke off goes on behind the last whole piece, in either direction; and each
piece is sent by one request, so that it is there whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from blake3 import blake3

from relive.model.commit import CommitId
from relive.store.transfer_parts import TransferPart

__all__ = [
    "FORMAT_PATH",
    "PIECE_SIZE",
    "Piece",
    "case_directory",
    "incidents_directory",
    "manifest_path",
    "manifests_directory",
    "part_directory",
    "pieces_of",
    "placement_path",
    "tag_path",
    "whole_size",
]

PIECE_SIZE = 4 << 20  # [bytes]
FORMAT_PATH = "format"


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes ``offset`` to ``offset + size`` of a part."""

    part: TransferPart
    number: int
    size: int

    @property
    def offset(self) -> int:
        """Its first byte within the part."""
        return self.number * PIECE_SIZE

    @property
    def name(self) -> str:
        """Its name in the directory of the part."""
        return f"{self.number:06}"

    @property
    def path(self) -> str:
        """Where it lies at the remote."""
        return f"{part_directory(self.part)}/{self.name}"


def pieces_of(part: TransferPart, size: int) -> list[Piece]:
    """The pieces of a part of ``size`` bytes, in order; an empty part has one that is empty."""
    return [Piece(part, number, each) for number, each in enumerate(_piece_sizes(size))]


def whole_size(sizes: Mapping[str, int]) -> int | None:
    """The size of a part by those of its pieces, named by number; None where one is missing or cut."""
    if not sizes or any(not 0 <= size <= PIECE_SIZE for size in sizes.values()):
        return None  # told first: what a remote says must not make a list of any length
    total = sum(sizes.values())
    wanted = {f"{number:06}": size for number, size in enumerate(_piece_sizes(total))}
    return total if sizes == wanted else None


def _piece_sizes(total: int) -> list[int]:
    count = max(1, -(-total // PIECE_SIZE))
    return [min(PIECE_SIZE, total - number * PIECE_SIZE) for number in range(count)]


def part_directory(part: TransferPart) -> str:
    """Where a part's pieces lie."""
    return f"{part.kind}/{part.name[:2]}/{part.name[2:]}"


def manifests_directory(prefix: str) -> str:
    """Where the manifests lie whose ids begin so; ``prefix`` has at least two digits."""
    return f"manifests/{prefix[:2]}"


def manifest_path(commit_id: CommitId) -> str:
    """The manifest of a commit."""
    return f"manifests/{commit_id[:2]}/{commit_id[2:]}.json"


def placement_path(commit_id: CommitId) -> str:
    """The placement of a commit."""
    return f"placements/{commit_id[:2]}/{commit_id[2:]}"


def incidents_directory(commit_id: CommitId) -> str:
    """Where the records of incidents lie that refer to a commit."""
    return f"incidents/{commit_id[:2]}/{commit_id[2:]}"


def case_directory(name: str) -> str:
    """Where the pieces of a case file lie; ``name`` is the BLAKE3 of its bytes."""
    return f"cases/{name[:2]}/{name[2:]}"


def tag_path(name: str) -> str:
    """A tag; its name may hold what no path may, so the path is a hash of it."""
    return f"tags/{blake3(name.encode(errors='surrogateescape')).hexdigest()}.json"
