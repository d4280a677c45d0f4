"""Freeing what files held before they changed, once no commit is left that needs it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from relive.checkpoint.journal import JournalRecord, RecordKind, read_journal
from relive.config import Settings
from relive.errors import CapsuleVersionUnknown
from relive.model.capsule import CapsuleFacts
from relive.model.life_paths import LifePaths
from relive.store import Store, StoredCommit

__all__ = ["free_bases", "unneeded_bases"]


def unneeded_bases(
    records: Iterable[JournalRecord], *, oldest_ns: int | None, has_earlier: bool
) -> list[int]:
    """Serials of the bases of a life that no commit needs.

    Args:
        oldest_ns: when the oldest commit of that life was taken, by the monotonic clock; None: it has none.
        has_earlier: there are commits of earlier lives of the same capsule, which need all of them.
    """
    if has_earlier:
        return []
    return [
        record.serial
        for record in records
        if record.kind is RecordKind.REGULAR and (oldest_ns is None or record.time_ns < oldest_ns)
    ]


def free_bases(settings: Settings, store: Store, name: str) -> int:
    """Remove those of a capsule's lives; returns the bytes that were freed.

    Raises:
        OSError: they cannot be read or removed.
    """
    commits = store.log(name)
    freed = 0
    has_earlier = False
    for paths in _lives(settings.capsules / name):
        own = [commit for commit in commits if commit.life == paths.directory.name]
        if (paths.files / "base").is_dir() and any((paths.files / "base").iterdir()):
            oldest_ns = _taken_ns(store, own[-1]) if own else None
            # A life that runs keeps bases for the commit that is just being made durable.
            if own or paths.closed.exists():
                try:
                    records = read_journal(paths.files)
                except CapsuleVersionUnknown:
                    records = []  # what they are for is not known here
                for serial in unneeded_bases(records, oldest_ns=oldest_ns, has_earlier=has_earlier):
                    freed += _remove(paths.files / "base" / str(serial))
        has_earlier = has_earlier or bool(own)
    return freed


def _lives(directory: Path) -> list[LifePaths]:
    found: list[tuple[int, LifePaths]] = []
    for state in directory.glob("*/state.json"):
        if not state.parent.is_symlink():
            facts = CapsuleFacts.model_validate_json(state.read_bytes())
            found.append((facts.started_wall_ns, LifePaths(state.parent)))
    return [paths for _, paths in sorted(found, key=lambda one: one[0])]


def _taken_ns(store: Store, commit: StoredCommit) -> int:
    return store.facts(commit.id).taken_monotonic_ns


def _remove(path: Path) -> int:
    try:
        size = path.stat().st_blocks * 512
        path.unlink()
    except FileNotFoundError:
        return 0
    return size
