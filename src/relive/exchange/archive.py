"""An archive's bytes: a tar of one commit, read so strictly that every byte of it counts.

Entries in this order: ``relive.json`` ({"version", "commit"}), ``manifest.json``, ``placement``, then the commit's objects and
packs as ``objects/NAME`` and ``packs/NAME``, in the order of their names, and two empty blocks. Any tar can unpack it. A reader
knows each next name before it comes, and there is one way to write a header; so what was changed, cut off or put in another
order is noticed. Contents prove themselves by their names.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator

from relive.errors import ArchiveInvalid, StoreVersionUnknown
from relive.model.commit import CommitId
from relive.store.objects import is_id
from relive.store.parts import Part

__all__ = ["MANIFEST", "MARK", "PLACEMENT", "Reader", "entry", "entry_name", "invalid", "mark", "the_end"]

MARK, MANIFEST, PLACEMENT = "relive.json", "manifest.json", "placement"
_VERSION = 1
_BLOCK = 512
_CHUNK = 1 << 20  # [bytes]
_MOST_IN_MEMORY = 1 << 30  # [bytes] of a manifest


def entry_name(part: Part) -> str:
    """The entry of a part."""
    return f"{part.kind}/{part.name}"


def mark(commit_id: CommitId) -> bytes:
    """What the first entry holds."""
    return json.dumps({"version": _VERSION, "commit": commit_id}).encode()


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


class Reader:
    """Reads an archive from its begin to its end. Every method raises ArchiveInvalid where it is not as ``entry`` writes it.

    Args:
        read: gives the next bytes, fewer than asked for only at the end.
    """

    def __init__(self, name: str, read: Callable[[int], bytes]) -> None:
        self.name = name
        self._read = read

    def commit(self) -> CommitId:
        """The commit that it holds; to be asked first. Raises StoreVersionUnknown where a newer Relive wrote it."""
        text = self.content(MARK)
        try:
            value = json.loads(text)
            version, commit_id = value["version"], value["commit"]
        except (ValueError, KeyError, TypeError):
            raise invalid(self.name, "it does not begin as an archive of Relive does") from None
        if version != _VERSION:
            raise StoreVersionUnknown(
                f"the archive {self.name} has format {version}",
                cause=f"this Relive reads format {_VERSION}",
                remedy="use the Relive that wrote it",
            )
        if not isinstance(commit_id, str) or not is_id(commit_id) or text != mark(CommitId(commit_id)):
            raise invalid(self.name, "it does not begin as an archive of Relive does")
        return CommitId(commit_id)

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
