"""Output that goes to files is read line by line, each line once, through rotation and cutting off."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.agent.failures import log_files
from relive.agent.failures.log_files import FollowedFile, LogFile, find_logs
from relive.model.watched import WatchSpec


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "service.log"
    made.write_bytes(b"before\n")
    return made


@pytest.fixture
def followed(path: Path) -> Iterator[FollowedFile]:
    made = FollowedFile(LogFile(str(path), 1), None)
    yield made
    made.close()


def add(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)


def test_what_was_there_before_is_no_news(path: Path, followed: FollowedFile) -> None:
    assert followed.lines() == []
    add(path, b"one\ntwo\r\n")
    assert followed.lines() == [b"one\n", b"two\r\n"]
    assert followed.lines() == []


def test_a_line_is_told_when_it_is_whole(path: Path, followed: FollowedFile) -> None:
    followed.begin()
    add(path, b"half a ")
    assert followed.lines() == []
    assert followed.position() == (path.stat().st_ino, len(b"before\n"))
    add(path, b"line\nand")
    assert followed.lines() == [b"half a line\n"]
    assert followed.position() == (path.stat().st_ino, len(b"before\nhalf a line\n"))


def test_a_line_without_an_end_is_told_in_parts(
    path: Path, followed: FollowedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "_LINE_MOST", 4)
    followed.begin()
    add(path, b"12345")
    assert followed.lines() == [b"12345"]
    add(path, b"67\n")
    assert followed.lines() == [b"67\n"]


def test_of_a_rotated_log_the_old_file_is_read_to_its_end_first(path: Path, followed: FollowedFile) -> None:
    followed.begin()
    path.rename(path.with_suffix(".1"))
    add(path.with_suffix(".1"), b"last of the old\n")
    path.write_bytes(b"first of the new\n")
    assert followed.lines() == [b"last of the old\n"]
    assert followed.lines() == [b"first of the new\n"]


def test_a_log_that_is_away_for_a_moment_goes_on_to_be_read(path: Path, followed: FollowedFile) -> None:
    followed.begin()
    path.rename(path.with_suffix(".1"))
    add(path.with_suffix(".1"), b"nobody has reopened it yet\n")
    assert followed.lines() == [b"nobody has reopened it yet\n"]


def test_a_log_that_is_cut_off_begins_anew(path: Path, followed: FollowedFile) -> None:
    followed.begin()
    add(path, b"a line without its e")
    assert followed.lines() == []
    os.truncate(path, 0)
    add(path, b"anew\n")
    assert followed.lines() == [b"anew\n"]


def test_who_follows_after_another_goes_on_where_that_was(path: Path, followed: FollowedFile) -> None:
    followed.begin()
    add(path, b"seen\nhalf")
    assert followed.lines() == [b"seen\n"]
    other = FollowedFile(followed.log, followed.position())
    add(path, b" and half\n")
    assert other.lines() == [b"half and half\n"]
    other.close()


@pytest.mark.parametrize("inode", ["another", "shorter"])
def test_a_place_in_a_file_that_is_not_there_any_more_is_none(path: Path, inode: str) -> None:
    """It is followed from its end on, as one that nobody has followed yet."""
    facts = path.stat()
    at = (facts.st_ino + 1, 0) if inode == "another" else (facts.st_ino, facts.st_size + 1)
    other = FollowedFile(LogFile(str(path), 1), at)
    assert other.lines() == []
    add(path, b"news\n")
    assert other.lines() == [b"news\n"]
    other.close()


def test_a_log_that_does_not_exist_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "later.log"
    followed = FollowedFile(LogFile(str(path), 1), None)
    assert followed.lines() == []
    assert followed.position() is None
    path.mkdir()
    assert followed.lines() == []
    path.rmdir()
    path.write_bytes(b"")
    assert followed.lines() == []
    add(path, b"now\n")
    assert followed.lines() == [b"now\n"]
    followed.close()


def test_regular_files_of_the_standard_streams_are_logs(tmp_path: Path) -> None:
    """Pipes have a reader, and a deleted file can be opened by nobody. One file for both is stderr's."""
    both, named = tmp_path / "both", tmp_path / "named"
    spec = WatchSpec.model_construct(log_files=[str(named), str(both)])
    with both.open("ab") as log:
        process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        assert find_logs(process.pid, spec) == [LogFile(str(both), 1), LogFile(str(named), 1)]
        both.unlink()
        assert find_logs(process.pid, None) == []
    finally:
        process.communicate()
    assert find_logs(process.pid, None) == []
