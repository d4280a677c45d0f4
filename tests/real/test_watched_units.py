"""A unit of a systemd that was really booted is watched, through a restart, and given back."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relive.kernel.namespaces import in_network
from relive.kernel.sklookup import PASSED
from support.ports import free_port
from support.waiting import eventually

from .booted import Booted
from .harness import RELIVE, SERVICES, TOOLS, Refused

UNIT = "attended.service"


class Host(Booted):
    """A booted systemd with a home of Relive, and a unit that nobody of Relive's has started."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="relive-"))
        self.port = free_port()
        python = shutil.which("python3", path="/usr/bin:/bin")
        self.files = Path("/run/attended")
        self.inside(self.files).mkdir()
        self.write(
            UNIT,
            "[Unit]\nDefaultDependencies=no\n[Service]\nRestart=on-failure\nRestartSec=100ms\n"
            f"ExecStart={python} {SERVICES / 'attended.py'} {self.port} {self.files}\n",
        )
        self("start", UNIT)
        eventually(lambda: self.ask("/"), "it answers")

    def relive(self, *words: str) -> Any:
        """Run a command beside it, with ``--json``."""
        command, *rest = words
        done = self.say(RELIVE, command, "--json", *rest, RELIVE_HOME=str(self.home), RELIVE_TOOLS=str(TOOLS))
        answer = json.loads(done.stdout) if done.stdout else {}
        if done.returncode != 0:
            raise Refused(answer["error"], done.returncode)
        return answer

    def ask(self, path: str) -> str:
        network = os.open(f"/proc/{self.first}/ns/net", os.O_RDONLY)
        try:
            return in_network(network, lambda: self._ask(path))
        finally:
            os.close(network)

    def _ask(self, path: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.home)


@pytest.fixture
def host() -> Iterator[Host]:
    found = Host.why_not()
    if found is not None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"systemd cannot be booted: {found}")
    made = Host()
    yield made
    made.close()


def test_a_unit_is_followed_through_a_restart(host: Host) -> None:
    """WHEN its main process ends with a status; THEN that is an incident, and the process that systemd starts then is watched."""
    with pytest.raises(Refused) as caught:
        host.relive("watch", "unit:nobody.service")
    assert caught.value.code == "target-unknown"
    begun = host.relive(
        *("watch", f"unit:{UNIT}", "--every", "never", "--log-pattern", "PANIC"),
        *("--record", str(host.port), "--capture", "proxy"),
    )
    assert begun["target"] == f"unit:{UNIT}"
    eventually(lambda: host.ask("/").split()[1] == PASSED, "its port is taken")
    host.ask("/write?one=1")
    commit = host.relive("commit", "attended")
    assert commit["name"] == "attended"
    shown = host.relive("show", commit["id"])
    held = {entry["path"] for layer in shown["layers"] for entry in layer["entries"]}
    assert "attended/one" in held
    host.ask("/say?PANIC")
    kinds = eventually(lambda: host.relive("incidents", "attended"), "the line in the journal is seen")
    assert kinds[0]["sighting"]["kind"] == "log"
    with pytest.raises((OSError, http.client.HTTPException)):
        host.ask("/exit?3")
    ended = eventually(
        lambda: [one for one in host.relive("incidents", "attended") if one["sighting"]["kind"] == "exit"],
        "its end",
    )[0]
    assert ended["sighting"]["exit_status"] == 3
    assert ended["before"] == kinds[0]["at"]
    eventually(lambda: host.ask("/").split()[1] == PASSED, "the next start is watched")
    main = eventually(lambda: int(host.show(UNIT, "MainPID")[0]), "systemd has started it again")
    row = eventually(lambda: [one for one in host.relive("ps") if one["pid"] == main], "the new process")[0]
    assert (row["kind"], row["id"], row["name"]) == ("unit", f"unit:{UNIT}", "attended")
    host.ask("/write?two=2")
    shown = host.relive("show", host.relive("commit", f"unit:{UNIT}")["id"])
    held = {entry["path"] for layer in shown["layers"] for entry in layer["entries"]}
    assert {"attended/one", "attended/two"} <= held
    assert host.relive("stop", "attended") == {"stopped": [f"unit:{UNIT}"]}
    assert int(host.show(UNIT, "MainPID")[0]) == main
    assert host.ask("/").split()[1] == "127.0.0.1"
    branch = host.relive("restore", commit["id"])
    said = host.say(
        RELIVE,
        "exec",
        branch["id"],
        "cat",
        f"{host.files}/one",
        RELIVE_HOME=str(host.home),
        RELIVE_TOOLS=str(TOOLS),
    )
    assert said.stdout == "1"
