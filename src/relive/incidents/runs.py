"""What replays and reproductions showed: an SQLite file, a row each. Numbers are never used twice.

The newest ``KEPT`` are kept. Results are JSON as the operation returned them.

One that is done under a mark keeps each of its runs as it ends, as a *part*; the row of the whole takes the place of its parts.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relive.errors import NotFound
from relive.kernel.disk_errors import disk_errors
from relive.store.journal_mode import write_ahead

__all__ = ["KEPT", "RunPart", "RunRow", "Runs"]

KEPT = 10_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, service TEXT NOT NULL, incident INTEGER,
    began_wall_ns INTEGER NOT NULL, seconds REAL NOT NULL, times INTEGER NOT NULL, reproduced INTEGER NOT NULL,
    verdict TEXT NOT NULL, result TEXT NOT NULL, mark TEXT
);
CREATE INDEX IF NOT EXISTS runs_by_mark ON runs (mark) WHERE mark IS NOT NULL;
CREATE INDEX IF NOT EXISTS runs_by_incident ON runs (incident, number);
CREATE INDEX IF NOT EXISTS runs_by_service ON runs (service, number);
CREATE TABLE IF NOT EXISTS parts (
    mark TEXT NOT NULL, number INTEGER NOT NULL, about TEXT NOT NULL, began_wall_ns INTEGER NOT NULL,
    seconds REAL NOT NULL, result TEXT NOT NULL, PRIMARY KEY (mark, number)
);
"""
_COLUMNS = "number, kind, service, incident, began_wall_ns, seconds, times, reproduced, verdict"


@dataclass(frozen=True, slots=True)
class RunRow:
    """One replay or reproduction.

    Attributes:
        kind: "replay" or "reproduce"; times: how often it was run; reproduced: how often it came again.
        verdict: the verdict of all of them, or of the first that is no "reproduced".
    """

    number: int
    kind: str
    service: str
    incident: int | None
    began_wall_ns: int
    seconds: float
    times: int
    reproduced: int
    verdict: str


@dataclass(frozen=True, slots=True)
class RunPart:
    """One run of a replay, or attempt of a reproduction, that has ended while the whole has not.

    Attributes:
        number: within the whole, from 1.
        about: what was run, and what it was compared with; parts of one whole have the same.
        began_wall_ns: when the attempt at the whole began that made it.
        seconds: since that, or since the part that this attempt made before it.
        result: in JSON.
    """

    number: int
    about: str
    began_wall_ns: int
    seconds: float
    result: str


class Runs:
    """The rows; safe for several processes and threads, each call has a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with disk_errors("keeping what a replay showed", self._path.parent):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # For its owner only: it holds what services answered and logged, as it was. SQLite would make it with the umask.
            with suppress(FileExistsError):
                os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with closing(sqlite3.connect(self._path, timeout=30)) as database, database:
                write_ahead(database)
                database.executescript(_SCHEMA)
                yield database

    def add(
        self,
        *,
        kind: str,
        service: str,
        incident: int | None,
        began_wall_ns: int,
        seconds: float,
        times: int,
        reproduced: int,
        verdict: str,
        result: str,
        mark: str | None = None,
    ) -> int:
        """Keep one, with the mark of who asked for it (``Settings.mark``), in the place of its parts; returns its number.

        The oldest beyond ``KEPT`` are dropped.
        """
        row = (kind, service, incident, began_wall_ns, seconds, times, reproduced, verdict, result, mark)
        names = "kind, service, incident, began_wall_ns, seconds, times, reproduced, verdict, result, mark"
        with self._open() as database:
            number = database.execute(
                f"INSERT INTO runs ({names}) VALUES ({', '.join('?' * len(row))})", row
            ).lastrowid
            assert number is not None
            database.execute("DELETE FROM runs WHERE number <= ?", (number - KEPT,))
            database.execute("DELETE FROM parts WHERE mark = ?", (mark,))
        return number

    def add_part(self, mark: str, part: RunPart) -> None:
        """Keep a part; durable on return. It takes the place of one with its number."""
        with self._open() as database:
            database.execute(
                "INSERT OR REPLACE INTO parts (mark, number, about, began_wall_ns, seconds, result) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (mark, part.number, part.about, part.began_wall_ns, part.seconds, part.result),
            )

    def parts(self, mark: str) -> list[RunPart]:
        """Those that are kept under a mark, by their numbers."""
        with self._open() as database:
            rows = database.execute(
                "SELECT number, about, began_wall_ns, seconds, result FROM parts WHERE mark = ? ORDER BY number",
                (mark,),
            ).fetchall()
        return [RunPart(*row) for row in rows]

    def unfinished(self) -> list[str]:
        """The marks under which there are parts."""
        with self._open() as database:
            rows = database.execute("SELECT DISTINCT mark FROM parts ORDER BY mark").fetchall()
        return [str(row[0]) for row in rows]

    def forget_parts(self, mark: str) -> None:
        """Drop the parts of what nobody is going to finish."""
        with self._open() as database:
            database.execute("DELETE FROM parts WHERE mark = ?", (mark,))

    def page(
        self, *, service: str | None, incident: int | None, after: int | None, limit: int
    ) -> list[RunRow]:
        """Newest first, from behind the number ``after`` on: those with smaller ones; None: from the newest on."""
        wanted: list[tuple[str, Any]] = [
            ("number < ?", after),
            ("service = ?", service),
            ("incident = ?", incident),
        ]
        given = [(text, value) for text, value in wanted if value is not None]
        where = f"WHERE {' AND '.join(text for text, _ in given)}" if given else ""
        with self._open() as database:
            rows = database.execute(
                f"SELECT {_COLUMNS} FROM runs {where} ORDER BY number DESC LIMIT ?",
                (*(value for _, value in given), limit),
            ).fetchall()
        return [RunRow(*row) for row in rows]

    def came_back_afresh(self, incident: int) -> bool:
        """A reproduction that is kept brought the failure back, in one of its attempts at least."""
        with self._open() as database:
            row = database.execute(
                "SELECT 1 FROM runs WHERE incident = ? AND kind = 'reproduce' AND reproduced > 0 LIMIT 1",
                (incident,),
            ).fetchone()
        return row is not None

    def marked(self, mark: str) -> str | None:
        """The result, in JSON, of the run that carries a mark; None if none does."""
        with self._open() as database:
            row = database.execute("SELECT result FROM runs WHERE mark = ?", (mark,)).fetchone()
        return str(row[0]) if row is not None else None

    def get(self, number: int) -> tuple[RunRow, str]:
        """(the row, its result in JSON); raises NotFound."""
        with self._open() as database:
            row = database.execute(
                f"SELECT {_COLUMNS}, result FROM runs WHERE number = ?", (number,)
            ).fetchone()
        if row is None:
            raise NotFound(
                f"there is no run {number}", cause=f"the newest {KEPT} are kept", remedy="list the runs first"
            )
        return RunRow(*row[:-1]), row[-1]
