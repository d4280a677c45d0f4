"""Writing a commit to one file, with its incidents, see ``archive``; encrypted where keys are given, see ``envelope``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.fernet import MultiFernet

from relive.errors import UsageError
from relive.kernel.disk_errors import disk_errors
from relive.model.commit import CommitId
from relive.remotes.archive import MARK, ArchiveContents, case_name, entry, entry_name, record_name, the_end
from relive.remotes.envelope import Sealer
from relive.remotes.incident_records import Packed
from relive.remotes.parallel import Show
from relive.store import Store
from relive.store.atomic_io import FreshFile
from relive.store.transfer import Outgoing
from relive.store.transfer_parts import TransferPart, check_part

__all__ = ["Exported", "export", "writing"]

_CHUNK = 1 << 20  # [bytes]


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote; ``bytes`` are those of the file, ``parts`` how many files and packs are in it."""

    commit: CommitId
    parts: int
    bytes: int


def export(
    store: Store,
    commit_id: CommitId,
    target: Path,
    *,
    keys: MultiFernet | None,
    force: bool,
    show: Show,
    incidents: Sequence[Packed] = (),
) -> Exported:
    """Write a commit to a file, which is there whole and durable on return, or not at all.

    Args:
        incidents: that go along, with the commits that they need.

    Raises:
        UsageError: the file is there already, and ``force`` is not given, or its directory is not there.
        RefUnknown, StoreError: the commit cannot be read.
        DiskFull: the file could not be written.
    """
    needed = {commit_id: None} | {one: None for incident in incidents for one in incident.facts.commits}
    with contextlib.ExitStack() as stack:
        fresh = stack.enter_context(writing(target, force=force))
        commits = [stack.enter_context(store.transfers.hold(one)) for one in needed]
        paths = {part: path for outgoing in commits for part, path in outgoing.paths.items()}
        total = sum(path.stat().st_size for path in paths.values()) + sum(one.facts.size for one in incidents)
        with show(f"Exporting {commit_id[:10]}", total) as done:
            _write(_archive(commits, incidents, done), fresh.write, keys)
        return Exported(commit_id, len(paths), fresh.size)


@contextlib.contextmanager
def writing(target: Path, *, force: bool) -> Iterator[FreshFile]:
    """A file to write to; when the block ends well it is at its place, whole and durable, and else it is gone.

    Raises:
        UsageError, DiskFull, StoreError: as ``export``.
    """
    if target.exists() and not force:
        raise UsageError(f"{target} exists", remedy="use --force to replace it, or name another file")
    if not target.parent.is_dir():
        raise UsageError(f"there is no directory {target.parent}", remedy="make it first")
    with disk_errors(f"writing {target}", target.parent):
        fresh = FreshFile(target.parent, f".{target.name[:150]}")
        try:
            yield fresh
            fresh.publish(target)
        finally:
            fresh.discard()


def _write(archive: Iterator[bytes], write: Callable[[bytes], None], keys: MultiFernet | None) -> None:
    if keys is None:
        for chunk in archive:
            write(chunk)
        return
    sealer = Sealer(keys, write)
    for chunk in archive:
        sealer.write(chunk)
    sealer.finish()


def _archive(
    commits: Sequence[Outgoing], incidents: Sequence[Packed], done: Callable[[int], None]
) -> Iterator[bytes]:
    held = ArchiveContents(tuple(one.commit.id for one in commits), tuple(one.id for one in incidents))
    yield from _small(MARK, held.mark())
    written: set[TransferPart] = set()
    for outgoing in commits:
        commit = outgoing.commit
        yield from _small(held.manifest(commit.id), commit.manifest_bytes)
        yield from _small(held.placement(commit.id), commit.placement_bytes)
        for part in commit.parts:
            if part not in written:
                path = outgoing.paths[part]
                check_part(part, path)  # what is damaged here is not spread
                yield from entry(entry_name(part), path.stat().st_size, _chunks(path, done))
        written |= set(commit.parts)
    for incident in incidents:
        yield from _small(record_name(incident.id), incident.record)
        yield from entry(case_name(incident.id), incident.facts.size, _chunks(incident.case, done))
    yield the_end()


def _small(name: str, content: bytes) -> Iterator[bytes]:
    yield from entry(name, len(content), iter([content]))


def _chunks(path: Path, done: Callable[[int], None]) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
            done(len(chunk))
