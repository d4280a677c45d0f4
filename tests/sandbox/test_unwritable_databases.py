"""Which databases a branch cannot write."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from relive.model.commit import EntryKind, FileEntry, Layer, LayerKind
from relive.sandbox.unwritable_databases import has_rollback_journal, unwritable_databases


def make(path: Path, journal: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"pragma journal_mode={journal}")
        db.execute("create table t (n)")


def test_only_open_databases_with_a_rollback_journal_are_named(tmp_path: Path) -> None:
    for name, journal in {"open": "delete", "closed": "delete", "persist": "persist", "wal": "wal"}.items():
        make(tmp_path / name, journal)
    (tmp_path / "short").write_bytes(b"SQLite format 3\0")
    (tmp_path / "text").write_text("no database")
    names = sorted(path.name for path in tmp_path.iterdir())
    layer = Layer(
        point="/d",
        kind=LayerKind.OVERLAY,
        entries=[FileEntry(path=name, kind=EntryKind.FILE) for name in names],
    )
    opened = {f"/d/{name}" for name in names if name != "closed"}
    assert unwritable_databases([layer], opened, lambda _: tmp_path) == ["/d/open", "/d/persist"]


def test_nothing_is_laid_out_where_nothing_is_in_question() -> None:
    layer = Layer(point="/", kind=LayerKind.OVERLAY, entries=[FileEntry(path="a", kind=EntryKind.FILE)])

    def lay_out(_: Layer) -> Path:
        raise AssertionError("laid out for nothing")

    assert unwritable_databases([layer], {"/b"}, lay_out) == []


def test_what_is_not_there_is_no_database(tmp_path: Path) -> None:
    assert not has_rollback_journal(tmp_path / "gone")
