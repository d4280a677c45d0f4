"""Numbered work in forked processes: whatever becomes of one of them, each number has its answer."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from relive.operations.forked_workers import in_forked_workers


def nothing(*_line: str) -> None:
    """Nothing is taken back, nor cleared up."""


def test_each_number_is_worked_on_in_another_process() -> None:
    answers = dict(in_forked_workers(range(7), 3, lambda number: f"{number} {os.getpid()}", nothing, nothing))
    assert [answers[number].split()[0] for number in range(7)] == list("0123456")  # type: ignore[union-attr]
    assert str(os.getpid()) not in {str(line).split()[1] for line in answers.values()}


def test_a_worker_that_is_killed_fails_its_own_number_only() -> None:
    def work(number: int) -> str:
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 3:
            raise ValueError("what nobody foresaw")
        return str(number)

    answers = dict(in_forked_workers(range(6), 2, work, nothing, nothing))
    assert answers == {0: "0", 1: "1", 2: None, 3: None, 4: "4", 5: "5"}


def test_a_worker_that_is_killed_when_it_has_nothing_to_do_fails_nothing() -> None:
    first = os.pipe()

    def work(number: int) -> str:
        if number == 0:
            return str(os.getpid())
        os.read(first[0], 1)
        return str(number)

    found = in_forked_workers(range(2), 2, work, nothing, nothing)
    _, pid = next(found)
    os.kill(int(str(pid)), signal.SIGKILL)
    os.waitid(os.P_PID, int(str(pid)), os.WEXITED | os.WNOWAIT)
    os.write(first[1], b"x")
    assert list(found) == [(1, "1")]


def test_a_worker_that_is_killed_is_missed_though_another_has_its_channel() -> None:
    """What it was just starting may live on, with all that it had open."""
    reading, writing = os.pipe()

    def work(number: int) -> str:
        if number == 1:
            if os.fork() == 0:
                os.close(writing)
                os.read(reading, 1)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        return str(number)

    try:
        assert dict(in_forked_workers(range(3), 2, work, nothing, nothing)) == {0: "0", 1: None, 2: "2"}
    finally:
        os.close(writing)
        os.close(reading)


def test_who_stops_asking_leaves_no_worker_behind_and_what_is_at_work_is_given_up(tmp_path: Path) -> None:
    """GIVEN one number that is answered and one that never is; WHEN the caller gives up; THEN that one undoes what it did."""
    done, begun = tmp_path / "undone", os.pipe()

    def work(number: int) -> str:
        if number == 0:
            os.read(begun[0], 1)
            return str(os.getpid())
        try:
            os.write(begun[1], b"x")
            signal.pause()
        finally:
            done.write_text(str(os.getpid()))
        return ""

    with contextlib.closing(in_forked_workers(range(2), 2, work, nothing, nothing)) as answers:
        number, pid = next(answers)
    assert number == 0
    for gone in (int(str(pid)), int(done.read_text())):
        with contextlib.suppress(ProcessLookupError):
            os.kill(gone, 0)
            raise AssertionError(f"{gone} is still there")


def test_an_answer_that_nobody_was_given_is_taken_back() -> None:
    """GIVEN work that cannot be given up any more; WHEN the caller stops before its answer came; THEN that is taken back."""
    ready, go, taken = os.pipe(), os.pipe(), []

    def work(number: int) -> str:
        if number == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.write(ready[1], b"x")
            os.read(go[0], 1)
        return str(number)

    with contextlib.closing(in_forked_workers(range(2), 2, work, taken.append, nothing)) as answers:
        assert next(answers) == (1, "1")
        os.read(ready[0], 1)
        os.write(go[1], b"x")
    assert taken == ["0"]


@pytest.mark.parametrize("lost", ["killed", "given up", "none"])
def test_what_a_lost_worker_had_begun_is_cleared_up_once_when_all_have_ended(lost: str) -> None:
    pids: list[int] = []

    def work(number: int) -> str:
        if number == 1 and lost == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 1 and lost == "given up":
            signal.pause()
        return str(os.getpid())

    cleared: list[list[bool]] = []

    def clear_up() -> None:
        cleared.append([Path(f"/proc/{pid}").exists() for pid in pids])

    with contextlib.closing(in_forked_workers(range(2), 2, work, nothing, clear_up)) as answers:
        for _ in range(1 if lost == "given up" else 2):
            _, line = next(answers)
            pids += [int(line)] if line is not None else []
        assert cleared == []
    assert cleared == ([] if lost == "none" else [[False] * len(pids)])
