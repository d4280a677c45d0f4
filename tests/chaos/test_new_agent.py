"""A capsule whose agent was killed has exactly one new agent after the next command, whoever gives it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relive.kernel import procfs
from support.waiting import LIMIT, eventually

pytestmark = pytest.mark.real
RELIVE = Path(sysconfig.get_path("scripts")) / "relive"


class Capsule:
    """A sleeping service in a home of its own."""

    def __init__(self, home: Path) -> None:
        tools = os.environ.get("RELIVE_TOOLS", "/var/lib/relive/tools")
        self.environment = {**os.environ, "RELIVE_HOME": str(home), "RELIVE_TOOLS": tools}
        answer = self.ask("run", "--detach", "--every", "never", "--name", "sleeper", "--", "sleep", "1000")
        self.directory = home / "capsules" / "sleeper" / answer["life"]

    def begin(self, *words: str) -> subprocess.Popen[str]:
        command = [RELIVE, words[0], "--json", *words[1:]]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ask(self, *words: str) -> Any:
        with self.begin(*words) as process:
            out, err = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, out + err
        return json.loads(out)

    def agents(self) -> list[int]:
        """Every process that is an agent of this life, whatever its files say."""
        found = []
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"relive.agent" in words and os.fsencode(self.directory) in words:
                found.append(pid)
        return found

    def kill_agent(self) -> int:
        # What it starts looks like it until the execve.
        seen: list[int] = []

        def is_sole() -> bool:
            seen[:] = self.agents()
            return len(seen) == 1

        eventually(is_sole, "there is one agent")
        (agent,) = seen
        os.kill(agent, signal.SIGKILL)
        eventually(lambda: not procfs.exists(agent), "the agent is gone")
        return agent


@pytest.fixture
def capsule() -> Iterator[Capsule]:
    home = Path(tempfile.mkdtemp(prefix="relive-agent-"))
    made = Capsule(home)
    yield made
    made.ask("stop", "sleeper")
    eventually(lambda: not made.agents(), "the last agent has written down the end")
    shutil.rmtree(home)


def test_many_commands_at_once_start_one_agent(capsule: Capsule):
    for _ in range(2):
        killed = capsule.kill_agent()
        commands = [capsule.begin("ps") for _ in range(5)]
        for command in commands:
            with command:
                out, err = command.communicate(timeout=LIMIT)
            assert command.returncode == 0, out + err
        eventually(lambda: len(capsule.agents()) == 1, "there is one agent")
        assert capsule.agents() != [killed]


def test_a_commit_right_after_the_kill_works(capsule: Capsule):
    """The command starts an agent and waits until it listens."""
    capsule.kill_agent()
    assert capsule.ask("commit", "sleeper")["pause_us"] > 0
    eventually(lambda: len(capsule.agents()) == 1, "there is one agent")
