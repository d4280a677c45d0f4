"""``relive-supervisor`` beside an agent that is played by ``sleep``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.checkpoint.criu import CriuTools
from relive.config import load_settings
from relive.kernel import procfs
from support.waiting import eventually

LIMIT = 20.0  # [s]
POLL = "7"  # the number of poll(2)
# Starts an agent, and notes that it did; an agent that fails is one that ends at once.
STARTER = """
import os, subprocess, sys
directory, seconds = sys.argv[1:]
made = subprocess.Popen(["sleep", seconds], start_new_session=True)
if seconds == "0":
    made.wait()
started = open(f"/proc/{made.pid}/stat").read().rpartition(")")[2].split()[19] if seconds != "0" else "1"
open(f"{directory}/agent.pid", "w").write(f"{made.pid} {started}")
open(f"{directory}/starts", "a").write(f"{made.pid}\\n")
"""
HEADLESS = """
import ctypes, threading
threading.Thread(target=threading.Event().wait).start()
ctypes.CDLL(None).pthread_exit(None)
"""


class Life:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.running: list[subprocess.Popen[bytes]] = []

    def supervise(self, seconds: str = "600") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", STARTER, self.directory, seconds]
        program = CriuTools(load_settings().tools_path).supervisor
        self.running.append(subprocess.Popen([program, self.directory, *command]))
        return self.running[-1]

    def starts(self) -> list[int]:
        try:
            return [int(line) for line in (self.directory / "starts").read_text().splitlines()]
        except FileNotFoundError:
            return []

    def close(self) -> None:
        (self.directory / "closed").touch()
        for pid in self.starts():
            if procfs.exists(pid):
                os.kill(pid, signal.SIGKILL)
        for process in self.running:
            assert process.wait(LIMIT) in (0, -signal.SIGKILL)


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    made = Life(tmp_path)
    yield made
    made.close()


def test_an_agent_that_dies_is_replaced_until_the_life_is_closed(life: Life):
    life.supervise()
    for count in (1, 2, 3):
        eventually(lambda count=count: len(life.starts()) == count)
        agent = life.starts()[-1]
        assert procfs.exists(agent)
        if count < 3:
            os.kill(agent, signal.SIGKILL)
    (life.directory / "closed").touch()
    os.kill(agent, signal.SIGKILL)
    assert life.running[0].wait(LIMIT) == 0
    assert len(life.starts()) == 3


def test_one_that_does_not_start_is_tried_again(life: Life):
    life.supervise("0")
    eventually(lambda: len(life.starts()) >= 2)


def test_a_second_one_waits_and_takes_over(life: Life):
    first = life.supervise()
    eventually(lambda: len(life.starts()) == 1)
    second = life.supervise()
    first.kill()
    first.wait()
    os.kill(life.starts()[0], signal.SIGKILL)
    eventually(lambda: len(life.starts()) == 2)
    assert second.poll() is None


def test_it_takes_nobody_for_the_agent_who_has_its_number(life: Life):
    (life.directory / "agent.pid").write_text(f"{os.getpid()} 1")
    life.supervise()
    eventually(lambda: len(life.starts()) == 1)


def test_an_agent_whose_first_thread_has_ended_lives(life: Life):
    """Its state is Z then; the others hold what it has."""
    agent = subprocess.Popen([sys.executable, "-c", HEADLESS])
    try:
        headless = eventually(lambda: (stat := procfs.read_stat(agent.pid)) and stat.state == "Z" and stat)
        (life.directory / "agent.pid").write_text(f"{agent.pid} {headless.start_ticks}")
        life.supervise()
        supervisor = Path("/proc", str(life.running[0].pid), "syscall")
        eventually(lambda: supervisor.read_text().split()[0] == POLL, "it waits for the end of an agent")
        assert life.starts() == []
    finally:
        agent.kill()
        agent.wait()
    eventually(lambda: len(life.starts()) == 1)
