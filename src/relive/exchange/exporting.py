"""Writing a commit to one file, see ``archive``; encrypted where keys are given, see ``envelope``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography.fernet import MultiFernet

from relive.errors import UsageError
from relive.exchange.archive import MANIFEST, MARK, PLACEMENT, entry, entry_name, mark, the_end
from relive.exchange.envelope import Sealer
from relive.exchange.traffic import Show
from relive.model.commit import CommitId
from relive.store import Store
from relive.store.deliveries import Outgoing
from relive.store.durable import FreshFile
from relive.store.parts import check_part
from relive.store.troubles import disk_errors

__all__ = ["Exported", "export", "writing"]

_CHUNK = 1 << 20  # [bytes]


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote; ``bytes`` are those of the file, ``parts`` how many files and packs are in it."""

    commit: CommitId
    parts: int
    bytes: int


def export(
    store: Store, commit_id: CommitId, goal: Path, *, keys: MultiFernet | None, force: bool, show: Show
) -> Exported:
    """Write a commit to a file, which is there whole and durable on return, or not at all.

    Raises:
        UsageError: the file is there already, and ``force`` is not given, or its directory is not there.
        RefUnknown, StoreError: the commit cannot be read.
        DiskFull: the file could not be written.
    """
    with writing(goal, force=force) as fresh, store.deliveries.hold(commit_id) as outgoing:
        total = sum(path.stat().st_size for path in outgoing.paths.values())
        with show(f"Exporting {commit_id[:10]}", total) as done:
            _write(outgoing, fresh.write, keys, done)
        return Exported(commit_id, len(outgoing.commit.parts), fresh.size)


@contextlib.contextmanager
def writing(goal: Path, *, force: bool) -> Iterator[FreshFile]:
    """A file to write to; when the block ends well it is at its place, whole and durable, and else it is gone.

    Raises:
        UsageError, DiskFull, StoreError: as ``export``.
    """
    if goal.exists() and not force:
        raise UsageError(f"{goal} exists", remedy="use --force to replace it, or name another file")
    if not goal.parent.is_dir():
        raise UsageError(f"there is no directory {goal.parent}", remedy="make it first")
    with disk_errors(f"writing {goal}", goal.parent):
        fresh = FreshFile(goal.parent, f".{goal.name[:150]}")
        try:
            yield fresh
            fresh.publish(goal)
        finally:
            fresh.discard()


def _write(
    outgoing: Outgoing,
    write: Callable[[bytes], None],
    keys: MultiFernet | None,
    done: Callable[[int], None],
) -> None:
    if keys is None:
        for chunk in _archive(outgoing, done):
            write(chunk)
        return
    sealer = Sealer(keys, write)
    for chunk in _archive(outgoing, done):
        sealer.write(chunk)
    sealer.finish()


def _archive(outgoing: Outgoing, done: Callable[[int], None]) -> Iterator[bytes]:
    commit = outgoing.commit
    small = {MARK: mark(commit.id), MANIFEST: commit.manifest_bytes, PLACEMENT: commit.placement_bytes}
    for name, content in small.items():
        yield from entry(name, len(content), iter([content]))
    for part in commit.parts:
        path = outgoing.paths[part]
        check_part(part, path)  # what is damaged here is not spread
        yield from entry(entry_name(part), path.stat().st_size, _chunks(path, done))
    yield the_end()


def _chunks(path: Path, done: Callable[[int], None]) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
            done(len(chunk))
