"""A remote as a source for ``maintenance.repair``: what is damaged here may still be whole there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from relive.errors import UsageError
from relive.maintenance.problems import Kind
from relive.maintenance.source import DirectorySource, RepairSource, store_in
from relive.model.commit import CommitId
from relive.remotes.remote import Remote, open_remote
from relive.remotes.remote_layout import (
    FORMAT_PATH,
    manifest_path,
    part_directory,
    pieces_of,
    placement_path,
    whole_size,
)
from relive.store.transfer_parts import PartKind, TransferPart

__all__ = ["RemoteSource", "open_source"]

_PARTS = {Kind.PACK: PartKind.PACK, Kind.OBJECT: PartKind.OBJECT}


class RemoteSource:
    """What was pushed to a remote. Every call raises RemoteUnreachable, RemoteRefused, RemoteUnknown."""

    def __init__(self, remote: Remote) -> None:
        """Raises StoreVersionUnknown where a newer Relive wrote it, RemoteUnknown where nothing was ever pushed to it."""
        remote.check_format()
        self._remote = remote

    def fetch(self, kind: Kind, name: str, target: Path) -> bool:
        """As ``RepairSource.fetch``; a part of which not every piece is there counts as none."""
        if kind in _PARTS:
            part = TransferPart(_PARTS[kind], name)
            size = whole_size(self._remote.sizes(part_directory(part)))
            paths = [] if size is None else [piece.path for piece in pieces_of(part, size)]
        else:
            path_of = manifest_path if kind is Kind.MANIFEST else placement_path
            paths = [path_of(CommitId(name))]
        return self._write(paths, target)

    def _write(self, paths: Iterable[str], target: Path) -> bool:
        """Write what lies there one after the other; False, and no file, where one of them is not there, or none named."""
        is_there = False
        with target.open("wb") as file:
            for path in paths:
                data = self._remote.read(path)
                is_there = data is not None
                if data is None:
                    break
                file.write(data)
        if not is_there:
            target.unlink()
        return is_there


def open_source(text: str) -> RepairSource:
    """The source that a path or a URL names: a store's directory, or a remote to which was pushed.

    Raises:
        UsageError: it is neither; RemoteUnknown, RemoteUnreachable, RemoteRefused, StoreVersionUnknown: as ``RemoteSource``.
    """
    found = store_in(text)
    if found is not None:
        return DirectorySource(found)
    if "://" in text:
        return RemoteSource(open_remote(text, make=False))
    directory = Path(text).absolute()
    if not (directory / FORMAT_PATH).is_file():
        raise UsageError(
            f"there is no store in {text!r}",
            remedy="name a store's directory, the RELIVE_HOME it lies in, or a remote",
        )
    return RemoteSource(open_remote(directory.as_uri(), make=False))
