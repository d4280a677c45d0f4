"""What the death of the agent or of the tracer does to the processes that it traced."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable

import pytest

from support.drawn import drawn

from .conftest import Program, another, settled, tracer_of

Start = Callable[..., Program]

pytestmark = pytest.mark.real


@pytest.mark.parametrize("how", ["close", signal.SIGTERM])
@pytest.mark.parametrize("name", ["segv_thread", "abort_main"])
def test_a_held_process_dies_when_the_agent_does(start: Start, name: str, how: str | int) -> None:
    program = start(name)
    with another() as wire:
        wire.attach(program.pid)
        program.say()
        wire.event("fatal")
        if isinstance(how, int):
            wire.process.send_signal(how)
    assert program.end() in (-signal.SIGSEGV, -signal.SIGABRT)


def test_a_traced_process_runs_on_when_the_agent_dies(start: Start) -> None:
    program = start("idle")
    with another() as wire:
        wire.attach(program.pid)
    assert tracer_of(program.pid) == 0
    assert program.ask() == "alive"


@pytest.mark.parametrize(
    ("rounds", "seed"),
    [(1, 1), pytest.param(150, None, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])],
)
@pytest.mark.parametrize(
    ("name", "number"), [("segv_thread", signal.SIGSEGV), ("abort_main", signal.SIGABRT)]
)
def test_a_process_that_is_held_dies_also_when_its_tracer_is_killed(
    start: Start, name: str, number: int, rounds: int, seed: int | None
) -> None:
    """At whatever moment: the soak kills from the crash on up to some milliseconds after it was told."""
    moments = drawn(seed)
    for round_ in range(rounds):
        program = start(name)
        with another() as wire:
            wire.attach(program.pid)
            program.say()
            if round_ % 3 == 0:
                wire.event("fatal")
            else:
                select.select([], [], [], moments.random() * 0.02)
            wire.process.kill()
        assert program.end() == -number


def test_a_hold_ends_though_the_agent_hangs(start: Start) -> None:
    program = start("segv_thread")
    with another("--hold-limit", "0.2") as wire:
        wire.attach(program.pid)
        program.say()
        wire.event("fatal")
        assert program.end() == -signal.SIGSEGV


@pytest.mark.parametrize(
    ("rounds", "seed"),
    [(20, 1), pytest.param(200, None, marks=[pytest.mark.soak, pytest.mark.timeout(600)])],
)
def test_a_killed_tracer_loses_no_signal_and_leaves_nothing_stopped(
    start: Start, rounds: int, seed: int | None
) -> None:
    moments = drawn(seed)
    program, caught = start("counts_signals"), start("handler_passes")
    sent = 0
    for _ in range(rounds):
        with another() as wire, another() as second:
            wire.send("attach", root=program.pid)
            second.attach(caught.pid)
            if moments.random() < 0.9:
                wire.read()
            kill_at = moments.randrange(100)
            for number in range(100):
                if number == kill_at:
                    wire.process.kill()
                    second.process.kill()
                os.kill(program.pid, signal.SIGRTMIN)
            sent += 100
    assert settled(program, sent) == sent
    assert caught.ask() == "1000"
    assert not {"T", "t"} & program.states()
