"""What branches touched first is known again for the next one; whatever lies there instead is no reason to fail."""

from __future__ import annotations

import os

import pytest

from relive.model.commit import CommitId
from relive.sandbox.lazy import touched as tested
from relive.sandbox.lazy.touched import TouchedMemory, drop_touched, learned

ONE = CommitId("a" * 64)


def test_it_is_known_again(tmp_path):
    TouchedMemory(tmp_path, ONE).write({7: [96, 32, 64], 12: []})
    assert TouchedMemory(tmp_path, ONE).read() == {7: [96, 32, 64], 12: []}


def test_of_another_commit_nothing_is_known(tmp_path):
    TouchedMemory(tmp_path, ONE).write({7: [1]})
    assert TouchedMemory(tmp_path, CommitId("b" * 64)).read() == {}


@pytest.mark.parametrize(
    "rubbish",
    [
        *(b"", b"\xff", b"[]", b"7", b"null", b'{"x": [1]}', b'{"7": 3}', b'{"7": ["y"]}', b'{"7": [null]}'),
        *(b'{"7": [Infinity]}', b"[" * 200_000),
    ],
)
def test_a_file_that_cannot_be_read_is_as_good_as_none(tmp_path, rubbish):
    memory = TouchedMemory(tmp_path, ONE)
    memory.write({7: [1]})
    (tmp_path / "touched" / ONE).write_bytes(rubbish)
    assert memory.read() == {}


def test_no_more_is_read_than_is_worth_it(tmp_path):
    memory = TouchedMemory(tmp_path, ONE)
    memory.write({7: list(range(10_000))})
    assert memory.read() == {7: list(range(tested._MOST))}


def test_a_commit_that_is_read_was_restored(tmp_path):
    memory = TouchedMemory(tmp_path, ONE)
    memory.write({7: [1]})
    os.utime(tmp_path / "touched" / ONE, (1, 1))
    memory.read()
    assert (tmp_path / "touched" / ONE).stat().st_mtime > 1


def test_commits_that_were_not_restored_for_long_are_forgotten(tmp_path):
    names = [CommitId(f"{number:064x}") for number in range(tested._COMMITS + 3)]
    for age, name in enumerate(names):
        TouchedMemory(tmp_path, name).write({1: [age]})
        os.utime(tmp_path / "touched" / name, (age, age))
    TouchedMemory(tmp_path, names[-1]).write({1: [0]})
    assert {path.name for path in (tmp_path / "touched").iterdir()} == set(names[-tested._COMMITS :])


def test_what_is_learned_comes_before_what_was_known():
    assert learned({7: [5, 3]}, {7: [9, 5], 8: [1]}) == {7: [9, 5, 3], 8: [1]}
    assert learned({}, {7: [2, 2]}) == {7: [2]}


def test_where_nothing_else_was_touched_nothing_is_learned():
    assert learned({7: [5, 3]}, {7: [3]}) is None
    assert learned({7: [5, 3]}, {}) is None


def test_what_is_full_still_learns():
    full = {7: list(range(tested._MOST))}
    assert learned(full, {7: [100_000]}) == {7: [100_000, *range(tested._MOST - 1)]}


def test_of_many_processes_no_more_is_read_than_of_few(tmp_path):
    memory = TouchedMemory(tmp_path, ONE)
    memory.write({pid: list(range(500)) for pid in range(64)})
    assert sum(map(len, memory.read().values())) == tested._MOST_OF_COMMIT


def test_of_commits_that_are_gone_nothing_stays(tmp_path):
    drop_touched(tmp_path, set())
    other = CommitId("b" * 64)
    for commit in (ONE, other):
        TouchedMemory(tmp_path, commit).write({7: [1]})
    drop_touched(tmp_path, {other})
    assert TouchedMemory(tmp_path, ONE).read() == {}
    assert TouchedMemory(tmp_path, other).read() == {7: [1]}
