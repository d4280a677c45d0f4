"""The journal of SQLite databases that several processes use."""

from __future__ import annotations

import sqlite3
import time

__all__ = ["write_ahead"]

_WAIT, _STEP = 30.0, 0.01  # [s]


def write_ahead(database: sqlite3.Connection) -> None:
    """Have a database keep a write-ahead log, so that readers do not wait for writers (sqlite.org/wal.html).

    While another process does so with a fresh file SQLite says at once that it is locked, whatever the connection's timeout; here
    that is waited for.

    Raises:
        sqlite3.OperationalError: it was locked for 30 s, or the disk is full.
    """
    deadline = time.monotonic() + _WAIT
    while True:
        try:
            if database.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                database.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(_STEP)
