"""Which processes the tracer follows, and whose end it reports; which it skips or refuses."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable

import pytest

from relive.kernel import procfs

from .conftest import Program, Wire, another, child_of, tracer_of

Start = Callable[..., Program]

pytestmark = pytest.mark.real


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
