"""What the agent may ask of the tracer while a process is held."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from .conftest import Program, Wire, tracer_of

Start = Callable[..., Program]

pytestmark = pytest.mark.real


def test_commands_while_a_process_is_held(wire: Wire, start: Start) -> None:
    """``detach`` then means that release shall not attach again; ``attach`` takes that back."""
    program = start("fork_raise")
    wire.attach(program.pid)
    program.say()
    wire.event("fatal")
    assert wire.command("detach") == {"op": "detached", "held": True}
    assert wire.command("attach", root=program.pid)["held"]
    assert wire.command("release")["tasks"] == 1
    program.line()
    program.say()
    wire.event("fatal")
    wire.command("detach")
    assert wire.command("release") == {"op": "released", "died": True, "tasks": 0}
    assert tracer_of(program.pid) == 0


def test_nothing_held_nothing_traced(wire: Wire) -> None:
    """Asking for what already holds is no error."""
    assert wire.command("detach") == {"op": "detached", "held": False}
    assert wire.command("release") == {"op": "released", "died": True, "tasks": 0}


def test_a_process_killed_while_held(wire: Wire, start: Start) -> None:
    program = start("segv_main")
    wire.attach(program.pid)
    program.say()
    wire.event("fatal")
    program.process.kill()
    assert program.end() == -signal.SIGKILL
    assert wire.command("release")["died"]
