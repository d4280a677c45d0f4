"""Which processes stand still while one is debugged: on a server with two workers, real processes, without a branch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from relive.kernel import procfs
from relive.recording.exchanges import Exchange
from relive.replay.debug.steering import hold_parents, leave_to, stands_alone
from relive.replay.plan import ReplayPlan, ReplayStep
from support.waiting import eventually

# A first process, which forks a parent that listens; that has two workers, and the first of them a child; and one beside them that
# does not listen.
_SERVER = """
import os, signal, socket

def say(name, pid):
    os.write(1, f"{name} {pid}\\n".encode())

def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        signal.pause()
    return pid

def first_worker():
    say("of-worker", child(lambda: None))

def parent():
    listener = socket.create_server(("127.0.0.1", 0))
    say("worker", child(first_worker))
    say("rival", child(lambda: None))

say("beside", child(lambda: None))
say("parent", child(parent))
signal.pause()
"""


@pytest.fixture
def server() -> Iterator[dict[str, int]]:
    """Pids by name; "root" is the first."""
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = [process.stdout.readline().split() for _ in range(5)]
            yield {name: int(pid) for name, pid in said} | {"root": process.pid}
        finally:
            for pid in reversed(procfs.tree_of(process.pid)):
                os.kill(pid, signal.SIGKILL)


def _standing(server: dict[str, int]) -> set[str]:
    return {name for name, pid in server.items() if procfs.is_stopped(pid)}


def test_only_who_could_get_the_request_or_end_its_worker_stands_still(server):
    leave_to(server["root"], server["worker"])
    eventually(lambda: _standing(server) == {"root", "parent", "rival"}, "they stand still")


def test_parents_stand_still_and_a_worker_that_is_not_there_changes_nothing(server):
    leave_to(server["root"], 1 << 30)
    hold_parents(server["root"], server["rival"])
    eventually(lambda: _standing(server) == {"root", "parent"}, "they stand still")


def test_a_request_beside_another_has_no_worker_to_itself():
    steps = [
        ReplayStep(Exchange(number, 1, b"", number, 0, 0), False, 0, frozenset(range(1, number)))
        for number in (1, 2, 3)
    ]
    assert stands_alone(ReplayPlan(steps, 3, 0))
    assert not stands_alone(ReplayPlan(steps, 2, 0))  # the third is sent while it stands
    assert not stands_alone(ReplayPlan(steps, None, 0))
