"""An archive's bytes: a tar of one or more commits, read so strictly that every byte of it counts.

Entries in this order: ``relive.json``; of each commit its manifest, placement, objects and packs, these as ``objects/NAME`` and
``packs/NAME``, in the order of their names, but for those that an earlier commit of the archive has too; of each incident its
signed record and its case file (see ``incidents``); and two empty blocks. Any tar can unpack it. A reader knows each next name
before it comes, and there is one way to write a header; so what was changed, cut off or put in another order is noticed. Contents
prove themselves by their names, or by the record's signature.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from relive.errors import ArchiveInvalid, StoreVersionUnknown
from relive.model.commit import CommitId
from relive.store.objects import is_id
from relive.store.transfer_parts import TransferPart

__all__ = [
    "MARK",
    "ArchiveContents",
    "ArchiveReader",
    "case_name",
    "entry",
    "entry_name",
    "invalid",
    "record_name",
    "the_end",
]

MARK = "relive.json"
_VERSIONS = (1, 2)  # the first: of one commit and no incident
_is_incident = re.compile(r"[0-9a-f]{32}").fullmatch
_BLOCK = 512
_CHUNK = 1 << 20  # [bytes]
_MOST_IN_MEMORY = 1 << 30  # [bytes] of a manifest


def entry_name(part: TransferPart) -> str:
    """The entry of a part."""
    return f"{part.kind}/{part.name}"


@dataclass(frozen=True, slots=True)
class ArchiveContents:
    """What an archive holds: the commit that was asked for, others that its incidents need, and these."""

    commits: tuple[CommitId, ...]
    incidents: tuple[str, ...] = ()

    def mark(self) -> bytes:
        """What the first entry holds."""
        if not self.incidents and len(self.commits) == 1:
            return json.dumps({"version": 1, "commit": self.commits[0]}).encode()
        header = {"version": 2, "commits": self.commits, "incidents": self.incidents}
        return json.dumps(header).encode()

    def is_sound(self) -> bool:
        """Names are such, and none stands there twice: they become names of entries."""
        ids: tuple[object, ...] = (*self.commits, *self.incidents)
        are_ids = all(isinstance(one, str) for one in ids) and all(map(is_id, self.commits))
        return (
            bool(self.commits)
            and are_ids
            and all(map(_is_incident, self.incidents))
            and len(set(ids)) == len(ids)
        )

    def manifest(self, commit: CommitId) -> str:
        """The entry of a commit's manifest."""
        return f"{self._prefix(commit)}manifest.json"

    def placement(self, commit: CommitId) -> str:
        """The entry of a commit's placement."""
        return f"{self._prefix(commit)}placement"

    def _prefix(self, commit: CommitId) -> str:
        return "" if commit == self.commits[0] else f"commits/{commit}/"


def record_name(incident: str) -> str:
    """The entry of an incident's record."""
    return f"incidents/{incident}.json"


def case_name(incident: str) -> str:
    """The entry of an incident's case file."""
    return f"incidents/{incident}.case"


def entry(name: str, size: int, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes of one entry, whose content is ``chunks``."""
    yield _header(name, size)
    yield from chunks
    yield bytes(-size % _BLOCK)


def the_end() -> bytes:
    """What stands behind the last entry."""
    return bytes(2 * _BLOCK)


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    return info.tobuf(tarfile.GNU_FORMAT)


class ArchiveReader:
    """Reads an archive from its begin to its end. Every method raises ArchiveInvalid where it is not as ``entry`` writes it.

    Args:
        read: gives the next bytes, fewer than asked for only at the end.
    """

    def __init__(self, name: str, read: Callable[[int], bytes]) -> None:
        self.name = name
        self._read = read

    def held(self) -> ArchiveContents:
        """What it holds; to be asked first. Raises StoreVersionUnknown where a newer Relive wrote it."""
        text = self.content(MARK)
        try:
            value = json.loads(text)
            version = value["version"]
            commits = (value["commit"],) if version == 1 else tuple(value.get("commits", ()))
            held = ArchiveContents(commits, tuple(value.get("incidents", ())))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self._no_archive() from None
        if isinstance(version, int) and version not in _VERSIONS:
            raise StoreVersionUnknown(
                f"the archive {self.name} has format {version}",
                cause=f"this Relive reads formats {_VERSIONS[0]} to {_VERSIONS[-1]}",
                remedy="use the Relive that wrote it",
            )
        if not held.is_sound() or held.mark() != text:
            raise self._no_archive()
        return held

    def _no_archive(self) -> ArchiveInvalid:
        return invalid(self.name, "it does not begin as an archive of Relive does")

    def content(self, name: str) -> bytes:
        """The whole content of the next entry, which must be called so."""
        return b"".join(self.chunks(name, most=_MOST_IN_MEMORY))

    def chunks(self, name: str, *, most: int | None = None) -> Iterator[bytes]:
        """The same piece by piece."""
        size = self._size(name)
        if most is not None and size > most:
            raise invalid(self.name, f"{name} is too large")
        left = size
        while left:
            data = self._exactly(min(left, _CHUNK))
            left -= len(data)
            yield data
        if any(self._exactly(-size % _BLOCK)):
            raise invalid(self.name, f"{name} is followed by bytes that mean nothing")

    def end(self) -> None:
        """To be called behind the last entry: there must be nothing more."""
        if self._exactly(len(the_end())) != the_end() or self._read(1):
            raise invalid(self.name, "something stands behind its last entry")

    def _size(self, name: str) -> int:
        header = self._exactly(_BLOCK)
        try:
            info = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
            if info.size < 0 or _header(name, info.size) != header:
                raise ValueError("a header that Relive does not write")
        except (tarfile.HeaderError, ValueError) as error:
            raise invalid(self.name, f"{name} does not stand where it should") from error
        return info.size

    def _exactly(self, size: int) -> bytes:
        data = self._read(size)
        if len(data) != size:
            raise invalid(self.name, "it is cut off")
        return data


def invalid(name: str, cause: str) -> ArchiveInvalid:
    """The error of an archive that cannot be used."""
    return ArchiveInvalid(
        f"{name} cannot be imported", cause=cause, remedy="export it again; nothing of it was taken in"
    )
