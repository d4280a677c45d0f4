"""Databases that several processes open at once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from relive.store import journal_mode
from relive.store.journal_mode import write_ahead


def test_another_that_has_a_fresh_database_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, waited = tmp_path / "one.sqlite", []
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")

        def let_go(seconds: float) -> None:
            waited.append(seconds)
            other.execute("COMMIT")

        monkeypatch.setattr(journal_mode.time, "sleep", let_go)
        with closing(sqlite3.connect(path, timeout=0)) as database:
            write_ahead(database)
            assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert len(waited) == 1


def test_one_that_stays_locked_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_mode, "_WAIT", 0.0)
    path = tmp_path / "one.sqlite"
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        closing(sqlite3.connect(path, timeout=0)) as database,
    ):
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            write_ahead(database)
