"""A number is given once, whatever becomes of the incident that had it."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from relive.incidents.numbers import allocate_number


def test_the_number_of_an_incident_that_is_gone_is_not_given_again(tmp_path):
    assert [allocate_number(tmp_path) for _ in range(3)] == [1, 2, 3]
    (tmp_path / "3.json").unlink()
    assert allocate_number(tmp_path) == 4


@pytest.mark.parametrize("torn", [None, b"", b"1", b"x\n", b"\xff\n", b"9" * 30 + b"\n"])
def test_a_lost_or_torn_file_of_the_last_number_is_made_anew(tmp_path, torn):
    for name in ("7.json", "9.package.json", "x.json", "12.json.new"):
        (tmp_path / name).touch()
    if torn is not None:
        (tmp_path / "last-number").write_bytes(torn)
    assert [allocate_number(tmp_path), allocate_number(tmp_path)] == [8, 9]


def test_a_number_that_an_older_relive_took_is_passed_over(tmp_path):
    allocate_number(tmp_path)
    (tmp_path / "2.json").touch()
    assert allocate_number(tmp_path) == 3


def test_the_directory_is_not_looked_through_for_each(tmp_path, monkeypatch):
    allocate_number(tmp_path)
    monkeypatch.setattr(os, "listdir", lambda _path: pytest.fail("it was looked through"))
    assert allocate_number(tmp_path) == 2


def test_two_who_take_one_at_once_get_two(tmp_path):
    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(lambda _: allocate_number(tmp_path), range(60))) == list(range(1, 61))


def test_nothing_is_left_when_it_cannot_be_made_durable(tmp_path, monkeypatch):
    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError):
            allocate_number(tmp_path)
    assert list(tmp_path.glob("*.json")) == []
    assert allocate_number(tmp_path) == 2
