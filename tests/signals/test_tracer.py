"""The tracer at the moment of a crash: whom it holds, what it tells, how the process ends."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Program, Wire, child_of

Start = Callable[..., Program]

pytestmark = pytest.mark.real

CRASHES = [
    ("segv_main", signal.SIGSEGV, "SEGV_MAPERR", 0),
    ("segv_thread", signal.SIGSEGV, "SEGV_MAPERR", 0),
    ("segv_all_threads", signal.SIGSEGV, "SEGV_MAPERR", 0),
    ("segv_leaderless", signal.SIGSEGV, "SEGV_MAPERR", 0),
    ("abort_main", signal.SIGABRT, "SI_TKILL", None),
    ("fpe_main", signal.SIGFPE, "FPE_INTDIV", ...),
    ("trap_main", signal.SIGTRAP, "SI_KERNEL", None),
    ("bus_main", signal.SIGBUS, "BUS_ADRERR", ...),
    ("limits_main", signal.SIGXFSZ, "SI_USER", None),
]


@pytest.mark.parametrize(("name", "number", "code", "address"), CRASHES)
def test_a_crash_is_held_and_then_ends_the_process(
    wire: Wire, start: Start, name: str, number: int, code: str, address: object
) -> None:
    """It stands in T, traced by nobody and with no signal pending, and later dies of its own signal."""
    program = start(name)
    wire.attach(program.pid)
    program.say()
    event = wire.event("fatal")
    assert (event["pid"], event["signal"], event["code_name"]) == (program.pid, number, code)
    assert event["name"] == signal.Signals(number).name
    assert event["stopped"]
    if address is not ...:
        assert event["address"] == address
    assert program.states() <= {"T", "Z"}
    for task in Path(f"/proc/{program.pid}/task").iterdir():
        fields = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines())
        assert fields["TracerPid"] == "0"
        assert int(fields["ShdPnd"], 16) == 0
        # Where all threads fault at once, the freeze may come before the kernel has delivered another thread's own fault.
        may_be_pending = (
            0 if name != "segv_all_threads" or task.name == str(event["tid"]) else 1 << (number - 1)
        )
        assert int(fields["SigPnd"], 16) in (0, may_be_pending)
    assert wire.command("release") == {"op": "released", "died": True, "tasks": 0}
    assert program.end() == -number


def test_the_thread_that_crashed_is_named(wire: Wire, start: Start) -> None:
    program = start("segv_thread")
    assert wire.attach(program.pid)["tasks"] == 9
    program.say()
    event = wire.event("fatal")
    assert event["comm"] == "worker"
    assert event["tid"] != event["pid"]


def test_a_signal_from_outside_names_its_sender(wire: Wire, start: Start) -> None:
    program = start("idle")
    wire.attach(program.pid)
    os.kill(program.pid, signal.SIGSEGV)
    event = wire.event("fatal")
    assert (event["code_name"], event["address"], event["sender"]) == ("SI_USER", None, os.getpid())
    wire.command("release")
    assert program.end() == -signal.SIGSEGV


def test_a_child_that_raises_is_held_and_its_parent_goes_on(wire: Wire, start: Start) -> None:
    """The parent runs while the child is held, sees the child's own signal, and is traced again."""
    program = start("fork_raise")
    wire.attach(program.pid)
    for _ in range(2):
        program.say()
        event = wire.event("fatal")
        assert event["pid"] == child_of(program.pid)
        assert "T" not in program.states()
        assert wire.command("release") == {"op": "released", "died": True, "tasks": 1}
        pid, status = map(int, program.line().split())
        assert pid == event["pid"]
        assert os.WTERMSIG(status) == signal.SIGABRT


def test_a_grandchild_that_executed_another_program_is_held(wire: Wire, start: Start) -> None:
    program = start("exec_grandchild")
    wire.attach(program.pid)
    program.say()
    assert wire.event("fatal")["pid"] not in (program.pid, child_of(program.pid))
    assert wire.command("release")["died"]
    assert program.line() == str(128 + signal.SIGSEGV)


def test_exec_from_a_thread_that_is_not_the_leader(wire: Wire, start: Start) -> None:
    program = start("exec_from_thread")
    wire.attach(program.pid)
    assert program.ask() == "ready"
    assert wire.attach(program.pid)["tasks"] == 1
    program.say()
    event = wire.event("fatal")
    assert event["pid"] == event["tid"] == program.pid
    wire.command("release")
    assert program.end() == -signal.SIGSEGV


def test_vfork_goes_on_and_its_child_is_held_before_exec(wire: Wire, start: Start) -> None:
    program = start("vfork_exec")
    wire.attach(program.pid)
    assert program.ask() == "200"
    assert wire.event("fatal")["name"] == "SIGABRT"
    assert wire.command("release")["died"]
    assert os.WTERMSIG(int(program.line())) == signal.SIGABRT


@pytest.mark.parametrize("how", [[], ["raises"]])
def test_a_handler_runs_first_and_its_default_action_is_the_crash(
    wire: Wire, start: Start, how: list[str]
) -> None:
    program = start("altstack_reraise", *how)
    wire.attach(program.pid)
    assert program.ask() == "handled"
    event = wire.event("fatal")
    assert event["code_name"] == "SI_TKILL" if how else event["code_name"].startswith("SEGV_")
    wire.command("release")
    assert program.end() == -signal.SIGSEGV


def test_faulthandler_prints_before_the_process_is_held(wire: Wire, start: Start) -> None:
    code = "import ctypes; print('ready', flush=True); input(); ctypes.string_at(0)"
    program = start([sys.executable, "-X", "faulthandler", "-c", code], stderr=subprocess.PIPE)
    wire.attach(program.pid)
    program.say()
    assert wire.event("fatal")["name"] == "SIGSEGV"
    wire.command("release")
    assert program.end() == -signal.SIGSEGV
    assert program.process.stderr is not None
    with program.process.stderr as stderr:
        assert b"Fatal Python error: Segmentation fault" in stderr.read()


def test_the_core_is_still_written(wire: Wire, start: Start, tmp_path: Path) -> None:
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    if pattern.startswith("|"):
        pytest.skip("cores go to a program here")
    program = start("abort_main", cwd=tmp_path)
    resource.prlimit(program.pid, resource.RLIMIT_CORE, unlimited)
    wire.attach(program.pid)
    program.say()
    wire.event("fatal")
    wire.command("release")
    end = os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
    assert end is not None
    assert (end.si_code, end.si_status) == (os.CLD_DUMPED, signal.SIGABRT)


def test_a_child_of_another_user_is_held(wire: Wire, start: Start) -> None:
    program = start("other_user")
    wire.attach(program.pid)
    program.say()
    event = wire.event("fatal")
    assert Path(f"/proc/{event['pid']}").stat().st_uid in (0, 65534)
    wire.command("release")
    assert os.WTERMSIG(int(program.line())) == signal.SIGABRT


def test_process_1_of_a_namespace_dies_of_a_fault_and_of_nothing_else(
    wire: Wire, start: Start, compiled: Start
) -> None:
    """abort() of such a process is ignored by the kernel at first; what then kills it is a fault."""
    program = start(["unshare", "--pid", "--fork", str(compiled("abort_main"))])
    init = child_of(program.pid)
    wire.attach(program.pid)
    program.say()
    event = wire.event("fatal")
    assert (event["pid"], event["name"], event["code_name"]) == (init, "SIGSEGV", "SI_KERNEL")
    assert wire.command("release")["died"]
    # `unshare` repeats the signal on itself: a crash of its own, where the tracer is back in time to see it.
    if wire.command("detach")["held"]:
        wire.command("release")
    assert program.end() in (-signal.SIGSEGV, 128 + signal.SIGSEGV)


@pytest.mark.parametrize("is_reaped", [False, True])
def test_who_died_while_nobody_traced_it_is_told(start: Start, wire: Wire, is_reaped: bool) -> None:
    """GIVEN the tracer has let go, WHEN a process dies, THEN its end is told as soon as tracing is to go on, its root's too."""
    program = start("idle")
    wire.attach(program.pid)
    wire.command("detach")
    os.kill(program.pid, signal.SIGSEGV)
    os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
    if is_reaped:
        program.end()
    assert wire.command("attach", root=program.pid)["op"] == "error"
    told = wire.event("exit")
    assert (told["pid"], told["inside"]) == (program.pid, program.pid)
    assert told["comm"]
    known = not is_reaped or tuple(int(word) for word in os.uname().release.split(".")[:2]) >= (6, 15)
    assert told["status"] == (signal.SIGSEGV if known else None)
    assert told["seconds"] > 0


def test_daemons_without_a_common_parent_stay_watched_after_a_commit(start: Start, wire: Wire) -> None:
    first, second = start("segv_main"), start("idle")
    wire.attach(first.pid)
    wire.attach(second.pid)
    wire.command("detach")
    wire.attach(second.pid)
    first.say()
    assert wire.event("fatal")["pid"] == first.pid
    wire.command("release")
    assert first.end() == -signal.SIGSEGV


def test_who_outlives_the_root_stays_watched_after_a_commit(start: Start, wire: Wire) -> None:
    first, second = start("segv_main"), start("idle")
    wire.attach(second.pid)
    wire.attach(first.pid)
    wire.command("detach")
    second.close()
    assert wire.command("attach", root=second.pid)["op"] == "attached"
    first.say()
    assert wire.event("fatal")["pid"] == first.pid
    wire.command("release")
    assert first.end() == -signal.SIGSEGV


def test_who_exits_with_a_failure_is_told_with_its_parent(wire: Wire) -> None:
    script = "exec 3<&0; (read line <&3; exit 3) & echo ready; wait $!; sleep 60"
    with contextlib.closing(Program(["sh", "-c", script])) as program:
        wire.attach(program.pid)
        child = child_of(program.pid)
        program.say()
        ended = wire.event("exit")
    assert (ended["pid"], ended["status"], ended["parent"]) == (child, 3 << 8, program.pid)
    assert (ended["comm"], ended["inside"]) == ("sh", child) and ended["seconds"] >= 0
