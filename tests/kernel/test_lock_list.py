"""The kernel's list of locks is read by the byte, again and again, and nobody waits for one that is not there."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from relive.kernel.lock_list import OpenLockList
from support.waiting import eventually


def _reader_runs() -> bool:
    return any(thread.name == "lock-list" for thread in threading.enumerate())


def test_it_is_read_a_byte_at_a_time_until_the_end_of_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    read = os.pread

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        asked.append((size, offset))
        return read(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", pread)
    with OpenLockList() as found:
        found.wait(60)
        assert asked
        eventually(lambda: len(asked) >= 3, "it is read again")
    assert not _reader_runs()
    assert set(asked) == {(1, 0)}


def test_where_there_is_none_nobody_waits(tmp_path: Path) -> None:
    with OpenLockList(tmp_path / "none") as found:
        found.wait(60)
    assert not _reader_runs()
