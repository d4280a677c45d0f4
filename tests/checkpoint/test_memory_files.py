"""Files in memory that other processes write to by name."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from relive.checkpoint.memory_files import MemoryFiles


def test_what_another_process_writes_is_read_here_and_is_on_no_disk(tmp_path: Path) -> None:
    files, path = MemoryFiles(), tmp_path / "told"
    files.make(path)
    files.make(path)
    subprocess.run(["sh", "-c", 'printf "it said so" > "$0"', str(path)], check=True)
    assert path.read_bytes() == b"it said so"
    assert path.stat().st_dev != tmp_path.stat().st_dev
    files.close()
    assert not os.path.lexists(path)


def test_much_is_given_back_and_little_is_kept(tmp_path: Path) -> None:
    files, much, little = MemoryFiles(), tmp_path / "much", tmp_path / "little"
    for path, size in ((much, 17 << 20), (little, 1 << 20)):
        files.make(path)
        path.write_bytes(b"x" * size)
    files.give_back()
    assert (much.stat().st_size, little.stat().st_size) == (0, 1 << 20)
    many = [tmp_path / str(number) for number in range(40)]
    for path in many:  # as of a tree of many processes
        files.make(path)
        os.truncate(path, 1 << 20)
    files.give_back()
    assert sum(path.stat().st_size for path in (little, *many)) == 16 << 20
    files.close()


def test_a_name_that_is_taken_is_left_as_it_is(tmp_path: Path) -> None:
    files, path = MemoryFiles(), tmp_path / "taken"
    path.write_bytes(b"somebody else's")
    with pytest.raises(FileExistsError):
        files.make(path)
    files.close()
    assert path.read_bytes() == b"somebody else's"
