"""Which databases a commit had open, and which of them have a rollback journal."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from relive.model.commit import EntryKind, FileEntry, Layer, LayerKind
from relive.sandbox.open_databases import open_databases


def make(path: Path, journal: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"pragma journal_mode={journal}")
        db.execute("create table t (n)")


def test_only_open_databases_are_named(tmp_path: Path) -> None:
    for name, journal in {"open": "delete", "closed": "delete", "persist": "persist", "wal": "wal"}.items():
        make(tmp_path / name, journal)
    (tmp_path / "short").write_bytes(b"SQLite format 3\0")
    (tmp_path / "text").write_text("no database")
    names = sorted([*(path.name for path in tmp_path.iterdir()), "gone"])
    layer = Layer(
        point="/d",
        kind=LayerKind.OVERLAY,
        entries=[FileEntry(path=name, kind=EntryKind.FILE) for name in names],
    )
    opened = {f"/d/{name}" for name in names if name != "closed"}
    assert open_databases([layer], opened, lambda _: tmp_path) == {
        "/d/open": True,
        "/d/persist": True,
        "/d/short": False,
        "/d/wal": False,
    }


def test_nothing_is_laid_out_where_nothing_is_in_question() -> None:
    layer = Layer(point="/", kind=LayerKind.OVERLAY, entries=[FileEntry(path="a", kind=EntryKind.FILE)])

    def lay_out(_: Layer) -> Path:
        raise AssertionError("laid out for nothing")

    assert open_databases([layer], {"/b"}, lay_out) == {}
