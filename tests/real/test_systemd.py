"""Services of a systemd that was really booted (``booted``), under `relive run` and as `relive adopt` has them.

What systemd, its journal and the service itself see must be what they see without Relive; and when all has ended, nothing of
Relive is on that host but its home.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.kernel import procfs
from support.ports import free_port
from support.waiting import LIMIT, eventually

from .booted import UNITS, Booted
from .harness import RELIVE, SERVICES, TOOLS

SERVICE = SERVICES / "unit.py"
PYTHON = shutil.which("python3", path="/usr/bin:/bin")
_TEMPORARY = Path("/run/temporary")  # the host's /tmp holds what others are doing
HEAD = "[Unit]\nDefaultDependencies=no\n[Service]\n"


class Host(Booted):
    """A booted systemd with a home of Relive."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="relive-"))
        self.inside(_TEMPORARY).mkdir()
        self.variables = {
            "RELIVE_HOME": str(self.home),
            "RELIVE_TOOLS": str(TOOLS),
            "TMPDIR": str(_TEMPORARY),
        }

    def relive(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.say(RELIVE, *words, **self.variables)

    def unit(self, name: str, *lines: str) -> None:
        self.write(f"{name}.service", HEAD + "\n".join(lines) + "\n")

    def under_relive(self, name: str, command: str, *lines: str, options: str = "") -> None:
        """A unit that somebody wrote for `relive run`."""
        start = f"ExecStart={RELIVE} run --every never --name {name} {options} -- {command}"
        variables = " ".join(f"{key}={value}" for key, value in self.variables.items())
        self.unit(name, f"Environment={variables}", "KillMode=mixed", *lines, start)

    def said(self, name: str) -> list[str]:
        return [line["MESSAGE"] for line in self.journal(f"{name}.service")]

    def ended(self, name: str) -> list[str]:
        """How a unit ended, once it has."""

        def look() -> list[str] | None:
            state, *how = self.show(name, "ActiveState", "Result", "ExecMainCode", "ExecMainStatus")
            return how if state in ("inactive", "failed") else None

        return eventually(look, f"{name} has ended")

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.home)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    found = Host.why_not()
    if found is not None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"systemd cannot be booted: {found}")
    made = Host()
    yield made
    made.close()


def test_a_notifying_service_starts_reloads_is_committed_and_stops_as_it_would_alone(host):
    host.under_relive(
        "told", f"{PYTHON} {SERVICE}", "Type=notify", "ExecReload=kill -HUP $MAINPID", "WatchdogSec=60"
    )
    host("start", "told")  # returns when it says that it is ready
    assert host.show("told", "ActiveState", "StatusText") == ["active", "serving"]
    main = host.show("told", "MainPID")
    host("reload", "told")
    eventually(lambda: host.show("told", "StatusText") == ["reloaded"], "it says that it has reloaded")
    assert host.show("told", "ActiveState", "MainPID") == ["active", *main]
    host("stop", "told")
    assert host.ended("told")[0] == "success"
    given, *rest = host.said("told")
    assert json.loads(given)["words"] == []
    rest.remove("to stderr")  # two streams reach the journal by two ways; each keeps its own order
    assert rest[0] == "reloaded" and rest[-1] == "the last words", "the journal has all of it, to the end"
    assert sum(len(line) for line in rest[1:-1]) == 200_000


@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("'exit 3'", ["exit-code", str(os.CLD_EXITED), "3"]),
        ("'kill -SEGV $$$$'", ["signal", str(os.CLD_KILLED), str(int(signal.SIGSEGV))]),
    ],
)
def test_an_end_is_the_services_own(host, command, how):
    host.under_relive("ends", f"/bin/sh -c {command}", "Type=exec")
    host("start", "ends", check=False)
    assert host.ended("ends") == how
    host("reset-failed")


def test_whoever_kills_the_command_kills_the_service_and_it_starts_again(host):
    host.under_relive("again", f"{PYTHON} {SERVICE}", "Type=notify", "Restart=on-failure", "RestartSec=0")
    host("start", "again")
    first = host.show("again", "MainPID", "NRestarts")
    os.kill(_outer_pid(host, int(first[0])), signal.SIGKILL)
    eventually(
        lambda: host.show("again", "NRestarts", "StatusText") == ["1", "serving"], "it was started again"
    )
    eventually(lambda: len(_commands(host, f"{PYTHON} {SERVICE}")) == 1, "there is one service")
    host("stop", "again")


def test_a_socket_of_systemd_reaches_an_adopted_service_and_a_commit_and_is_recorded_beside_the_way(host):
    port = free_port()
    host.write("served.socket", f"[Unit]\nDefaultDependencies=no\n[Socket]\nListenStream=127.0.0.1:{port}\n")
    host.unit("served", "Type=notify", "UMask=0027", "LimitNOFILE=777", f"ExecStart={PYTHON} {SERVICE}")
    adopted = host.relive("adopt", "served", "--every", "never", "--listen", f"127.0.0.1:{port}")
    assert adopted.returncode == 0, adopted.stderr
    host("daemon-reload")
    host("start", "served.socket")

    def answer() -> str:
        ask = (
            f"import socket; print(socket.create_connection(('127.0.0.1', {port})).recv(9).decode(), end='')"
        )
        return host.say(str(PYTHON), "-c", ask).stdout

    assert answer() == "hello"
    assert host.relive("commit", "served").returncode == 0
    assert answer() == "hello"
    eventually(lambda: "carried no HTTP/1" in host.relive("ps").stderr, "its connections are recorded")
    (listed,) = json.loads(host.relive("ps", "--json").stdout)
    assert (listed["capture"], listed["listen"]) == ("beside", f"127.0.0.1:{port}")
    given = json.loads(host.said("served")[0])
    assert (given["sockets"], given["umask"], given["nofile"]) == ("1", 0o027, [777, 777])
    host("stop", "served.socket", "served.service")
    host.relive("release", "served")


def test_a_service_that_tells_nothing_is_ready_when_it_was_executed(host):
    host.under_relive("silent", "/bin/sleep 1000", "Type=notify", options="--ready started")
    host("start", "silent")
    assert _commands(host, "/bin/sleep 1000")
    host.under_relive("lacking", "/no/such/program", "Type=notify", options="--ready started")
    host("start", "lacking", check=False)
    assert host.ended("lacking") == ["exit-code", str(os.CLD_EXITED), "9"]
    host("stop", "silent")
    host("reset-failed")


def test_an_adopted_unit_gets_what_it_got_and_released_it_runs_as_before(host):
    host.write(
        "shop@.service",
        f"""{HEAD}
Type=notify
User=nobody
Nice=3
UMask=0027
LimitNPROC=7000
RuntimeDirectory=shop
ExecReload=kill -HUP $MAINPID
WorkingDirectory=/run/shop
Environment=GREETING="two words"
ExecStart={PYTHON} {SERVICE} "${{GREETING}}" %i \\
    'a b'
""",
    )
    unit, path = "shop@1.service", host.inside(UNITS) / "shop@1.service.d/50-relive.conf"
    host("start", unit)
    dry = host.relive("adopt", unit, "--dry-run")
    assert dry.returncode == 0 and "+ExecStart=+" in dry.stdout and not path.exists()
    done = host.relive("adopt", unit, "--restart")
    assert done.returncode == 0, done.stderr
    assert done.stdout == dry.stdout
    assert _processes(host, "run --name shop-1 --every 30s"), "it runs under Relive"
    host("reload", unit)
    eventually(lambda: host.show(unit, "StatusText") == ["reloaded"], "it says that it has reloaded")
    again = host.relive("adopt", unit, "--json", "--restart")
    assert json.loads(again.stdout)["is_changed"] is False
    released = host.relive("release", unit, "--restart")
    assert released.returncode == 0 and not path.parent.exists()
    assert not _processes(host, "relive run"), host.say("ps", "-eo", "pid,ppid,stat,args").stdout
    assert host.relive("release", unit).returncode == 0, "it is an answer, not an error"
    host("stop", unit)
    alone, adopted, after = (json.loads(line) for line in host.said("shop@1") if line.startswith("{"))
    assert alone == adopted == after
    assert alone["words"] == ["two words", "1", "a b"] and alone["directory"] == "/run/shop"
    assert {line["SYSLOG_IDENTIFIER"] for line in host.journal(unit)} == {Path(PYTHON or "").name}


def test_each_process_of_an_adopted_unit_is_told_to_end(host):
    """As KillMode=control-group does: a shell that does not exec its program hands no signal on."""
    host.unit("shell", "Type=exec", f"ExecStart=/bin/sh -c '{PYTHON} {SERVICE}; echo after'")
    host.relive("adopt", "shell", "--every", "never")
    host("daemon-reload")
    host("start", "shell")
    eventually(lambda: "to stderr" in host.said("shell"), "it runs")
    host("stop", "shell")
    assert any(line.startswith("the last words") for line in host.said("shell"))
    host.relive("release", "shell")


def test_what_was_edited_is_left_unless_forced_and_a_confined_unit_is_refused(host):
    host.unit("hard", "Type=exec", "PrivateTmp=yes", "ExecStart=/bin/sleep 1000")
    refused = host.relive("adopt", "hard", "--json")
    assert refused.returncode == 2 and "PrivateTmp=yes" in refused.stdout
    taken = host.relive("adopt", "hard", "--without-confinement")
    assert taken.returncode == 0 and "PrivateTmp=yes" in taken.stderr
    path = host.inside(UNITS) / "hard.service.d/50-relive.conf"
    path.write_text(path.read_text() + "Nice=3\n")
    for command in ("adopt", "release"):
        options = ["--without-confinement"] if command == "adopt" else []
        edited = host.relive(command, "hard", *options, "--json")
        assert json.loads(edited.stdout)["error"]["code"] == "unit-unfit"
    assert "Nice=3" in path.read_text()
    assert host.relive("release", "hard", "--force").returncode == 0 and not path.exists()


def test_when_all_has_ended_nothing_of_relive_is_there_but_its_home(host):
    """Runs last: what the tests before have left counts, too. ``stop`` and a service's own end, with a proxy and a border."""
    host.relive("ps")  # ends what systemd had killed in the tests before
    _await_agents(host)
    eventually(lambda: not _processes(host, "relive.agent"), "no agent is left")
    before = _everything(host)
    assert "relive" not in before["run"]
    port, inner = free_port(), free_port()
    listen = [
        "--listen",
        f"127.0.0.1:{port}",
        "--upstream",
        str(inner),
        "--record-egress",
        "--user",
        "nobody",
    ]
    serve = [str(PYTHON), "-m", "http.server", str(inner), "--bind", "127.0.0.1"]
    for name, options, command in (
        ("one", ["--memory", "256M"] if _has_memory_groups(host) else [], ["/bin/sleep", "1000"]),
        ("two", listen, serve),
        ("three", [], ["/bin/sh", "-c", "echo done"]),
    ):
        done = host.relive("run", "--detach", "--every", "start", "--name", name, *options, "--", *command)
        assert done.returncode == 0, done.stderr
    host.relive("commit", "one")
    assert _everything(host) != before
    for name in ("one", "two"):
        assert host.relive("stop", name).returncode == 0
    _await_agents(host)
    try:
        eventually(lambda: _everything(host) == before, "all is as it was", limit=LIMIT / 3)
    except AssertionError:
        assert _everything(host) == before
        raise


def _await_agents(host: Host) -> None:
    lives = [*host.home.glob("capsules/*/2*")]
    eventually(lambda: not any((life / "agent.pid").exists() for life in lives), "all is written down")


def _has_memory_groups(host: Host) -> bool:
    return "memory" in host.inside(Path("/sys/fs/cgroup/cgroup.controllers")).read_text()


def _everything(host: Host) -> dict[str, list[str]]:
    """What a host shows of what runs on it, but for the fork server, which ends some minutes after the last that it forked."""
    commands = {
        "processes": "ps -eo args= | grep -v '^ps -eo\\|^sh -c'",
        "mounts": f"cut -d' ' -f5 /proc/1/mountinfo | grep -e /run/ -e /dev/ -e {host.home}",
        "sockets": "cut -d' ' -f9- /proc/net/unix | grep -i relive; ss -Hltn | cut -d' ' -f1-",
        "run": f"ls -a /run /dev/shm {_TEMPORARY}",
        "groups": "find /sys/fs/cgroup -type d -name '*relive*'",
        "links": "ip -brief link | cut -d' ' -f1",
        "rules": "iptables-save | grep '^-'",
    }
    shown = {what: host.say("sh", "-c", line).stdout.splitlines() for what, line in commands.items()}
    ours = ("relive.forkserver", "relive-fork-server")
    return {
        what: sorted(line for line in lines if not any(map(line.__contains__, ours)))
        for what, lines in shown.items()
    }


def _processes(host: Host, words: str) -> list[int]:
    """Numbers inside of the processes whose command line holds these words."""
    return [pid for pid, line in _command_lines(host) if words in line]


def _commands(host: Host, words: str) -> list[int]:
    """Those whose command line begins with these words: not `relive run`, which has them behind its own."""
    return [pid for pid, line in _command_lines(host) if line.startswith(words)]


def _command_lines(host: Host) -> list[tuple[int, str]]:
    listed = host.say("ps", "-eo", "pid=,args=").stdout.splitlines()
    return [(int(pid), line) for pid, line in (one.split(maxsplit=1) for one in listed)]


def _outer_pid(host: Host, inner: int) -> int:
    """Its number on this machine."""
    below = [host.first]
    for pid in below:
        children = Path(f"/proc/{pid}/task/{pid}/children")
        below += [int(word) for word in children.read_text().split()]
    return next(pid for pid in below if procfs.status_field(pid, "NSpid").split()[1:2] == [str(inner)])
