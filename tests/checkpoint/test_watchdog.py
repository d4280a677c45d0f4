"""The watchdog as a process, compiled from ``native/``, on trees of sleeping processes. Needs no CRIU."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relive.checkpoint import watchdog as module
from relive.checkpoint.watchdog import Watchdog
from relive.errors import CapsuleError, ToolMissing
from relive.kernel import procfs
from support.waiting import LIMIT, eventually

SOURCE = Path(__file__).parent.parent.parent / "native" / "watchdog.c"
FAR = 60_000  # [ms]

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("native") / "relive-watchdog"
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", made, SOURCE], check=True)
    return made


@pytest.fixture
def dog(program: Path) -> Iterator[Watchdog]:
    with Watchdog(program) as made:
        yield made


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a shell script in a session of its own; it says "ready" when its children are there."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(*command: str | Path) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True
        )
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    yield begin
    for process in running:
        for pid in [*procfs.tree_of(process.pid)][1:]:
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def sleepers(count: int) -> tuple[str, ...]:
    """A shell with so many sleeping children, who do not hold its output open."""
    return ("sh", "-c", f"for i in $(seq {count}); do sleep 1000 >&- & done; echo ready; wait")


def states(root: int) -> set[str]:
    found = (procfs.read_stat(pid) for pid in procfs.tree_of(root))
    return {stat.state for stat in found if stat is not None}


def stop(root: int) -> list[int]:
    """Stop a tree; returns its pids."""
    tree = list(procfs.tree_of(root))
    for pid in tree:
        os.kill(pid, signal.SIGSTOP)
    eventually(lambda: states(root) == {"T"}, "the tree is stopped")
    return tree


def is_gone(pid: int) -> bool:
    stat = procfs.read_stat(pid)
    return stat is None or stat.has_ended


def test_a_tree_left_stopped_runs_again_when_the_limit_is_over(dog: Watchdog, start: Start):
    target = start(*sleepers(3))
    assert len(stop(target.pid)) == 4
    assert dog.send_command(f"arm 30 0 {target.pid}") == ["armed"]
    eventually(lambda: "T" not in states(target.pid), "it runs again")
    assert dog.send_command("disarm") == ["resumed timeout", "disarmed"]


def test_it_acts_once_and_can_be_armed_again(dog: Watchdog, start: Start):
    target = start(*sleepers(1))
    for _ in range(2):
        stop(target.pid)
        dog.send_command(f"arm 1 0 {target.pid}")
        eventually(lambda: "T" not in states(target.pid), "it runs again")
        assert "resumed timeout" in dog.send_command("disarm")
    stop(target.pid)
    assert dog.send_command("disarm") == ["disarmed"]
    assert states(target.pid) == {"T"}


def test_disarmed_it_leaves_a_stopped_tree_alone(dog: Watchdog, program: Path, start: Start):
    left_alone, other = start(*sleepers(1)), start(*sleepers(1))
    stop(left_alone.pid)
    stop(other.pid)
    dog.send_command(f"arm 100 0 {left_alone.pid}")
    dog.send_command("disarm")
    with Watchdog(program) as clock:  # acts later than the first would have
        clock.send_command(f"arm 200 0 {other.pid}")
        eventually(lambda: "T" not in states(other.pid), "the other runs again")
    assert states(left_alone.pid) == {"T"}


def test_arming_again_replaces_limit_and_tree(dog: Watchdog, start: Start):
    first, second = start(*sleepers(1)), start(*sleepers(1))
    stop(first.pid)
    stop(second.pid)
    dog.send_command(f"arm 200 0 {first.pid}")
    dog.send_command(f"arm 250 0 {second.pid}")
    eventually(lambda: "T" not in states(second.pid), "the second runs again")
    assert states(first.pid) == {"T"}


@pytest.mark.parametrize("children", [1, 150])
def test_the_tool_and_all_its_children_are_killed_first(dog: Watchdog, start: Start, children: int):
    """Whatever traces the target must be gone, or it could not be resumed; there is no limit to their number."""
    tool, target, other = start(*sleepers(children)), start(*sleepers(1)), start(*sleepers(1))
    doomed = list(procfs.tree_of(tool.pid))
    assert len(doomed) == children + 1
    stop(target.pid)
    dog.send_command(f"arm 1 {tool.pid} {target.pid}")
    eventually(lambda: all(map(is_gone, doomed)), "the tool is gone")
    eventually(lambda: "T" not in states(target.pid), "the target runs again")
    assert not any(map(is_gone, procfs.tree_of(other.pid)))


def test_children_of_a_tool_that_is_dead_itself_are_found_by_its_session(dog: Watchdog, start: Start):
    """nsenter waits for CRIU; when nsenter alone is killed, CRIU goes on and may hold the target for ever."""
    tool, target = start(*sleepers(2)), start(*sleepers(1))
    children = list(procfs.tree_of(tool.pid))[1:]
    stop(target.pid)
    dog.send_command(f"arm 300 {tool.pid} {target.pid}")
    tool.kill()
    tool.wait()
    assert not any(map(is_gone, children))
    eventually(lambda: all(map(is_gone, children)), "the children are gone too")
    eventually(lambda: "T" not in states(target.pid), "the target runs again")


def test_criu_is_asked_to_give_up_before_it_is_killed(dog: Watchdog, start: Start, tmp_path: Path):
    """A CRIU that is killed while its code runs in the target may take the target along."""
    yielded = tmp_path / "yielded"
    tool = tmp_path / "criu"
    tool.write_text(
        f"#!/bin/sh\ntrap 'echo > {yielded}; exit 0' ALRM\nsleep 1000 >&- &\necho ready\nwhile :; do wait; done\n"
    )
    tool.chmod(0o755)
    process, target = start(tool), start(*sleepers(1))
    dog.send_command(f"arm 1 {process.pid} {target.pid}")
    eventually(lambda: is_gone(process.pid), "the tool is gone")
    assert process.wait() == 0
    assert yielded.exists()


_DRIVER = """
import sys
from pathlib import Path
from relive.checkpoint.watchdog import Watchdog
dog = Watchdog(Path(sys.argv[1]))
dog.send_command(" ".join(["arm", "60000", *sys.argv[2:]]))
print(dog.pid, flush=True)
sys.stdin.read()
"""


def test_a_driver_that_is_killed_leaves_nothing_stopped(program: Path, start: Start):
    tool, target = start(*sleepers(2)), start(*sleepers(2))
    doomed = list(procfs.tree_of(tool.pid))
    stop(target.pid)
    driver = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, program, str(tool.pid), str(target.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with driver:
        assert driver.stdout is not None
        watchdog = int(driver.stdout.readline())
        assert states(target.pid) == {"T"}
        driver.kill()
        eventually(lambda: all(map(is_gone, doomed)), "the tool is gone")
        eventually(lambda: "T" not in states(target.pid), "the target runs again")
        eventually(lambda: is_gone(watchdog), "the watchdog has nothing more to do")


def test_a_process_that_got_the_number_of_a_dead_target_is_left_alone(dog: Watchdog, start: Start):
    target = start(*sleepers(1))
    tree = stop(target.pid)
    dog.send_command(f"arm 100 0 {2**22 + 1}")
    dog.send_command(f"arm 1 {2**22 + 1} {2**22 + 1}")
    eventually(lambda: dog.send_command("disarm")[0] == "resumed timeout" or True, "it answers")
    assert all(stat.state == "T" for stat in map(procfs.read_stat, tree) if stat is not None)


class TestProtocol:
    @pytest.mark.parametrize(
        "line",
        [
            "",
            "arm",
            "arm 1 2",
            "arm x 1 2",
            "arm 0 0 1000",
            "arm 10 -1 1000",
            "arm 10 0 1",
            "disarm ",
            "what",
        ],
    )
    def test_what_it_does_not_understand_changes_nothing(self, dog: Watchdog, line: str):
        assert dog.send_command(line) == ["unknown"]

    def test_many_lines_in_one_write_are_answered_one_by_one(self, program: Path):
        with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            lines = b"".join(b"arm %d 0 %d\ndisarm\nno\n" % (FAR, os.getpid()) for _ in range(200))
            answers, _ = process.communicate(lines, timeout=LIMIT)
        assert answers == b"armed\ndisarmed\nunknown\n" * 200

    def test_a_line_may_come_in_pieces(self, program: Path):
        with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
            assert process.stdin is not None and process.stdout is not None
            for piece in (b"dis", b"arm", b"\n"):
                process.stdin.write(piece)
            assert process.stdout.readline() == b"disarmed\n"

    def test_it_outlives_lines_without_an_end(self, program: Path):
        with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            answers, _ = process.communicate(b"\0" * 100_000 + b"\ndisarm\n", timeout=LIMIT)
        assert answers.endswith(b"disarmed\n")


class TestDriver:
    def test_it_is_told_when_the_watchdog_stepped_in(self, dog: Watchdog, start: Start):
        target = start(*sleepers(1))
        stop(target.pid)
        with dog.watching(target.pid, 0.02) as watch:
            eventually(lambda: "T" not in states(target.pid), "it runs again")
        assert watch.stepped_in
        with dog.watching(target.pid, 60) as watch:
            watch.tool_is(0)
        assert not watch.stepped_in

    def test_a_killed_watchdog_is_replaced_before_anything_is_stopped(self, dog: Watchdog, start: Start):
        target = start(*sleepers(1))
        for again in range(2):
            os.kill(dog.pid, signal.SIGKILL)
            with dog.watching(target.pid, 60) as watch:
                if again:
                    os.kill(dog.pid, signal.SIGKILL)
                watch.tool_is(0)
                stop(target.pid)
                watch.tool_is(target.pid + 0)
                os.kill(target.pid, signal.SIGCONT)
            assert not watch.stepped_in

    def test_a_stopped_watchdog_is_replaced(
        self, dog: Watchdog, start: Start, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(module, "_ANSWER_WITHIN", 1.0)  # the other has to answer in it, too
        target = start(*sleepers(1))
        first = dog.pid
        os.kill(first, signal.SIGSTOP)
        with dog.watching(target.pid, 60):
            assert dog.pid != first
        assert procfs.read_stat(first) is None

    def test_a_watchdog_that_dies_during_a_commit_does_not_fail_it(self, dog: Watchdog, start: Start):
        target = start(*sleepers(1))
        with dog.watching(target.pid, 60) as watch:
            os.kill(dog.pid, signal.SIGKILL)
        assert not watch.stepped_in

    def test_without_a_program_there_is_a_clear_error(self, dog: Watchdog, program: Path, tmp_path: Path):
        with pytest.raises(ToolMissing):
            Watchdog(tmp_path / "relive-watchdog")
        os.kill(dog.pid, signal.SIGKILL)
        with pytest.raises(CapsuleError):
            dog.send_command("disarm")


_CONNECTED = """
import socket, sys
TCP_REPAIR = 19
listener = socket.create_server(("127.0.0.1", 0))
print("ready", flush=True)
print(listener.getsockname()[1], flush=True)
client, _ = listener.accept()
client.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
print("in repair", flush=True)
sys.stdin.readline()
while data := client.recv(16):
    client.send(data)
"""


@pytest.mark.real
def test_connections_that_a_killed_criu_left_in_repair_mode_are_healed(dog: Watchdog):
    with subprocess.Popen(
        [sys.executable, "-c", _CONNECTED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"ready\n"
        with socket.create_connection(("127.0.0.1", int(process.stdout.readline())), LIMIT) as connection:
            assert process.stdout.readline() == b"in repair\n"
            with pytest.raises(ValueError, match="the commit failed"), dog.watching(process.pid, 60):
                raise ValueError("the commit failed")
            process.stdin.write(b"\n")
            connection.send(b"still there?")
            readable, _, _ = select.select([connection], [], [], LIMIT)
            assert readable
            assert connection.recv(16) == b"still there?"
