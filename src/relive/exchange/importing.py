"""Taking a commit in from an archive: read and judged first, then its parts, each checked by its name.

A file that is no archive of Relive may be one of a container (see ``checkpoint``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from cryptography.fernet import MultiFernet

from relive.errors import ObjectCorrupt, ObjectMissing, UsageError
from relive.exchange.archive import MANIFEST, MARK, PLACEMENT, Reader, entry_name, invalid
from relive.exchange.checkpoint.compression import Compression, find_compression
from relive.exchange.checkpoint.importing import import_checkpoint
from relive.exchange.envelope import Opener, is_sealed
from relive.exchange.fitness import refuse_unfit
from relive.exchange.imported import Imported
from relive.exchange.traffic import Show
from relive.model.commit import HostFacts
from relive.store import Store
from relive.store.deliveries import Deliveries
from relive.store.pages.packfile import HEAD_SIZE
from relive.store.parts import Part, PartKind
from relive.store.troubles import disk_errors

__all__ = ["Imported", "import_archive"]


_TAR_MAGIC, _TAR_MAGIC_AT, _TAR_BLOCK = b"ustar", 257, 512


def import_archive(
    store: Store, path: Path, host: HostFacts, *, keys: Callable[[], MultiFernet], force: bool, show: Show
) -> Imported:
    """Take a commit in, from Relive's own archive or that of a container; durable on return.

    Args:
        keys: asked for where the archive is encrypted.
        force: take it in although ``host`` cannot run it.

    Raises:
        ArchiveInvalid, ObjectCorrupt: it was changed or cut off, or is none; the store shows nothing of it.
        KeyMissing, KeyWrong: it, or its packs, cannot be opened.
        HostUnfit, SignatureInvalid: it cannot run here, or is not trusted.
        UsageError: there is no such file. DiskFull, StoreError: it could not be taken in.
    """
    with _opened(path) as file:
        if _is_checkpoint(str(path), file):
            return import_checkpoint(store, path, file, host, force=force, show=show)
        source = Opener(str(path), keys(), file).read if is_sealed(file) else file.read
        return _import_own(store, path, Reader(str(path), source), host, force=force, show=show)


def _import_own(
    store: Store, path: Path, reader: Reader, host: HostFacts, *, force: bool, show: Show
) -> Imported:
    deliveries = store.deliveries
    with deliveries.receiving():
        commit_id = reader.commit()
        manifest, placement = reader.content(MANIFEST), reader.content(PLACEMENT)
        commit = deliveries.open(commit_id, manifest, lambda: placement)
        if deliveries.whole(commit_id) is not None:
            return Imported(commit_id, 0, 0, len(commit.parts), False)
        if not force:
            refuse_unfit(commit.manifest.host, host)
        with show(f"Importing {commit_id[:10]}", path.stat().st_size) as done:
            missing = set(deliveries.missing(commit))
            size = sum(_take(deliveries, reader, part, part in missing, done) for part in commit.parts)
            reader.end()
        if deliveries.receive(commit, size):
            raise ObjectMissing(
                "parts of the commit are gone again",
                cause="other commits that it shares them with are being dropped here",
                remedy="run it again",
            )
    return Imported(commit_id, len(missing), size, len(commit.parts) - len(missing), True)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise UsageError(f"{path} cannot be read", cause=str(error), remedy="name an archive") from error
    with file:
        yield file


def _is_checkpoint(name: str, file: BinaryIO) -> bool:
    """The file, which must stand at its begin and stays there, is packed, or a tar that does not begin as Relive's own."""
    try:
        if is_sealed(file):
            return False
        if find_compression(name, file) is not Compression.NONE:
            return True
        begin = file.read(_TAR_BLOCK)
        file.seek(0)
    except OSError as error:  # a broken disk
        raise invalid(name, str(error)) from error
    is_tar = begin[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC)
    return is_tar and not begin.startswith(MARK.encode() + b"\0")


def _take(
    deliveries: Deliveries,
    reader: Reader,
    part: Part,
    is_missing: bool,
    done: Callable[[int], None],
) -> int:
    """Gather a part, or pass it over where it is not missing; returns the bytes gathered."""
    chunks = reader.chunks(entry_name(part))
    if not is_missing:
        for chunk in chunks:
            done(len(chunk))
        return 0
    size = 0
    goal = deliveries.arriving(part)
    with disk_errors("receiving a commit", goal.parent), goal.open("wb") as file:
        for chunk in chunks:
            if size == 0 and part.kind is PartKind.PACK:
                deliveries.check_seal(part, chunk[:HEAD_SIZE])
            file.write(chunk)
            size += len(chunk)
            done(len(chunk))
    try:
        deliveries.check_arrived(part)
    except ObjectCorrupt as error:
        raise invalid(reader.name, f"{part} was changed: {error.cause}") from error
    return size
