"""A copy of a large file is brought up to date."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from relive.checkpoint.large_files import REFRESHED_FROM, refresh_copy

SIZE = REFRESHED_FROM + 12345


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    data = random.Random(1).randbytes(SIZE)
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(data)
    copy.write_bytes(data)
    return source, copy


@pytest.mark.parametrize("place", [0, 1, 262_143, 262_144, SIZE - 1, SIZE // 2])
def test_each_changed_byte_is_brought_over(pair: tuple[Path, Path], place: int) -> None:
    source, copy = pair
    with source.open("r+b") as file:
        file.seek(place)
        file.write(bytes([255 - os.pread(file.fileno(), 1, place)[0]]))
    assert refresh_copy(str(source), copy)
    assert copy.read_bytes() == source.read_bytes()


@pytest.mark.parametrize("size", [SIZE - 4097, SIZE + 300_001, 7])
def test_a_file_that_has_grown_or_shrunk_is_brought_over(pair: tuple[Path, Path], size: int) -> None:
    source, copy = pair
    data = source.read_bytes()
    source.write_bytes((data + data)[:size])
    assert refresh_copy(str(source), copy)
    assert copy.read_bytes() == source.read_bytes()


def test_a_file_with_holes_is_left_to_a_copy_that_keeps_them(pair: tuple[Path, Path]) -> None:
    source, copy = pair
    before = copy.read_bytes()
    os.truncate(source, 1 << 30)
    assert not refresh_copy(str(source), copy)
    assert copy.read_bytes() == before


def test_what_cannot_be_written_is_an_error(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        refresh_copy(str(pair[0]), tmp_path / "none")
