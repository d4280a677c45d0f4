"""The recorder in a Python service in its capsule: what it recorded is there whoever is killed, and a branch goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from relive.recording.events import Event, EventKind
from relive.recording.reader import Recording
from support.waiting import eventually

from .harness import PYTHON, Relive

PROGRAM = """
import sys, time, uuid
for number in range(100_000):
    print(number, time.time(), uuid.uuid4(), flush=True)
    time.sleep(0.02)
"""


class Ticking:
    """A service that reads the clock and the kernel's randomness, and prints both."""

    def __init__(self, relive: Relive, directory: Path) -> None:
        file = directory / "ticking.py"
        file.write_text(PROGRAM)
        command = ("run", "--detach", "--name", "ticking", "--every", "never", "--", str(PYTHON), str(file))
        answer = relive(*command)
        self.pid: int = answer["pid"]
        self.life = relive.settings.capsules / "ticking" / answer["life"]

    def printed(self) -> list[float]:
        """Clock readings that it printed."""
        lines = (self.life / "io" / "stdout.log").read_text().splitlines()
        return [float(line.split()[1]) for line in lines if len(line.split()) == 3]

    def recorded(self) -> list[float]:
        """Clock readings that were recorded."""
        return [event.fields["value"] for event in self.events() if event.kind is EventKind.CLOCK]

    def events(self) -> list[Event]:
        return list(Recording(self.life / "inside").events())

    def kill_agent(self) -> None:
        os.kill(int((self.life / "agent.pid").read_text().split()[0]), signal.SIGKILL)


@pytest.fixture
def ticking(relive, tmp_path):
    return Ticking(relive, tmp_path)


@pytest.mark.parametrize("killed", ["service", "agent", "both"])
def test_nothing_is_lost_whoever_is_killed(relive, ticking, killed):
    eventually(lambda: len(ticking.recorded()) > 3, "the first events")
    if killed != "service":
        ticking.kill_agent()
        seen = len(ticking.printed())
        eventually(lambda: len(ticking.printed()) > seen + 5, "the service goes on without its agent")
    if killed != "agent":
        os.kill(ticking.pid, signal.SIGKILL)
    relive("ps")  # gives it a new agent
    if killed == "agent":
        os.kill(ticking.pid, signal.SIGKILL)
    eventually((ticking.life / "closed").exists, "the end is written down")
    printed, recorded = ticking.printed(), ticking.recorded()
    # Killed between reading the clock and printing it: one more may have been recorded.
    assert recorded[: len(printed)] == printed
    assert len(recorded) - len(printed) <= 1
    assert not (ticking.life / "rings").exists()


def test_a_branch_goes_on_and_records_nothing_into_the_originals_ring(relive, ticking):
    eventually(ticking.printed, "the first line")
    commit = relive.commit("ticking")
    branch = relive.restore(commit.id)
    eventually(lambda: len(branch.output().splitlines()) > 3, "the branch goes on")
    branch.stop()
    own = [event.seq for event in ticking.events()]
    assert own == list(range(1, len(own) + 1))
