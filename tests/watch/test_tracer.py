"""The tracer against real processes: what it holds, what it leaves alone, what its death does to them."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relive.kernel import procfs

from .conftest import LIMIT, Program, Wire

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


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def tracer_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("TracerPid:")[2].split()[0])


# -- the moment of a crash -----------------------------------------------------------------------------------


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


# -- what must not change ------------------------------------------------------------------------------------


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


# -- who is followed -----------------------------------------------------------------------------------------


def test_ends_of_processes_are_reported(wire: Wire, start: Start) -> None:
    """Raw wait status, one per process, none for threads."""
    program = start(["sh", "-c", "echo ready; read x; sh -c 'exit 7'; kill -KILL $$"])
    wire.attach(program.pid)
    program.say()
    first, last = wire.event("exit"), wire.event("exit")
    assert os.WEXITSTATUS(first["status"]) == 7
    assert (last["pid"], os.WTERMSIG(last["status"])) == (program.pid, signal.SIGKILL)


def test_a_process_under_a_debugger_is_skipped_and_named(wire: Wire, start: Start) -> None:
    program = start(["sh", "-c", "sleep 1000 & echo ready; read x; kill $!; wait $!; kill -SEGV $$"])
    child = child_of(program.pid)
    with another() as debugger:
        debugger.attach(child)
        reply = wire.attach(program.pid)
        assert [(skipped["pid"], skipped["tracer"]) for skipped in reply["skipped"]] == [
            (child, tracer_of(child))
        ]
        program.say()
        assert wire.event("fatal")["pid"] == program.pid


def test_a_root_under_a_debugger_is_an_error(wire: Wire, start: Start) -> None:
    program = start("idle")
    with another() as debugger:
        debugger.attach(program.pid)
        reply = wire.command("attach", root=program.pid)
        assert (reply["op"], reply["code"]) == ("error", "permission-missing")
        assert str(tracer_of(program.pid)) in reply["cause"]
    wire.attach(program.pid)


def test_roots_that_cannot_be_traced(wire: Wire) -> None:
    gone = subprocess.Popen(["true"])
    os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT)
    assert wire.command("attach", root=gone.pid)["code"] == "process-gone"  # a zombie
    gone.wait()
    assert wire.command("attach", root=gone.pid)["code"] == "process-gone"
    kthreadd = procfs.read_stat(2)
    if kthreadd is not None and kthreadd.kernel_thread:  # a container shows none
        assert wire.command("attach", root=2)["code"] == "usage"
    assert wire.command("dance")["code"] == "usage"
    assert wire.command("attach", root="all")["code"] == "usage"
    wire.socket.sendall(b"{\n")
    assert wire.read()["code"] == "usage"


def test_a_daemon_that_left_the_tree_is_still_followed_after_a_commit(wire: Wire, start: Start) -> None:
    """It descends from no living process of the tree, so only memory finds it again."""
    program = start("daemon")
    wire.attach(program.pid)
    daemon = int(program.ask())
    wire.command("detach")
    wire.attach(program.pid)
    assert tracer_of(daemon) != 0
    program.say()
    assert wire.event("fatal")["pid"] == daemon


# -- the agent's commands around a crash ---------------------------------------------------------------------


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


# -- the death of agent and tracer ---------------------------------------------------------------------------


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


def settled(program: Program, expected: int) -> int:
    """The count of signals, once it is what is expected; less if that does not come to be."""
    deadline = time.monotonic() + 10
    while (count := int(program.ask())) < expected and time.monotonic() < deadline:
        # The last one may have been handed to a thread that the busy machine has not run yet.
        os.sched_yield()
    return count


@contextlib.contextmanager
def another() -> Iterator[Wire]:
    wire = Wire()
    try:
        yield wire
    finally:
        wire.close()


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_node_aborts(wire: Wire, start: Start) -> None:
    code = "process.stdin.on('data', () => process.abort()); console.log('ready')"
    program = start(["node", "-e", code], stderr=subprocess.DEVNULL)
    wire.attach(program.pid)
    program.say()
    event = wire.event("fatal")
    assert event["name"] in ("SIGABRT", "SIGTRAP", "SIGILL")
    wire.command("release")
    assert program.end() == -event["signal"]


JAVA = """
public class Nulls {
    static int length(String text) { return text.length(); }
    public static void main(String[] arguments) throws Exception {
        System.out.println("ready");
        System.in.read();
        int caught = 0;
        for (int i = 0; i < 300000; i++)
            try { length(i % 1000 == 0 ? null : "a"); } catch (NullPointerException e) { caught++; }
        System.out.println(caught);
        System.in.read();
    }
}
"""


@pytest.mark.skipif(shutil.which("java") is None, reason="needs java")
def test_java_handles_its_own_faults_and_aborts_on_others(wire: Wire, start: Start, tmp_path: Path) -> None:
    """It uses SIGSEGV for its null checks; after a foreign one it writes a report and calls abort()."""
    source = tmp_path / "Nulls.java"
    source.write_text(JAVA)
    command = ["java", "-Xmx64m", "-XX:ErrorFile=/dev/null", "-XX:+CreateCoredumpOnCrash", str(source)]
    program = start(command, stderr=subprocess.DEVNULL, cwd=tmp_path)
    wire.attach(program.pid)
    assert program.ask() == "300"
    os.kill(program.pid, signal.SIGSEGV)
    assert wire.event("fatal")["name"] == "SIGABRT"
    assert wire.command("release")["died"]
    program.process.stdout.close()  # type: ignore[union-attr]
    assert program.process.wait(LIMIT) == -signal.SIGABRT
