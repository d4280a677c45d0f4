"""Imports: a commit from one file, whoever wrote it: Relive, or an engine of containers as a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from cryptography.fernet import MultiFernet

from relive.config import Settings
from relive.containers.archive.compression import Compression, find_compression
from relive.containers.archive.importing import import_checkpoint
from relive.errors import UsageError
from relive.model.commit import HostFacts
from relive.remotes.archive import MARK, Reader, invalid
from relive.remotes.envelope import Opener, is_sealed
from relive.remotes.imported import Imported
from relive.remotes.importing import ArchiveImport
from relive.remotes.parallel import Show
from relive.store import Store

__all__ = ["import_archive"]

_TAR_MAGIC, _TAR_MAGIC_AT, _TAR_BLOCK = b"ustar", 257, 512


def import_archive(
    store: Store,
    path: Path,
    host: HostFacts,
    *,
    keys: Callable[[], MultiFernet],
    force: bool,
    show: Show,
    settings: Settings | None = None,
) -> Imported:
    """Take a commit in, from Relive's own archive or that of a container; durable on return.

    Args:
        settings: of the home that takes in the incidents, too, and the commits that they need; None: they are passed over.
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
        reader = Reader(str(path), source)
        return ArchiveImport(store, reader, host, force=force).run(settings, path.stat().st_size, show)


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
