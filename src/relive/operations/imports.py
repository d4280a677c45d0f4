"""Imports: a commit from one file, whoever wrote it: Relive, or an engine of containers as a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from cryptography.fernet import MultiFernet
from pydantic import Field

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.target import host_facts
from relive.config import Settings
from relive.containers.archive.compression import Compression, find_compression
from relive.containers.archive.importing import import_checkpoint
from relive.containers.archive.unpacking import not_one
from relive.errors import UsageError
from relive.model.commit import CommitId, HostFacts
from relive.model.token_scope import Scope
from relive.operations.operation import Effect, Faces, Operation, Params, Result, Route, Tool
from relive.operations.progress import Progress
from relive.remotes.archive import MARK, ArchiveReader, invalid
from relive.remotes.envelope import Opener, is_sealed, read_keys
from relive.remotes.imported import Imported
from relive.remotes.importing import ArchiveImport
from relive.remotes.parallel import Show
from relive.store import Store

__all__ = ["IMPORT", "ImportDone", "ImportParams", "import_archive", "import_commit"]


class ImportParams(Params):
    """What is taken in."""

    file: Path = Field(
        description="What `relive export`, or podman, CRI-O or the kubelet as a checkpoint wrote"
    )
    tag: str | None = Field(default=None, description="Give the commit this tag")
    key_file: Path | None = Field(
        default=None, description="Keys of encrypted archives, one a line; without, the setting export_keys"
    )
    incidents: bool = Field(
        default=True, description="Also the incidents that are in it, and the commits that they need"
    )
    force: bool = Field(default=False, description="Take it in although this host cannot run it; move a tag")


class ImportDone(Result):
    """What is here now.

    Attributes:
        is_new: the commit was not here.
        taken_parts, taken_bytes: that were taken in; ``held_parts`` were here.
        incidents: numbers here of those that came along; ``new_incidents``: of those among them that were not here.
    """

    id: CommitId
    file: str
    tag: str | None
    is_new: bool
    taken_parts: int
    taken_bytes: int
    held_parts: int
    incidents: list[int]
    new_incidents: list[int]


def import_commit(settings: Settings, params: ImportParams, progress: Progress) -> ImportDone:
    """Take a commit in that was exported to a file, or a container's checkpoint archive; raises as ``import_archive``."""
    store = Store(settings.store)
    imported = import_archive(
        store,
        params.file,
        host_facts(CriuTools(settings.tools_path).version),
        keys=lambda: read_keys(params.key_file or settings.export_keys),
        force=params.force,
        show=progress.transfer,
        settings=settings if params.incidents else None,
    )
    if params.tag is not None:
        store.tag(params.tag, imported.commit, force=params.force)
    return ImportDone(
        id=imported.commit,
        file=str(params.file),
        tag=params.tag,
        is_new=imported.is_new,
        taken_parts=imported.parts,
        taken_bytes=imported.bytes,
        held_parts=imported.held,
        incidents=[one.number for one in imported.incidents],
        new_incidents=[one.number for one in imported.incidents if one.is_new],
    )


IMPORT = Operation(
    "import",
    ImportParams,
    ImportDone,
    import_commit,
    Faces(
        cli=("import",),
        rest=Route(
            "POST",
            "/imports",
            frozenset({Scope.HOST}),
            "Take a commit in from a file of the server's host",
            is_task=True,
        ),
        mcp=Tool(
            Effect.ADDS,
            "Take a commit in from a file of this host: what `relive export` wrote, or a container's checkpoint.",
            is_for_host=True,
        ),
    ),
)

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
        reader = ArchiveReader(str(path), source)
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
    """The file, which must stand at its begin and stays there, is packed, or a tar that does not begin as Relive's own.

    Raises ArchiveInvalid where it is neither that nor an archive of Relive.
    """
    try:
        if is_sealed(file):
            return False
        if find_compression(name, file) is not Compression.NONE:
            return True
        begin = file.read(_TAR_BLOCK)
        file.seek(0)
    except OSError as error:  # a broken disk
        raise invalid(name, str(error)) from error
    if begin.startswith(MARK.encode() + b"\0"):
        return False
    if not begin[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC):
        raise not_one(name, "it begins as no archive does" if begin else "it is empty")
    return True
