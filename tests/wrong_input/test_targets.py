"""What cannot be committed: found before anything is stopped, or explained with CRIU's own sentence."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relive.kernel import procfs
from support.waiting import eventually

from .conftest import Home, Program

Start = Callable[..., Program]


@pytest.fixture(autouse=True)
def _unharmed(service: Program) -> Iterator[None]:
    yield
    service.assert_unharmed()


def test_an_unknown_name(home: Home):
    error = home.refused("target-unknown", 3, "commit", "nobody")
    assert "'nobody'" in error["message"] and "relive ps" in error["remedy"]


@pytest.mark.parametrize("target", ["pid:", "pid:x", "pid:-1", "pid:1.5", "pid:²", "pid:" + "9" * 23])
def test_what_is_no_number(home: Home, target: str):
    assert target in home.refused("usage", 2, "commit", target)["message"]


@pytest.mark.parametrize("pid", ["0", "4194305"])
def test_numbers_that_no_process_has(home: Home, pid: str):
    assert pid in home.refused("process-gone", 3, "commit", f"pid:{pid}")["message"]


def test_a_process_that_has_ended(home: Home):
    ended = subprocess.Popen(["true"])
    ended.wait()
    home.refused("process-gone", 3, "commit", f"pid:{ended.pid}")


def test_a_zombie(home: Home):
    with subprocess.Popen(["true"]) as zombie:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        error = home.refused("target-undumpable", 5, "commit", f"pid:{zombie.pid}")
    assert "zombie" in error["cause"]


def test_a_kernel_thread(home: Home):
    found = (procfs.read_stat(int(name)) for name in os.listdir("/proc") if name.isdigit())
    thread = next((stat for stat in found if stat is not None and stat.kernel_thread), None)
    if thread is None:
        pytest.skip("this PID namespace shows no kernel threads")
    error = home.refused("target-undumpable", 5, "commit", f"pid:{thread.pid}")
    assert "kernel thread" in error["message"]


@pytest.mark.parametrize("pid", [1, os.getpid()], ids=["process 1", "an ancestor of the command"])
def test_what_the_command_itself_hangs_from(home: Home, pid: int):
    assert "cannot be committed" in home.refused("target-undumpable", 5, "commit", f"pid:{pid}")["message"]


def test_a_target_with_an_io_uring(home: Home, start: Start):
    """GIVEN a process with a ring WHEN it is committed by pid THEN it is named, and the process runs on."""
    code = "import ctypes; ring = ctypes.CDLL(None).syscall(425, 4, ctypes.create_string_buffer(120)); assert ring > 0"
    if subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode != 0:
        pytest.skip("this kernel refuses io_uring")
    program = start(code)
    error = home.refused("target-undumpable", 5, "commit", f"pid:{program.pid}")
    assert "io_uring" in error["cause"]
    assert "relive run" in error["remedy"]
    program.assert_unharmed()


def test_a_unix_connection_to_the_outside(home: Home, start: Start):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        program = start(pass_fds=[theirs.fileno()])
        error = home.refused("target-undumpable", 5, "commit", f"pid:{program.pid}")
        assert "unix socket" in error["message"]
        assert "CRIU says: " in error["cause"]
        assert "half of stream unix connection" in error["cause"]
        program.assert_unharmed()
        ours.send(b"x")
        assert theirs.recv(1) == b"x"


_TRACER = """
import ctypes, sys
assert ctypes.CDLL(None, use_errno=True).ptrace(0x4206, int(sys.argv[1]), 0, 0) == 0  # PTRACE_SEIZE
print("attached", flush=True)
sys.stdin.read()
"""


def test_a_target_under_a_debugger(home: Home, start: Start):
    program = start()
    with subprocess.Popen(
        [sys.executable, "-c", _TRACER, str(program.pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as tracer:
        assert tracer.stdout is not None
        assert tracer.stdout.readline() == b"attached\n"
        error = home.refused("target-undumpable", 5, "commit", f"pid:{program.pid}")
        assert str(tracer.pid) in error["cause"] and "detach" in error["remedy"]
        program.assert_unharmed()


@pytest.mark.parametrize("after_ms", [0, 4, 8, 12, 16, 20, 25, 30, 40, 60])
def test_a_target_that_dies_under_the_hands_of_criu(home: Home, start: Start, after_ms: int):
    """Whatever CRIU says then has an explanation (see tests/conftest.py)."""
    program = start()
    with subprocess.Popen(["sh", "-c", f"sleep 0.{after_ms:03}; kill -9 {program.pid}"]):
        done = home.command("commit", "--json", f"pid:{program.pid}")
    assert done.returncode in (0, 3, 5), done.stdout
    assert not list((home.store / "incoming").iterdir()) and not list(home.store.glob("making/??/*"))


def test_a_stopped_target_is_committed_and_stays_stopped(home: Home, start: Start):
    program = start()
    os.kill(program.pid, signal.SIGSTOP)

    def is_stopped() -> bool:
        stat = procfs.read_stat(program.pid)
        return stat is not None and stat.state == "T"

    eventually(is_stopped, "it is stopped")
    home.ask("commit", f"pid:{program.pid}")
    assert is_stopped()
    os.kill(program.pid, signal.SIGCONT)
    program.assert_unharmed()


def test_files_that_are_not_there(home: Home, service: Program, tmp_path: Path):
    home.refused("usage", 2, "commit", f"pid:{service.pid}", "--files", tmp_path / "none")


def test_a_tag_that_cannot_be_one(home: Home, service: Program):
    home.refused("usage", 2, "tag", "a/b", "good")
    home.refused("usage", 2, "tag", "..", "good")


def test_without_the_right_to(service: Program, home: Home):
    """As nobody: told what is missing, not a trace of Python."""
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    if subprocess.run([*nobody, sys.executable, "-c", "import relive"], check=False).returncode != 0:
        pytest.skip("nobody cannot read this checkout")
    home.refused("permission-missing", 4, "commit", f"pid:{service.pid}", under=nobody)
