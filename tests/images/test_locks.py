"""POSIX locks in CRIU's image: those it left out are added, and those to take again are told."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from relive.errors import RestoreFailed
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries, write_entries
from relive.images.locks import add_posix_locks, check_posix_locks, note_posix_locks
from relive.kernel.filelocks import PosixLock

PARENTS = PosixLock(2, 3, fcntl.F_RDLCK, 128, 1)
CHILDS = PosixLock(48, 3, fcntl.F_WRLCK, 0, 0)


def saved(images: Path) -> list[PosixLock]:
    found = read_entries(images / "filelocks.img", pb.FileLockEntry)
    return [PosixLock(one.pid, one.fd, one.type, one.start, one.len) for one in found]


def check(images: Path) -> None:
    directory = os.open(images, os.O_RDONLY | os.O_DIRECTORY)
    try:
        check_posix_locks(directory)
    finally:
        os.close(directory)


def test_what_criu_left_out_is_added_once(tmp_path: Path) -> None:
    add_posix_locks(tmp_path, [])
    assert not (tmp_path / "filelocks.img").exists()
    add_posix_locks(tmp_path, [PARENTS])
    add_posix_locks(tmp_path, [PARENTS, CHILDS])
    add_posix_locks(tmp_path, [CHILDS])
    assert saved(tmp_path) == [PARENTS, CHILDS]


def test_locks_of_other_kinds_are_not_taken_again(tmp_path: Path) -> None:
    add_posix_locks(tmp_path, [PARENTS, CHILDS])
    entries = read_entries(tmp_path / "filelocks.img", pb.FileLockEntry)
    entries[0].flag = 4  # of an open file description
    write_entries(tmp_path / "filelocks.img", entries)
    note_posix_locks(tmp_path)
    assert (tmp_path / "posix-locks").read_text() == "48 3 1 0 0\n"


def test_a_commit_without_locks_asks_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "posix-locks").write_text("1 2 3 4 5\n")  # of an imported commit
    note_posix_locks(tmp_path)
    assert not list(tmp_path.iterdir())
    check(tmp_path)


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        ("", "CRIU did not ask for it"),
        ("2 0\n", "CRIU did not ask for it"),
        ("2 0\n48 11 lock\n", "lock: Resource temporarily unavailable"),
    ],
)
def test_a_lock_that_was_not_taken_again_fails_the_restore(tmp_path: Path, told: str, cause: str) -> None:
    add_posix_locks(tmp_path, [PARENTS, CHILDS])
    note_posix_locks(tmp_path)
    (tmp_path / "posix-locks.told").write_text(told)
    with pytest.raises(RestoreFailed) as failed:
        check(tmp_path)
    assert failed.value.cause == cause


def test_all_that_were_taken_again_are_enough(tmp_path: Path) -> None:
    add_posix_locks(tmp_path, [PARENTS, CHILDS])
    note_posix_locks(tmp_path)
    (tmp_path / "posix-locks.told").write_text("2 0\n48 0\n")
    check(tmp_path)


def test_an_answer_that_came_with_the_commit_does_not_count(tmp_path: Path) -> None:
    add_posix_locks(tmp_path, [PARENTS])
    (tmp_path / "posix-locks.told").write_text("2 0\n")
    note_posix_locks(tmp_path)
    with pytest.raises(RestoreFailed):
        check(tmp_path)
