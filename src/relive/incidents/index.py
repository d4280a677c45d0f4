"""The index of incidents: an SQLite file made from the JSON files, which alone say what is true.

Who writes an incident enters it here afterwards. Whatever else happens to the files (a crash in between, an agent of an older
Relive, a copy put there by hand) is found by the directory's time: it is another after each file that came, went or was replaced.
Then the names, times and sizes of all files are compared with those in the index, and what differs is read (``follow``).

An incident is always read within the transaction that enters it: so of two who enter the same one the later has read it later, and
nothing old ever replaces something newer.

It lies in a directory of its own, since files that SQLite makes and removes would change the time of theirs.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from relive.errors import RecordingCorrupt
from relive.incidents.checksums import decode_incident
from relive.incidents.query import IncidentOrder, IncidentQuery, find_numbers
from relive.model.commit import CommitId
from relive.model.failure import ErrorPackage, read_package
from relive.model.failure_stack import stack_of_failure
from relive.model.incident import Incident
from relive.store.atomic_io import QUICK_NS, SHARE, state_of
from relive.store.journal_mode import write_ahead
from relive.store.lock import StoreLock
from relive.store.paging import Page, check_limit, page_of, read_cursor
from relive.store.searching import as_sql_text, searchable

__all__ = ["IncidentIndex", "StoredIncident", "ask", "enter_quietly"]

Answer = TypeVar("Answer")

_FACTS = (
    "number, service, life, kind, fingerprint, summary, exception, seen_wall_ns, last_seen_wall_ns, times, "
    "before, at, latest_before"
)
_DROPPED = tuple(f"DROP TABLE IF EXISTS {table}" for table in ("incidents", "texts", "marks"))
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS incidents (
    number INTEGER PRIMARY KEY, file TEXT NOT NULL, package TEXT NOT NULL,
    service TEXT, life TEXT, kind TEXT, fingerprint TEXT, summary TEXT, exception TEXT,
    seen_wall_ns INTEGER, last_seen_wall_ns INTEGER, times INTEGER, before TEXT, at TEXT, latest_before TEXT, sum INTEGER
)""",
    "CREATE TABLE IF NOT EXISTS texts (number INTEGER PRIMARY KEY, text TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS by_last_seen ON incidents (last_seen_wall_ns)",
    "CREATE INDEX IF NOT EXISTS by_service ON incidents (service)",
    "CREATE INDEX IF NOT EXISTS by_service_last_seen ON incidents (service, last_seen_wall_ns)",
    "CREATE INDEX IF NOT EXISTS by_kind ON incidents (kind)",
    "CREATE INDEX IF NOT EXISTS by_fingerprint ON incidents (fingerprint)",
    "CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)
_VERSION = 2
_NAME = re.compile(r"([1-9][0-9]{0,17})(\.package)?\.json")
_VALUES = re.compile(r"=[^&#\s)]*")
_AT_ONCE = 100  # incidents in one transaction


@dataclass(frozen=True, slots=True)
class StoredIncident:
    """One line of a list of incidents.

    Attributes:
        exception: in short, ``KeyError: 'EUR'``; empty where none is known.
        seen_wall_ns: the first time; last_seen_wall_ns: the last time.
        before, at, latest_before: commits, see ``Incident``; the last is that before the latest time it was seen.
    """

    number: int
    service: str
    life: str
    kind: str
    fingerprint: str
    summary: str
    exception: str
    seen_wall_ns: int
    last_seen_wall_ns: int
    times: int
    before: CommitId | None
    at: CommitId | None
    latest_before: CommitId | None


def ask(directory: Path, question: Callable[[IncidentIndex], Answer], *, strictly: bool) -> Answer:
    """Ask the index of a directory of incidents when it has followed the files.

    A damaged index is made anew. Where none can be written (a full disk, no right to), one in memory is filled from all files.

    Args:
        strictly: see ``IncidentIndex.follow``.
    """
    if not directory.is_dir():
        return _ask_in_memory(directory, question)
    try:
        try:
            return _ask_file(directory, question, strictly=strictly)
        except sqlite3.OperationalError:
            raise  # the file is not to blame
        except sqlite3.DatabaseError:
            _remove(directory / "index")
            return _ask_file(directory, question, strictly=strictly)
    except (sqlite3.OperationalError, OSError):
        return _ask_in_memory(directory, question)


def enter_quietly(directory: Path, number: int) -> None:
    """Enter an incident that was written. Where that fails, the next who asks finds it by the directory's time."""
    with suppress(sqlite3.Error, OSError), closing(_open_or_remake(directory / "index")) as database:
        IncidentIndex(directory, database).enter([number])


def _ask_file(directory: Path, question: Callable[[IncidentIndex], Answer], *, strictly: bool) -> Answer:
    with closing(_open_or_remake(directory / "index")) as database:
        index = IncidentIndex(directory, database)
        index.follow(strictly=strictly)
        return question(index)


def _ask_in_memory(directory: Path, question: Callable[[IncidentIndex], Answer]) -> Answer:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        for statement in _SCHEMA:
            database.execute(statement)
        index = IncidentIndex(directory, database)
        if directory.is_dir():
            index.follow(strictly=True)
        return question(index)


def _open_or_remake(place: Path) -> sqlite3.Connection:
    place.mkdir(mode=0o700, exist_ok=True)
    path = place / "incidents.sqlite"
    if path.exists():
        with suppress(sqlite3.DatabaseError):
            return _open(path)
    # Alone: SQLite does not wait when several processes give a fresh file its journal mode at once.
    with StoreLock(place / "lock").held(shared=False):
        try:
            return _open(path)
        except sqlite3.OperationalError:
            raise  # the file is not to blame
        except sqlite3.DatabaseError:
            _remove(place)
            return _open(path)


def _remove(place: Path) -> None:
    for part in place.glob("incidents.sqlite*"):
        part.unlink(missing_ok=True)


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=30, isolation_level=None)
    try:
        write_ahead(database)
        database.execute("PRAGMA synchronous=NORMAL")
        if _version_of(database) < _VERSION:
            with database:
                database.execute("BEGIN IMMEDIATE")
                # Another may have made it meanwhile, and entered incidents.
                if _version_of(database) < _VERSION:
                    for statement in (*_DROPPED, *_SCHEMA, f"PRAGMA user_version = {_VERSION}"):
                        database.execute(statement)
    except BaseException:
        database.close()
        raise
    return database


def _version_of(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


class IncidentIndex:
    """Made by ``ask``; for one thread."""

    def __init__(self, directory: Path, database: sqlite3.Connection) -> None:
        self._directory = directory
        self._database = database

    # -- asking ------------------------------------------------------------------------------------------------------

    def page(self, query: IncidentQuery, after: str | None, limit: int) -> Page[StoredIncident]:
        """Incidents, newest first by the order that is asked for; raises UsageError for a wrong cursor, limit or search."""
        order = f"incidents by {query.order}"
        by_number = query.order is IncidentOrder.NUMBER
        behind = read_cursor(order, after, (int,) if by_number else (int, int))
        rows = find_numbers(self._database, _FACTS, query, behind, check_limit(limit) + 1)
        found = [StoredIncident(*row) for row in rows]  # type: ignore[arg-type] # the columns are its fields
        return page_of(
            order,
            found,
            limit,
            lambda one: (one.number,) if by_number else (one.last_seen_wall_ns, one.number),
        )

    def pinned(self) -> set[CommitId]:
        """Commits that incidents refer to."""
        rows = self._database.execute("SELECT before, at, latest_before FROM incidents")
        return {CommitId(one) for row in rows for one in row if one is not None}

    # -- following the files -----------------------------------------------------------------------------------------

    def follow(self, *, strictly: bool) -> None:
        """Bring it into line with the files.

        Args:
            strictly: also when that takes long and was done a moment ago. Else what its writer did not enter, which is rare, may
                be missed for up to twenty times as long as a comparison takes.
        """
        doubtful = self._doubtful()
        if doubtful:
            self._renew(doubtful)
        state = state_of(self._directory)
        marks = dict(self._database.execute("SELECT name, value FROM marks"))
        if state is not None and marks.get("state") == state and marks.get("lines") == self._lines():
            return
        cost_ns, at_ns = int(marks.get("cost_ns", 0)), int(marks.get("at_ns", 0))
        now_ns = time.time_ns()
        if not strictly and cost_ns > QUICK_NS and 0 <= now_ns - at_ns < SHARE * cost_ns:
            return
        self._mark(at_ns=now_ns)  # others need not begin now
        began_ns = time.thread_time_ns()  # not the time by the wall: waiting for the processor is no cost
        self._compare()
        self._mark(cost_ns=time.thread_time_ns() - began_ns, state=state or "", lines=self._lines())

    def _lines(self) -> str:
        (count,) = self._database.execute("SELECT count(*) FROM incidents").fetchone()
        return str(count)

    def _doubtful(self) -> list[int]:
        """Incidents whose line was changed by something else than this program."""
        rows = self._database.execute(f"SELECT {_FACTS}, file, package, sum FROM incidents")
        return [row[0] for row in rows if row[-1] != _sum_of(row[:-1])]

    def _renew(self, numbers: Iterable[int]) -> None:
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            for number in numbers:
                # Not removed: of an incident whose file is damaged the line says which commits it needs.
                self._database.execute(
                    "UPDATE incidents SET file = '', package = '' WHERE number = ?", (number,)
                )
                self._enter(number)

    def renew(self) -> list[int]:
        """Read all files anew; returns the incidents of which the index said something else."""
        query = f"SELECT {_FACTS} FROM incidents"
        texts = "SELECT number, text FROM texts"
        before = {row[0]: row for row in self._database.execute(query)}
        words = dict(self._database.execute(texts))
        self._renew(sorted(before))
        after = {row[0]: row for row in self._database.execute(query)}
        return sorted(
            number
            for number in before.keys() | after.keys()
            if before.get(number) != after.get(number)
            or words.get(number)
            != self._database.execute(f"{texts} WHERE number = ?", (number,)).fetchone()[1]
        )

    def _mark(self, **marks: int | str) -> None:
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(
                "INSERT OR REPLACE INTO marks VALUES (?, ?)",
                [(name, str(value)) for name, value in marks.items()],
            )

    def _compare(self) -> None:
        files: dict[int, str] = {}
        packages: dict[int, str] = {}
        with os.scandir(self._directory) as entries:
            for entry in entries:
                match = _NAME.fullmatch(entry.name)
                if match is not None:
                    with suppress(FileNotFoundError):
                        (packages if match[2] else files)[int(match[1])] = _signature(entry.stat())
        known = self._database.execute("SELECT number, file, package FROM incidents")
        there = {(number, file, packages.get(number, "")) for number, file in files.items()}
        differ = sorted({row[0] for row in there.symmetric_difference(known)})
        for begin in range(0, len(differ), _AT_ONCE):
            self.enter(differ[begin : begin + _AT_ONCE])

    def enter(self, numbers: Iterable[int]) -> None:
        """Let it say of incidents what their files say now, or nothing where there are none."""
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            for number in numbers:
                self._enter(number)

    def _enter(self, number: int) -> None:
        path, beside = self._directory / f"{number}.json", self._directory / f"{number}.package.json"
        # Before they are read: what changes in between differs again the next time.
        file, package = _signature_of(path), _signature_of(beside)
        query = "SELECT file, package, exception FROM incidents WHERE number = ?"
        known = self._database.execute(query, (number,)).fetchone()
        if known is not None and known[:2] == (file, package):
            return  # another was quicker
        if not file:
            for table in ("incidents", "texts"):
                self._database.execute(f"DELETE FROM {table} WHERE number = ?", (number,))
            return
        exception = known[2] if known is not None and package and known[1] == package else None
        row = _row(path, beside if package and not exception else None, exception)
        if row is None and known is not None:
            # Its file is damaged now: what it referred to stays pinned, and it stays in lists.
            row = self._database.execute(
                f"SELECT {_FACTS} FROM incidents WHERE number = ?", (number,)
            ).fetchone()[1:]
        values = (number, *(row or (None,) * 12), file, package)
        self._database.execute(
            f"INSERT OR REPLACE INTO incidents ({_FACTS}, file, package, sum) VALUES ({', '.join('?' * 16)})",
            (*values, _sum_of(values)),
        )
        text = "" if row is None else _searched(row)
        self._database.execute("INSERT OR REPLACE INTO texts VALUES (?, ?)", (number, text))


def _row(path: Path, package: Path | None, exception: str | None) -> tuple[str | int | None, ...] | None:
    """``_FACTS`` but for the number; None for a file that a crash left, or that is damaged. Raises PermissionError.

    Args:
        package: the error package beside it, unless there is none or the exception is known.
    """
    try:
        one = decode_incident(path.read_bytes())
    except PermissionError:
        raise  # what may not be read is there all the same
    except (OSError, RecordingCorrupt):
        return None
    values = (
        one.service,
        one.life,
        one.sighting.kind.value,
        one.sighting.fingerprint,
        one.sighting.summary,
        exception or _exception(one, package),
        one.sighting.seen_wall_ns,
        one.last_seen_wall_ns,
        one.times,
        one.before,
        one.at,
        one.latest.before if one.latest is not None else None,
    )
    return tuple(as_sql_text(value) if isinstance(value, str) else value for value in values)


def _exception(incident: Incident, package: Path | None) -> str:
    if package is not None:
        with suppress(OSError, RecordingCorrupt):
            return _in_short(read_package(package.read_bytes()))
    stack = stack_of_failure(incident.sighting, incident.log_tail)
    return stack.exception if stack is not None else ""


def _in_short(package: ErrorPackage) -> str:
    kind = package.type.rpartition(".")[2]
    return f"{kind}: {package.text}" if package.text else kind


def _searched(row: tuple[str | int | None, ...]) -> str:
    summary, exception = row[4], row[5]
    return searchable(*(_VALUES.sub("=", str(text)) for text in (summary, exception)))


def _sum_of(values: Iterable[object]) -> int:
    return zlib.crc32(repr(tuple(values)).encode("utf-8", "surrogatepass"))


def _signature_of(path: Path) -> str:
    try:
        return _signature(path.stat())
    except FileNotFoundError:
        return ""


def _signature(found: os.stat_result) -> str:
    return f"{found.st_ino}:{found.st_mtime_ns}:{found.st_size}"
