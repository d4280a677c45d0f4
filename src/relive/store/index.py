"""The index: an SQLite file that answers what can be listed and searched without opening every manifest.

Everything in it comes from manifests, and ``Store.rebuild_index`` makes it anew from them, so it need not be durable. But what it
says is used without opening manifests: a wrong time makes a name mean another commit. So each line has a checksum, which who
opens the store looks at, and ``maintenance.verify`` compares all of it with the manifests. Only ``durable_us`` and ``new_bytes``
are nowhere else.
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from relive.model.commit import MANIFEST_VERSION, CommitId, Manifest, Trigger
from relive.store.atomic_io import QUICK_NS, SHARE
from relive.store.commitquery import CommitQuery, find_rows
from relive.store.journal_mode import write_ahead
from relive.store.paging import Page, check_limit, page_of, read_cursor
from relive.store.schema import prepare
from relive.store.searching import as_sql_text, searchable

__all__ = [
    "CommitIndex",
    "IndexEntry",
    "StoredCommit",
    "TargetLine",
    "believed_lines",
    "objects_of",
    "size_of",
]

_COLUMNS = "id, name, life, kind, root, trigger, taken_wall_ns, sequence, capture, pause_us, durable_us, bytes, new_bytes, parent"
_ORDER = "commits"
# A kept branch stands beside its service's commits: by the service's name, a time or an event another one is meant.
_LIVED = f"trigger != '{Trigger.BRANCH.value}'"
# [pages] of SQLite's log: when it has so many it is written to the database, which waits for the disk twice. A commit writes some
# 20, and by itself SQLite lets it grow to 4 MB.
_LOG_PAGES = 256


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

    @property
    def is_of_branch(self) -> bool:
        """It was kept of a branch, and is no moment of its service."""
        return self.trigger == Trigger.BRANCH


class IndexEntry(NamedTuple):
    """What is to be entered of a commit; the numbers as of ``StoredCommit``, ``size`` being its ``bytes``."""

    commit: CommitId
    manifest: Manifest
    durable_us: int | None
    size: int
    new_bytes: int


@dataclass(frozen=True, slots=True)
class TargetLine:
    """The commits of one target together.

    Attributes:
        bytes: sum of what each brings back; new_bytes: of what was not in the store before each.
        median_pause_us: of an even number the lower of the two in the middle.
    """

    name: str
    commits: int
    newest: CommitId
    newest_wall_ns: int
    oldest_wall_ns: int
    bytes: int
    new_bytes: int
    median_pause_us: int


def believed_lines(path: Path) -> dict[CommitId, StoredCommit]:
    """The lines of an index that cannot be opened for writing, as far as their checksums fit; what is still in SQLite's log is
    missing. Nothing is written, not even SQLite's own files beside it.
    """
    with (
        suppress(sqlite3.DatabaseError),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as database,
    ):
        rows = database.execute(f"SELECT {_COLUMNS}, sum FROM commits").fetchall()
        return {CommitId(row[0]): StoredCommit(*row[:-1]) for row in rows if row[-1] == _sum_of(row[:-1])}
    return {}


class CommitIndex:
    """Opens one connection; use each instance from one thread."""

    def __init__(self, path: Path | None) -> None:
        """``path``: None: an empty one, in memory."""
        where = ":memory:" if path is None else path
        self._database = sqlite3.connect(where, timeout=30, isolation_level=None, check_same_thread=False)
        try:
            if path is not None:
                write_ahead(self._database)
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
            prepare(self._database)
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def add(
        self, commit_id: CommitId, manifest: Manifest, *, durable_us: int | None, size: int, new_bytes: int
    ) -> StoredCommit:
        """Enter a commit, and return its line; entering it again replaces what was said of it."""
        (stored,) = self.add_all([IndexEntry(commit_id, manifest, durable_us, size, new_bytes)])
        return stored

    def add_all(self, lines: Sequence[IndexEntry]) -> list[StoredCommit]:
        """Enter several at once, all or none of them; as ``add``."""
        rows = [_row_of(one.commit, one.manifest, one.durable_us, one.size, one.new_bytes) for one in lines]
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._forget_mark()
            for one, row in zip(lines, rows, strict=True):
                self._enter(one.commit, one.manifest, row)
        return [StoredCommit(*row) for row in rows]  # type: ignore[arg-type] # the columns are its fields

    def _enter(self, commit_id: CommitId, manifest: Manifest, row: Sequence[object]) -> None:
        text = self._text_of(manifest.target.name, _words_of(manifest))
        marks = ", ".join("?" * len(row))
        self._database.execute(
            f"INSERT OR REPLACE INTO commits ({_COLUMNS}, text, sum) VALUES ({marks}, ?, ?)",
            (*row, text, _sum_of(row)),
        )
        self._database.execute("DELETE FROM uses WHERE commit_id = ?", (commit_id,))
        self._database.executemany(
            "INSERT OR IGNORE INTO uses VALUES (?, ?)",
            [(name, commit_id) for name in objects_of(manifest)],
        )

    def _text_of(self, name: str, words: str) -> int:
        self._database.execute("INSERT OR IGNORE INTO texts (name, words) VALUES (?, ?)", (name, words))
        found = self._database.execute("SELECT id FROM texts WHERE name = ? AND words = ?", (name, words))
        return int(found.fetchone()[0])

    def without_words(self) -> list[CommitId]:
        """Commits that an older Relive entered, which cannot be searched for yet."""
        return [
            CommitId(row[0]) for row in self._database.execute("SELECT id FROM commits WHERE text IS NULL")
        ]

    def enter_words(self, manifests: Iterable[tuple[CommitId, Manifest]]) -> None:
        """Make commits of ``without_words`` searchable; those that are gone meanwhile are passed over."""
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            for commit_id, manifest in manifests:
                text = self._text_of(manifest.target.name, _words_of(manifest))
                self._database.execute("UPDATE commits SET text = ? WHERE id = ?", (text, commit_id))
            self._drop_texts()

    def _drop_texts(self) -> None:
        self._database.execute(
            "DELETE FROM texts WHERE NOT EXISTS (SELECT 1 FROM commits WHERE text = texts.id)"
        )

    # -- whether it can be believed ----------------------------------------------------------------------------------

    def doubtful(self) -> dict[CommitId, StoredCommit | None]:
        """Lines that were changed by something else than this program, each with None, and those that an older Relive wrote.

        With thousands of lines that takes its time, so it is done now and then only; then none are named.
        """
        marks = dict(self._database.execute("SELECT name, value FROM marks WHERE name LIKE 'looked_%'"))
        cost_ns, since_ns = (
            int(marks.get("looked_cost_ns", 0)),
            time.time_ns() - int(marks.get("looked_at_ns", 0)),
        )
        if cost_ns > QUICK_NS and 0 <= since_ns < SHARE * cost_ns:
            return {}
        began_ns = time.thread_time_ns()
        found = {
            CommitId(row[0]): StoredCommit(*row[:-1]) if row[-1] is None else None
            for row in self._database.execute(f"SELECT {_COLUMNS}, sum FROM commits")
            if row[-1] != _sum_of(row[:-1])
        }
        cost_ns = time.thread_time_ns() - began_ns
        if cost_ns > QUICK_NS:
            self._note({"looked_cost_ns": cost_ns, "looked_at_ns": time.time_ns()})
        return found

    def faults(self) -> list[str]:
        """What SQLite itself finds wrong with the file: a page that was changed, an index that does not fit its table."""
        rows = [str(text) for (text,) in self._database.execute("PRAGMA integrity_check(10)")]
        return [] if rows == ["ok"] else rows

    def differences(self, commit_id: CommitId, manifest: Manifest) -> list[str]:
        """Which columns of a line are not what its manifest says; ``no line`` where there is none."""
        found = self._database.execute(
            f"SELECT {_COLUMNS}, sum, (SELECT words FROM texts WHERE texts.id = text) FROM commits WHERE id = ?",
            (commit_id,),
        ).fetchone()
        if found is None:
            return ["no line"]
        names = [*_COLUMNS.split(", "), "sum", "words"]
        here = dict(zip(names, found, strict=True))
        row = _row_of(commit_id, manifest, here["durable_us"], size_of(manifest), here["new_bytes"])
        wanted = dict(zip(names, (*row, _sum_of(row), _words_of(manifest)), strict=True))
        uses = {
            name
            for (name,) in self._database.execute("SELECT object FROM uses WHERE commit_id = ?", (commit_id,))
        }
        differ = [name for name in names if here[name] != wanted[name]]
        return differ + (["uses"] if uses != objects_of(manifest) else [])

    def repair(self) -> None:
        """Make the indexes of its tables anew."""
        self._database.execute("REINDEX")

    # -- whether it is in line with the manifests -----------------------------------------------------------------

    def follows(self, state: str | None) -> bool:
        """Comparing it with the manifests is of no use, or was done a moment ago and takes long.

        Args:
            state: of their directory, which is another after each change of it; None: that cannot be told.

        It is of no use when it had a line for each manifest when the directory was as it is now, and was not changed since, nor
        lost a line to somebody else.
        """
        marks = dict(self._database.execute("SELECT name, value FROM marks"))
        if state is not None and marks.get("manifests") == state and marks.get("lines") == self._lines():
            return True
        cost_ns, since_ns = int(marks.get("cost_ns", 0)), time.time_ns() - int(marks.get("at_ns", 0))
        return cost_ns > QUICK_NS and 0 <= since_ns < SHARE * cost_ns

    def mark(self, state: str | None, cost_ns: int, left_out: Collection[CommitId]) -> None:
        """Note that it follows the manifests, and what it took to find that out.

        Every change of the index takes away that it follows. Where this cannot be written, the next who opens it compares again.

        Args:
            left_out: commits that have no line, since their manifests cannot be read.
        """
        self._note(
            {
                "manifests": state or "",
                "lines": self._lines(),
                "cost_ns": cost_ns,
                "at_ns": time.time_ns(),
                "left_out": " ".join(sorted(left_out)),
            }
        )

    def left_out(self) -> list[CommitId]:
        """Commits that had no line when ``mark`` was called last."""
        found = self._database.execute("SELECT value FROM marks WHERE name = 'left_out'").fetchone()
        return [] if found is None else [CommitId(name) for name in str(found[0]).split()]

    def _lines(self) -> str:
        count, total = self._database.execute("SELECT count(*), total(sum) FROM commits").fetchone()
        return f"{count}:{total:.0f}"

    def _note(self, marks: Mapping[str, object]) -> None:
        with suppress(sqlite3.OperationalError), self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(
                "INSERT OR REPLACE INTO marks VALUES (?, ?)", [(k, str(v)) for k, v in marks.items()]
            )

    def _forget_mark(self) -> None:
        self._database.execute("DELETE FROM marks WHERE name = 'manifests'")

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
            self._forget_mark()
            self._database.execute("DELETE FROM uses WHERE commit_id = ?", (commit_id,))
            text = self._database.execute("SELECT text FROM commits WHERE id = ?", (commit_id,)).fetchone()
            self._database.execute("DELETE FROM commits WHERE id = ?", (commit_id,))
            self._database.execute(
                "DELETE FROM texts WHERE id = ? AND NOT EXISTS (SELECT 1 FROM commits WHERE text = texts.id)",
                text or (None,),
            )

    def clear(self) -> None:
        """Forget all commits."""
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._forget_mark()
            for table in ("uses", "commits", "texts"):
                self._database.execute(f"DELETE FROM {table}")

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

    def captured_as(self, capture: str) -> StoredCommit | None:
        """The commit of that capture, or None."""
        return next(self._select("WHERE capture = ? ORDER BY taken_wall_ns DESC LIMIT 1", (capture,)), None)

    def newest_first(self, name: str | None = None, limit: int = -1) -> list[StoredCommit]:
        """Commits of one target, or of all."""
        where, values = ("WHERE name = ?", [name]) if name is not None else ("", [])
        return list(self._select(f"{where} ORDER BY taken_wall_ns DESC, id DESC LIMIT ?", (*values, limit)))

    def newest_lived(self, name: str, limit: int) -> list[StoredCommit]:
        """Commits of one target, newest first, without those of branches."""
        query = f"WHERE name = ? AND {_LIVED} ORDER BY taken_wall_ns DESC, id DESC LIMIT ?"
        return list(self._select(query, (name, limit)))

    def page(
        self, query: CommitQuery, tagged: Iterable[CommitId], after: str | None, limit: int
    ) -> Page[StoredCommit]:
        """Commits, newest first; see ``find_rows``. Raises UsageError for a wrong cursor, limit or search."""
        behind = read_cursor(_ORDER, after, (int, str))
        rows = find_rows(self._database, _COLUMNS, query, tagged, behind, check_limit(limit) + 1)
        found = [StoredCommit(*row) for row in rows]  # type: ignore[arg-type] # the columns are its fields
        return page_of(_ORDER, found, limit, lambda one: (one.taken_wall_ns, one.id))

    def targets(self) -> list[TargetLine]:
        """All targets that have commits, that of the newest commit first."""
        newest = "SELECT id FROM commits AS one INDEXED BY commits_of_name WHERE one.name = commits.name"
        order = "ORDER BY taken_wall_ns DESC, id DESC LIMIT 1"
        rows = self._database.execute(
            f"SELECT name, count(*), coalesce(({newest} AND {_LIVED} {order}), ({newest} {order})), "
            "max(taken_wall_ns), min(taken_wall_ns), sum(bytes), sum(new_bytes), min(pause_us) "
            "FROM commits INDEXED BY commits_measured GROUP BY name"
        ).fetchall()
        found = []
        for *facts, shortest in rows:
            name, count = facts[:2]
            pause = shortest
            if count > 2:  # many targets were committed once, by their pids
                (pause,) = self._database.execute(
                    "SELECT pause_us FROM commits INDEXED BY commits_measured WHERE name = ? "
                    "ORDER BY pause_us LIMIT 1 OFFSET ?",
                    (name, (count - 1) // 2),
                ).fetchone()
            found.append(TargetLine(*facts, pause))  # type: ignore[call-arg] # the columns are its fields
        found.sort(key=lambda line: (-line.newest_wall_ns, line.name))
        return found

    def newest_before(self, name: str, wall_ns: int) -> StoredCommit | None:
        """The newest commit of a target that was taken at or before a time, none of a branch."""
        query = (
            f"WHERE name = ? AND taken_wall_ns <= ? AND {_LIVED} ORDER BY taken_wall_ns DESC, id DESC LIMIT 1"
        )
        return next(self._select(query, (name, wall_ns)), None)

    def before_sequence(
        self, life: str, sequence: int, wall_ns: int | None, is_fit: Callable[[StoredCommit], bool]
    ) -> StoredCommit | None:
        """The newest fit commit of a life whose cursor lies before an event of its recording, or which has none and is older.

        None of a branch.
        """
        query = f"WHERE life = ? AND sequence < ? AND {_LIVED} ORDER BY sequence DESC, taken_wall_ns DESC"
        known = next(filter(is_fit, self._select(query, (life, sequence))), None)
        query = f"WHERE life = ? AND sequence IS NULL AND taken_wall_ns < ? AND {_LIVED} ORDER BY taken_wall_ns DESC"
        timed = next(filter(is_fit, self._select(query, (life, wall_ns))), None)
        found = [one for one in (known, timed) if one is not None]
        return max(found, key=lambda one: one.taken_wall_ns, default=None)

    def latest_of_life(self, life: str) -> StoredCommit | None:
        """The newest commit of one life, none of a branch."""
        query = f"WHERE life = ? AND {_LIVED} ORDER BY taken_wall_ns DESC LIMIT 1"
        return next(self._select(query, (life,)), None)

    def _select(self, rest: str, values: Iterable[object]) -> Iterator[StoredCommit]:
        # What is no Unicode (an argument of stray bytes) cannot be looked up, and is nobody's name.
        given = [as_sql_text(value) if isinstance(value, str) else value for value in values]
        rows = self._database.execute(f"SELECT {_COLUMNS} FROM commits {rest}", given)
        return (StoredCommit(*row) for row in rows)


def _row_of(
    commit_id: CommitId, manifest: Manifest, durable_us: int | None, size: int, new_bytes: int
) -> tuple[object, ...]:
    """The values of ``_COLUMNS``."""
    return (
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


def _sum_of(row: Sequence[object]) -> int:
    return zlib.crc32(repr(tuple(row)).encode("utf-8", "surrogatepass"))


def _words_of(manifest: Manifest) -> str:
    return searchable(manifest.target.name, " ".join(manifest.target.command))


def objects_of(manifest: Manifest) -> set[str]:
    """The names of all objects a manifest refers to: files before version 4, images only in version 1."""
    if manifest.version >= MANIFEST_VERSION:
        return set()
    names = {image.object for image in manifest.images} if manifest.version == 1 else set()
    names.update(
        entry.object for layer in manifest.layers for entry in layer.entries if entry.object is not None
    )
    return names


def size_of(manifest: Manifest) -> int:
    """Bytes of all that a manifest refers to."""
    size = sum(image.size for image in manifest.images)
    if manifest.listing is not None:
        return size + manifest.listing.files
    return size + sum(entry.size for layer in manifest.layers for entry in layer.entries)
