"""A file that a service appends to holds no more than its bound, and nobody's offset moves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relive.agent.capsule.log_rotation import free_oldest
from relive.replay.outcomes import read_log

KEEP = 1 << 20


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "stdout.log"


def test_the_oldest_is_freed_and_offsets_stay(log: Path):
    lines = b"".join(b"line %09d\n" % number for number in range(400_000))
    with log.open("ab") as service:
        service.write(lines)
        service.flush()
        before = log.stat().st_blocks * 512
        freed = free_oldest(log, KEEP)
        assert freed > 0 and log.stat().st_blocks * 512 == before - freed <= KEEP + 8192
        service.write(b"a later line\n")
    size = log.stat().st_size
    assert size == len(lines) + 13
    with log.open("rb") as file:
        file.seek(size - KEEP)
        assert file.read() == (lines + b"a later line\n")[-KEEP:]
    assert read_log(log, size - 13) == ["a later line"]
    assert read_log(log, 0, 8192) == []  # what was there is gone, and is no text of zeros


def test_what_is_within_the_bound_is_left_alone(log: Path):
    log.write_bytes(os.urandom(KEEP + KEEP // 16))
    before = log.read_bytes()
    assert free_oldest(log, KEEP) == 0
    assert log.read_bytes() == before


def test_a_link_is_not_followed(log: Path, tmp_path: Path):
    (tmp_path / "other").write_bytes(bytes(4 * KEEP))
    log.symlink_to(tmp_path / "other")
    with pytest.raises(OSError):
        free_oldest(log, 0)
