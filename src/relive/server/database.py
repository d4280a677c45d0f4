"""One SQLite file of the server: mode 0600, read and written by every server process and command on one ``$RELIVE_HOME``."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from relive.errors import StoreVersionUnknown
from relive.kernel.disk_errors import disk_errors
from relive.store.lock import StoreLock

__all__ = ["SqliteFile"]

_BUSY = 30.0  # [s] that a writer waits for others
_DAMAGED = "put back a copy of it from a backup, with the server stopped"


class SqliteFile:
    """An open file, to be used from any thread. Who reads does not wait for who writes."""

    def __init__(self, path: Path, schema: str, *, version: int = 1, is_durable: bool = True) -> None:
        """Open it, with its tables made if it is fresh (``schema`` may run multiple times).

        Args:
            is_durable: what is written is on the disk when ``writing`` ends; else a power cut may undo the newest of it.

        Raises:
            StoreVersionUnknown: a newer Relive wrote it.
            DiskFull, PermissionMissing, StoreBusy, StoreError: it cannot be opened.
        """
        self._path, self._synchronous = path, "FULL" if is_durable else "NORMAL"
        self._reading, self._writing = threading.Lock(), threading.Lock()
        with self._errors("opening"):
            # SQLite would make it with the process's umask; its -wal and -shm get the mode of this file. Only a fresh file
            # may be opened and closed here: closing one drops all locks that this process holds on it.
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._reader, self._writer = self._connect(), self._connect()
        try:
            with self._errors("opening"):
                self._prepare(schema, version)
        except BaseException:
            self.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        made = sqlite3.connect(self._path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
        made.row_factory = sqlite3.Row
        return made

    def _prepare(self, schema: str, version: int) -> None:
        (found,) = self._writer.execute("PRAGMA user_version").fetchone()
        if found > version:
            raise StoreVersionUnknown(
                f"{self._path} was written by a newer Relive",
                cause=f"its version is {found}, this Relive knows {version}",
                remedy="use that Relive",
            )
        if found < version:
            # The change to WAL does not wait for others as all else does, so only one process does it at a time.
            with StoreLock(self._path.with_name(f"{self._path.name}.lock")).held(shared=False):
                self._writer.execute("PRAGMA journal_mode = WAL")
                self._writer.executescript(
                    f"BEGIN IMMEDIATE; {schema} PRAGMA user_version = {version}; COMMIT"
                )
        self._writer.execute(f"PRAGMA synchronous = {self._synchronous}")

    def _errors(self, doing: str) -> contextlib.AbstractContextManager[None]:
        return disk_errors(f"{doing} {self._path}", self._path.parent, damaged=_DAMAGED)

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one question; errors of the disk and of SQLite become ReliveErrors."""
        with self._reading, self._errors("reading"):
            yield self._reader

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The connection, in a transaction that no other writer is in; done when the block ended well, else undone."""
        with self._writing, self._errors("writing"):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:  # a full disk ends it by itself
                    self._writer.execute("ROLLBACK")
                raise

    def rows(self, question: str, *values: Any) -> list[sqlite3.Row]:
        """All rows of a question."""
        with self.reading() as connection:
            return connection.execute(question, values).fetchall()

    def close(self) -> None:
        """Close it; may be called multiple times."""
        with self._reading, self._writing:
            self._reader.close()
            self._writer.close()
