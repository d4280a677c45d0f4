"""The index: an SQLite file that answers what can be listed and searched without opening every manifest.

Everything in it comes from manifests, and ``Store.rebuild_index`` makes it anew from them, so it need not be durable.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from relive.model.commit import CommitId, Manifest

__all__ = ["Index", "StoredCommit", "objects_of", "size_of"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS commits (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, life TEXT, kind TEXT NOT NULL, root INTEGER NOT NULL,
    trigger TEXT NOT NULL, taken_wall_ns INTEGER NOT NULL, sequence INTEGER, capture TEXT NOT NULL,
    pause_us INTEGER NOT NULL, durable_us INTEGER, bytes INTEGER NOT NULL, new_bytes INTEGER NOT NULL, parent TEXT
);
CREATE INDEX IF NOT EXISTS commits_by_name ON commits (name, taken_wall_ns);
CREATE INDEX IF NOT EXISTS commits_by_life ON commits (life, sequence);
CREATE TABLE IF NOT EXISTS uses (object TEXT NOT NULL, commit_id TEXT NOT NULL, PRIMARY KEY (object, commit_id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS uses_by_commit ON uses (commit_id);
"""
_COLUMNS = "id, name, life, kind, root, trigger, taken_wall_ns, sequence, capture, pause_us, durable_us, bytes, new_bytes, parent"


@dataclass(frozen=True, slots=True)
class StoredCommit:
    """One line of ``relive log``.

    Attributes:
        sequence: cursor into the recording; None for a target that was not recorded.
        pause_us: microseconds the target stood still.
        durable_us: microseconds from the request for the commit until it was safe; None if not known.
        bytes: size of all it refers to; new_bytes: of what was not in the store before.
    """

    id: CommitId
    name: str
    life: str | None
    kind: str
    root: int
    trigger: str
    taken_wall_ns: int
    sequence: int | None
    capture: str
    pause_us: int
    durable_us: int | None
    bytes: int
    new_bytes: int
    parent: CommitId | None


class Index:
    """Opens one connection; use each instance from one thread."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=NORMAL")
        self._database.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def add(
        self, commit_id: CommitId, manifest: Manifest, *, durable_us: int | None, size: int, new_bytes: int
    ) -> None:
        """Enter a commit; entering it again replaces what was said of it."""
        row = (
            commit_id,
            manifest.target.name,
            manifest.target.life,
            manifest.target.kind.value,
            manifest.target.root,
            manifest.trigger.value,
            manifest.taken_wall_ns,
            manifest.cursor.sequence if manifest.cursor else None,
            manifest.capture,
            manifest.pause_us,
            durable_us,
            size,
            new_bytes,
            manifest.parents[0] if manifest.parents else None,
        )
        marks = ", ".join("?" * len(row))
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute(f"INSERT OR REPLACE INTO commits ({_COLUMNS}) VALUES ({marks})", row)
            self._database.executemany(
                "INSERT OR IGNORE INTO uses VALUES (?, ?)",
                [(name, commit_id) for name in objects_of(manifest)],
            )

    def used_only_by(self, commit_id: CommitId) -> list[str]:
        """Objects that no other commit uses."""
        rows = self._database.execute(
            "SELECT object FROM uses u WHERE commit_id = ? AND NOT EXISTS "
            "(SELECT 1 FROM uses o WHERE o.object = u.object AND o.commit_id != u.commit_id)",
            (commit_id,),
        )
        return [name for (name,) in rows]

    def is_used(self, name: str) -> bool:
        """A commit uses the object."""
        rows = self._database.execute("SELECT 1 FROM uses WHERE object = ? LIMIT 1", (name,))
        return rows.fetchone() is not None

    def remove(self, commit_id: CommitId) -> None:
        """Forget a commit."""
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute("DELETE FROM uses WHERE commit_id = ?", (commit_id,))
            self._database.execute("DELETE FROM commits WHERE id = ?", (commit_id,))

    def clear(self) -> None:
        """Forget all commits."""
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute("DELETE FROM uses")
            self._database.execute("DELETE FROM commits")

    def ids(self) -> set[CommitId]:
        """All commits."""
        return {CommitId(row[0]) for row in self._database.execute("SELECT id FROM commits")}

    def by_prefix(self, prefix: str, most: int = 2) -> list[CommitId]:
        """Ids that begin so, at most ``most``."""
        rows = self._database.execute(
            "SELECT id FROM commits WHERE id >= ? AND id < ? LIMIT ?", (prefix, prefix + "g", most)
        )
        return [CommitId(row[0]) for row in rows]

    def get(self, commit_id: CommitId) -> StoredCommit | None:
        """One commit, or None."""
        return next(self._select("WHERE id = ?", (commit_id,)), None)

    def newest_first(self, name: str | None = None, limit: int = -1) -> list[StoredCommit]:
        """Commits of one target, or of all."""
        where, values = ("WHERE name = ?", [name]) if name is not None else ("", [])
        return list(self._select(f"{where} ORDER BY taken_wall_ns DESC LIMIT ?", (*values, limit)))

    def newest_before(self, name: str, wall_ns: int) -> StoredCommit | None:
        """The newest commit of a target that was taken at or before a time."""
        query = "WHERE name = ? AND taken_wall_ns <= ? ORDER BY taken_wall_ns DESC LIMIT 1"
        return next(self._select(query, (name, wall_ns)), None)

    def before_sequence(self, life: str, sequence: int) -> StoredCommit | None:
        """The newest commit of a life whose cursor lies before an event of its recording."""
        query = "WHERE life = ? AND sequence < ? ORDER BY sequence DESC, taken_wall_ns DESC LIMIT 1"
        return next(self._select(query, (life, sequence)), None)

    def latest_of_life(self, life: str) -> StoredCommit | None:
        """The newest commit of one life."""
        return next(self._select("WHERE life = ? ORDER BY taken_wall_ns DESC LIMIT 1", (life,)), None)

    def _select(self, rest: str, values: Iterable[object]) -> Iterator[StoredCommit]:
        # What is no Unicode (an argument of stray bytes) cannot be looked up, and is nobody's name.
        given = [
            value.encode(errors="replace").decode() if isinstance(value, str) else value for value in values
        ]
        rows = self._database.execute(f"SELECT {_COLUMNS} FROM commits {rest}", given)
        return (StoredCommit(*row) for row in rows)


def objects_of(manifest: Manifest) -> set[str]:
    """The names of all objects a manifest refers to; its images are objects only in version 1."""
    names = {image.object for image in manifest.images} if manifest.version == 1 else set()
    names.update(
        entry.object for layer in manifest.layers for entry in layer.entries if entry.object is not None
    )
    return names


def size_of(manifest: Manifest) -> int:
    """Bytes of all that a manifest refers to."""
    size = sum(image.size for image in manifest.images)
    return size + sum(entry.size for layer in manifest.layers for entry in layer.entries)
