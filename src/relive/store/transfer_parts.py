"""What a commit consists of beside its manifest and its placement: packs and objects, each with a name that proves its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from relive.errors import ObjectCorrupt
from relive.model.commit import CommitId, Manifest
from relive.store.index import objects_of
from relive.store.objects import hash_file
from relive.store.pages.packcheck import check_pack
from relive.store.pages.placement import Placement

__all__ = ["PartKind", "TransferCommit", "TransferPart", "check_part", "parts_of"]


class PartKind(StrEnum):
    """Also the name of the directory in which parts of that kind lie."""

    PACK = "packs"
    OBJECT = "objects"


@dataclass(frozen=True, slots=True, order=True)
class TransferPart:
    """One file of a commit; ``name`` has 64 hexadecimal digits."""

    kind: PartKind
    name: str

    def __str__(self) -> str:
        """As errors call it."""
        return f"{'pack' if self.kind is PartKind.PACK else 'object'} {self.name[:12]}"


@dataclass(frozen=True, slots=True)
class TransferCommit:
    """A commit as it travels.

    Attributes:
        manifest_bytes, placement_bytes: as stored; the id is the hash of the former, the latter is signed.
        parts: in order of their names; objects before packs.
    """

    id: CommitId
    manifest: Manifest
    manifest_bytes: bytes
    placement: Placement
    placement_bytes: bytes
    parts: tuple[TransferPart, ...]


def parts_of(manifest: Manifest, placement: Placement) -> tuple[TransferPart, ...]:
    """All that must be there for the commit to be given back, each once."""
    objects = (TransferPart(PartKind.OBJECT, name) for name in objects_of(manifest))
    packs = (TransferPart(PartKind.PACK, name) for name in placement.needed())
    return (*sorted(objects), *sorted(packs))


def check_part(part: TransferPart, path: Path) -> None:
    """Raises ObjectCorrupt where the file is not what the part's name says."""
    if part.kind is PartKind.PACK:
        check_pack(part.name, path)
    elif hash_file(path) != part.name:
        raise ObjectCorrupt(
            f"{part} is damaged",
            cause="its bytes do not match its name",
        )
