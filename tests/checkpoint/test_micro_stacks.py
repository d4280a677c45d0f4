"""Commits on top of others, of threads on stacks of their own making, as those of Go. With the real CRIU and tracker."""

from __future__ import annotations

import random
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from .test_micro_commits import PROGRAMS, TRIES, Taking, Told, kernel_says, taking

__all__ = ["taking"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if (why := kernel_says()) != "ok":
        pytest.skip(f"where alternate stacks are is not known here: {why}")
    made = tmp_path_factory.mktemp("programs") / "stacks_aside"
    source = PROGRAMS / "stacks_aside.c"
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", made, source], check=True)
    return made


@pytest.fixture
def aside(program: Path) -> Iterator[Told]:
    process = Told(program)
    yield process
    process.end()


@pytest.fixture
def twin(program: Path) -> Iterator[Told]:
    """Does the same, and is never committed."""
    process = Told(program)
    yield process
    process.end()


def follow(taking: Taking, aside: Told, twin: Told) -> None:
    """Have both work and take a commit of one, until two in a row were on top; nothing of it may show."""
    in_a_row = 0
    for _ in range(2 * TRIES):
        taking.micro._refusals = 0
        assert aside.ask("work") == twin.ask("work")
        in_a_row = in_a_row + 1 if taking.commit(aside.pid) else 0
        assert aside.ask("intact") == "intact"
        if in_a_row == 2:
            return
    pytest.fail(str(taking.reasons))


def test_threads_on_stacks_beside_other_memory_are_followed(taking: Taking, aside: Told, twin: Told) -> None:
    """Also where no signal is left by which a round trip could end."""
    taking.base(aside.pid)
    follow(taking, aside, twin)


def test_a_first_thread_that_has_left_its_stack_is_followed(taking: Taking, aside: Told, twin: Told) -> None:
    taking.base(aside.pid)
    aside.ask("leave")
    follow(taking, aside, twin)
    aside.ask("return")
    follow(taking, aside, twin)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("handle", "has no other that is free"),
        ("shared", "has no other that is free"),
        ("small", "the stack of thread"),
    ],
)
def test_where_no_alternate_stack_is_of_use_a_full_commit_is_taken(
    taking: Taking, aside: Told, twin: Told, word: str, reason: str
) -> None:
    taking.base(aside.pid)
    assert aside.ask(word) == twin.ask(word)
    taking.reasons.clear()
    assert not taking.commit(aside.pid)
    assert reason in taking.reasons[0]
    if word == "handle":
        assert aside.ask("go on") == twin.ask("go on")
        follow(taking, aside, twin)
    else:
        assert aside.ask("work") == twin.ask("work")
        assert aside.ask("intact") == "intact"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_threads_go_on_whenever_the_tracker_dies(taking: Taking, aside: Told, twin: Told) -> None:
    """``pytest -m soak tests/checkpoint/test_micro_stacks.py``; what lay in alternate stacks may be lost then."""
    chance = random.Random(7)
    for number in range(300):
        tracker = taking.micro._tracker
        if number % 2 and tracker is not None:
            threading.Timer(chance.choice([0.001, 0.01]) * chance.random(), tracker._process.kill).start()
        taking.micro._refusals = 0
        taking.commit(aside.pid)
        assert aside.ask("work") == twin.ask("work")
