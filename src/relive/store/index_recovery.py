"""Recovering the index from the manifests: one that is damaged is made anew, and lines that a crash kept from it are added.

The manifests are the truth: a commit is there when its manifest is. The index only finds them fast, so nothing is lost with it
but what no manifest says (how long the commit took to be durable, how much of it was new).
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection, Mapping
from pathlib import Path

from relive.errors import ObjectCorrupt, RefUnknown
from relive.kernel.disk_errors import takes_writes
from relive.model.commit import CommitId
from relive.store.index import CommitIndex, StoredCommit, believed_lines, size_of
from relive.store.lock import StoreLock
from relive.store.manifests import Manifests

__all__ = ["add_lines", "open_index", "renew_lines"]


def open_index(path: Path, lock: StoreLock, manifests: Manifests) -> CommitIndex:
    """Open the index; one that is no database is replaced by an empty one.

    On a disk that takes no writes here it is one in memory, made from all manifests: SQLite cannot read a file with a write-ahead
    log without writing.

    Raises:
        sqlite3.OperationalError: the file is not to blame: disk full, no right to write.
    """
    if not takes_writes(path.parent):
        index = CommitIndex(None)
        known = believed_lines(path)
        renew_lines(index, manifests, {commit_id: known.get(commit_id) for commit_id in manifests.ids()})
        return index
    if path.exists():
        with contextlib.suppress(sqlite3.DatabaseError):
            return CommitIndex(path)
    # Alone: SQLite does not wait when several processes give a fresh file its journal mode at once.
    with lock.held(shared=False):
        try:
            return CommitIndex(path)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            for part in path.parent.glob(f"{path.name}*"):
                part.unlink(missing_ok=True)
            return CommitIndex(path)


def renew_lines(
    index: CommitIndex, manifests: Manifests, commits: Mapping[CommitId, StoredCommit | None]
) -> list[CommitId]:
    """Make lines anew from their manifests, and remove those of commits that are not there. Needs no lock: manifests do not change.

    Args:
        commits: with what is believed of them still, their durable time and new bytes; None: nothing.

    Returns:
        Those of which nothing was believed.
    """
    for commit_id, known in commits.items():
        try:
            manifest = manifests.read(commit_id)
        except RefUnknown:
            index.remove(commit_id)
            continue
        except ObjectCorrupt:
            continue  # `verify` tells of it
        index.add(
            commit_id,
            manifest,
            durable_us=known.durable_us if known is not None else None,
            size=size_of(manifest),
            new_bytes=known.new_bytes if known is not None else 0,
        )
    return [commit_id for commit_id, known in commits.items() if known is None]


def add_lines(index: CommitIndex, manifests: Manifests, commits: Collection[CommitId]) -> list[CommitId]:
    """Give these commits their lines; call it with the store locked alone. Returns those whose manifests cannot be read."""
    left_out = []
    for commit_id in sorted(commits):
        try:
            manifest = manifests.read(commit_id)
        except ObjectCorrupt:
            left_out.append(commit_id)
            continue
        index.add(commit_id, manifest, durable_us=None, size=size_of(manifest), new_bytes=0)
    return left_out
