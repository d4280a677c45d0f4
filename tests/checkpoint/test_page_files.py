"""Which pages may come after a restore, and pages copied from file to file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relive.checkpoint.page_files import copy_bytes, lazy_spans
from relive.images import criu_images_pb2 as pb

PRIVATE, SHARED, ANONYMOUS, LOCKED = 0x02, 0x01, 0x20, 0x2000
PAGE = 4096


def mapping(first: int, end: int, flags: int) -> pb.VmaEntry:
    return pb.VmaEntry(
        start=first * PAGE, end=end * PAGE, pgoff=0, shmid=0, prot=3, flags=flags, status=0, fd=-1
    )


def test_only_private_anonymous_memory_that_is_not_locked_can_come_later() -> None:
    assert lazy_spans(
        [
            mapping(20, 24, PRIVATE | ANONYMOUS),
            mapping(10, 12, PRIVATE | ANONYMOUS),
            mapping(12, 14, PRIVATE | ANONYMOUS | 0x100),  # a stack
            mapping(14, 15, PRIVATE),
            mapping(15, 16, SHARED | ANONYMOUS),
            mapping(16, 17, PRIVATE | ANONYMOUS | LOCKED),
        ]
    ) == [(10, 14), (20, 24)]


def test_bytes_are_appended_from_where_they_lie(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(bytes(range(100)))
    with (tmp_path / "source").open("rb") as source, (tmp_path / "target").open("wb") as target:
        copy_bytes(source.fileno(), target.fileno(), 90, 10)
        copy_bytes(source.fileno(), target.fileno(), 0, 5)
        copy_bytes(source.fileno(), target.fileno(), 100, 0)
        assert os.lseek(source.fileno(), 0, os.SEEK_CUR) == 0
    assert (tmp_path / "target").read_bytes() == bytes([*range(90, 100), *range(5)])


def test_a_file_that_ends_before_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"short")
    with (
        (tmp_path / "source").open("rb") as source,
        (tmp_path / "target").open("wb") as target,
        pytest.raises(OSError, match="byte 5"),
    ):
        copy_bytes(source.fileno(), target.fileno(), 0, 10)
