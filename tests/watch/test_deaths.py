"""What the death of the agent or of the tracer does to the processes that it traced."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable

import pytest

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
    ("name", "number"), [("segv_thread", signal.SIGSEGV), ("abort_main", signal.SIGABRT)]
)
def test_sigcont_frees_a_process_whose_tracer_was_killed_while_it_was_held(
    start: Start, name: str, number: int
) -> None:
    """A fault happens again; abort() raises a second time by itself."""
    program = start(name)
    with another() as wire:
        wire.attach(program.pid)
        program.say()
        wire.event("fatal")
        wire.process.kill()
    assert program.states() == {"T"}
    os.kill(program.pid, signal.SIGCONT)
    assert program.end() == -number


@pytest.mark.parametrize(
    "rounds", [20, pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(600)])]
)
def test_a_killed_tracer_loses_no_signal_and_leaves_nothing_stopped(start: Start, rounds: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    moments = random.Random(seed)
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
