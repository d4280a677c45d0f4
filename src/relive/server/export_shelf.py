"""Exports that the server keeps for a while, to be fetched: ``server/exports/ID.export``, and a row each in ``exports.sqlite``.

A file never changes once its row is there. All of them together have a quota, each an end; ``sweep`` removes what has expired, and
what a crash left behind.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sqlite3
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from relive.errors import ExportsFull, KeptExportUnknown, ObjectCorrupt, UsageError
from relive.kernel.atomic_write import sync_directory
from relive.kernel.claims import remove_left_over
from relive.kernel.disk_errors import disk_errors
from relive.server.database import SqliteFile
from relive.server.key_files import private_directory

__all__ = ["ExportStore", "KeptExport", "new_export_id"]

_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)  # so that no id is a path
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)  # needs no quoting in a header
_GRACE = 3600.0  # [s] that a file may lie there without a row: its writer may be at work
_QUOTA = 20 << 30  # [bytes]
_SCHEMA = """
CREATE TABLE IF NOT EXISTS exports (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, bytes INTEGER NOT NULL, asked_by TEXT NOT NULL, created INTEGER NOT NULL,
    expires INTEGER NOT NULL
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class KeptExport:
    """An export. ``name`` is what a browser calls the file; times are Unix seconds."""

    id: str
    name: str
    bytes: int
    asked_by: str
    created: int
    expires: int

    @property
    def etag(self) -> str:
        """The entity tag: strong, since the bytes under an id never change."""
        return f'"{self.id}"'


def new_export_id() -> str:
    """128 random bits as 32 hexadecimal digits."""
    return secrets.token_hex(16)


class ExportStore:
    """All of one ``$RELIVE_HOME``; from any thread, by several processes."""

    def __init__(self, server: Path, *, quota: int = _QUOTA, clock: Callable[[], float] = time.time) -> None:
        """
        Args:
            server: ``settings.server``.
            quota: bytes of all exports together.

        Raises:
            StoreVersionUnknown, DiskFull, PermissionMissing, StoreBusy, StoreError: it cannot be opened.
        """
        self._directory = private_directory(private_directory(server) / "exports")
        self._quota, self._clock = quota, clock
        self._database = SqliteFile(server / "exports.sqlite", _SCHEMA)

    def store_export(
        self, identity: str, write: Callable[[Path], object], *, name: str, lifetime: int, asked_by: str
    ) -> KeptExport:
        """Have an export written and keep it; one that is kept already is given back as it is, so that a step may be done again.

        Args:
            identity: of ``new_export_id``.
            write: writes the file at the path it gets, which does not exist (``remotes.exporting.export``); its errors come out.
            lifetime: seconds.

        Raises:
            UsageError: the name cannot be one, or the lifetime is none.
            ExportsFull: the quota is used up, before or with this one; nothing of it stays.
            DiskFull, StoreBusy, StoreError: it could not be kept; nothing of it stays.
        """
        path = self._path(identity)
        if not _NAME.fullmatch(name) or lifetime <= 0:
            raise UsageError(f"an export cannot be called {name!r} and kept for {lifetime} seconds")
        self.sweep()
        with contextlib.suppress(KeptExportUnknown):
            return self.get(identity)
        self._refuse_over_quota(self._database.rows("SELECT coalesce(sum(bytes), 0) FROM exports")[0][0] + 1)
        # Under a name of its own: another attempt at the same export may be at work.
        part = path.with_name(f"{identity}.{secrets.token_hex(8)}.part")
        try:
            write(part)
            return self._publish(part, path, KeptExport(identity, name, 0, asked_by, 0, lifetime))
        finally:
            part.unlink(missing_ok=True)

    def _publish(self, part: Path, path: Path, params: KeptExport) -> KeptExport:
        """Put the file at its place and its row beside it, unless another attempt was quicker; its lifetime is in ``expires``."""
        with self._database.writing() as connection:
            row = connection.execute("SELECT * FROM exports WHERE id = ?", (params.id,)).fetchone()
            if row is not None:
                return _kept(row)
            size = part.stat().st_size
            (used,) = connection.execute("SELECT coalesce(sum(bytes), 0) FROM exports").fetchone()
            self._refuse_over_quota(used + size)
            # Should the row not come to be, the file is left over like one of a crash.
            part.replace(path)
            sync_directory(path.parent)
            now = int(self._clock())
            kept = replace(params, bytes=size, created=now, expires=now + params.expires)
            connection.execute("INSERT INTO exports VALUES (?, ?, ?, ?, ?, ?)", astuple(kept))
        return kept

    def _refuse_over_quota(self, size: int) -> None:
        if size > self._quota:
            raise ExportsFull(
                "there is no room for another export",
                cause=f"with it {size} bytes would be kept, and {self._quota} may be",
                remedy="delete exports (DELETE /exports/ID), or wait until some expire",
            )

    def get(self, identity: str) -> KeptExport:
        """One that has not expired.

        Raises:
            KeptExportUnknown: there is none (any more).
        """
        rows = self._database.rows("SELECT * FROM exports WHERE id = ?", identity)
        if not rows or rows[0]["expires"] <= self._clock():
            raise KeptExportUnknown(
                f"no export {identity[:32]!r} is kept",
                cause="it has expired or was deleted, or never was",
                remedy="export the commit again: POST /exports",
            )
        return _kept(rows[0])

    def all(self) -> list[KeptExport]:
        """All that have not expired, the oldest first."""
        question = "SELECT * FROM exports WHERE expires > ? ORDER BY created, id"
        return [_kept(row) for row in self._database.rows(question, self._clock())]

    def open(self, identity: str) -> tuple[KeptExport, int]:
        """An export and a descriptor of its file, which is the caller's to close; sweeping does not disturb it.

        Raises:
            KeptExportUnknown: there is none (any more).
            ObjectCorrupt: its file is not what was written.
            PermissionMissing, StoreError: it cannot be opened.
        """
        kept, path = self.get(identity), self._path(identity)
        with disk_errors(f"opening {path}"):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                self.get(identity)  # raises if it was swept meanwhile
                raise _corrupt(path, "there is no such file") from None
        if os.fstat(descriptor).st_size != kept.bytes:
            os.close(descriptor)
            raise _corrupt(path, "its size is not the one that was written")
        return kept, descriptor

    def delete(self, identity: str) -> None:
        """Remove one; who is fetching it gets the rest.

        Raises:
            KeptExportUnknown: there is none (any more).
        """
        self.get(identity)
        self._drop(identity)

    def sweep(self) -> int:
        """Remove what has expired, and files without a row that nobody has written for an hour; gives how many files."""
        now = self._clock()
        gone = [row["id"] for row in self._database.rows("SELECT id FROM exports WHERE expires <= ?", now)]
        for identity in gone:
            self._drop(identity)
        known = {f"{row['id']}.export" for row in self._database.rows("SELECT id FROM exports")}
        left = [path for path in self._directory.iterdir() if path.name not in known]
        return len(gone) + sum(
            remove_left_over(path, lambda facts: now - facts.st_mtime >= _GRACE) for path in left
        )

    def _drop(self, identity: str) -> None:
        with self._database.writing() as connection:
            connection.execute("DELETE FROM exports WHERE id = ?", (identity,))
        self._path(identity).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the database; may be called multiple times."""
        self._database.close()

    def _path(self, identity: str) -> Path:
        if not _ID.fullmatch(identity):
            raise KeptExportUnknown(
                f"{identity[:32]!r} is no export's id", remedy="GET /exports lists what is kept"
            )
        return self._directory / f"{identity}.export"


def _corrupt(path: Path, cause: str) -> ObjectCorrupt:
    return ObjectCorrupt(
        f"the export {path.name} is not as it was written",
        cause=cause,
        remedy="delete it and export the commit again",
    )


def _kept(row: sqlite3.Row) -> KeptExport:
    return KeptExport(row["id"], row["name"], row["bytes"], row["asked_by"], row["created"], row["expires"])
