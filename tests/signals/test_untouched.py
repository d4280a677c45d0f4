"""What a traced process does as if nobody traced it: signals, stops, threads, forks, system calls."""

from __future__ import annotations

import os
import select
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import LIMIT, Program, Wire, settled, tracer_of

Start = Callable[..., Program]

pytestmark = pytest.mark.real


def test_a_caught_fault_passes_unchanged(wire: Wire, start: Start) -> None:
    """Its siginfo too: the handler sees the address and the code."""
    program = start("handler_passes")
    wire.attach(program.pid)
    assert program.ask() == "1000"
    assert not wire.command("detach")["held"]


@pytest.mark.parametrize("how", ["ignore", "block"])
def test_an_ignored_or_blocked_signal_does_nothing(wire: Wire, start: Start, how: str) -> None:
    program = start("idle", how)
    wire.attach(program.pid)
    os.kill(program.pid, signal.SIGSEGV)
    assert program.ask() == "alive"
    assert not wire.command("detach")["held"]
    assert program.ask() == "alive"


def test_a_signal_of_a_supervisor_ends_the_process_at_once(wire: Wire, start: Start) -> None:
    """SIGTERM is no crash; the end is reported, and the parent sees it."""
    program = start("idle")
    wire.attach(program.pid)
    os.kill(program.pid, signal.SIGTERM)
    event = wire.event("exit")
    assert (event["pid"], os.WTERMSIG(event["status"])) == (program.pid, signal.SIGTERM)
    assert program.end() == -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGTSTP])
def test_stopping_and_continuing_work_and_the_parent_sees_them(wire: Wire, start: Start, number: int) -> None:
    """SIGTSTP works only in a process group whose parent is in the same session (an orphaned one ignores it)."""
    program = start("segv_thread", start_new_session=False, process_group=0)
    wire.attach(program.pid)
    for _ in range(3):
        os.kill(program.pid, number)
        _, status = os.waitpid(program.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert os.WSTOPSIG(status) == number
        os.kill(program.pid, signal.SIGCONT)
        _, status = os.waitpid(program.pid, os.WCONTINUED)
        assert os.WIFCONTINUED(status)
    program.say()
    assert wire.event("fatal")["stopped"]


def test_a_stopped_process_stays_stopped_through_attach_and_detach(wire: Wire, start: Start) -> None:
    program = start("idle")
    os.kill(program.pid, signal.SIGSTOP)
    os.waitpid(program.pid, os.WUNTRACED)
    for _ in range(3):
        wire.attach(program.pid)
        wire.command("detach")
        # Let go of, a task runs for a moment on its way from "traced" to "stopped" (ptrace(2), group-stop).
        until = time.monotonic() + LIMIT
        while program.states() != {"T"}:
            assert time.monotonic() < until
        assert not select.select([program.process.stdout], [], [], 0)[0]
    wire.attach(program.pid)
    os.kill(program.pid, signal.SIGCONT)
    assert program.ask() == "alive"


def test_a_thousand_short_threads(wire: Wire, start: Start) -> None:
    program = start("many_threads", "fault")
    wire.attach(program.pid)
    assert program.ask() == "1000"
    event = wire.event("fatal")
    assert event["stopped"]
    wire.command("release")
    assert program.end() == -signal.SIGSEGV


def test_attach_and_detach_interrupt_no_system_call(wire: Wire, start: Start) -> None:
    """epoll_wait fails with EINTR after any stop by a tracer; here it never does."""
    program = start("epoll_quiet")
    for _ in range(50):
        assert wire.attach(program.pid)["tasks"] == 10
        wire.command("detach")
    assert program.ask() == "0"


def test_attach_finds_every_task_of_a_tree_that_forks_all_the_time(wire: Wire, start: Start) -> None:
    program = start("fork_storm")
    for _ in range(20):
        wire.attach(program.pid)
        assert {tracer_of(int(task.name)) for task in Path(f"/proc/{program.pid}/task").iterdir()} != {0}
        wire.command("detach")
    wire.attach(program.pid)
    program.say()
    assert wire.event("fatal")["name"] == "SIGSEGV"
    wire.command("release")
    assert os.WTERMSIG(int(program.line())) == signal.SIGSEGV


def test_an_executed_setuid_program_keeps_its_power(
    wire: Wire, start: Start, compiled: Callable[[str], Path], tmp_path: Path
) -> None:
    """The kernel takes it away from programs whose tracer has no right to trace them."""
    powerful = compiled("effective_user").with_name("effective_user_setuid")
    shutil.copy(compiled("effective_user"), powerful)
    powerful.chmod(0o4755)
    program = start("effective_user", str(powerful))
    wire.attach(program.pid)
    assert program.ask() == "0"


def test_no_signal_is_lost_when_the_tracer_steps_aside(wire: Wire, start: Start) -> None:
    program = start("counts_signals")
    for _ in range(50):
        wire.attach(program.pid)
        for _ in range(20):
            os.kill(program.pid, signal.SIGRTMIN)
        wire.command("detach")
    assert settled(program, 1000) == 1000
