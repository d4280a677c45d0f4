"""Services that run already are watched, from the middle of their traffic on: nothing of them waits for it or depends on it."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relive.kernel import procfs
from relive.kernel.sklookup import PASSED
from relive.proxies.ingress.options import CAPTURE
from support.ports import free_port
from support.waiting import eventually

from .harness import PYTHON, SERVICES, TOOLS, Load, Process, Refused, Relive, ask

Start = Callable[..., Process]


class Attended:
    """``attended.py``, started by nobody of Relive's."""

    def __init__(self, relive: Relive, start: Start, directory: Path) -> None:
        self.relive, self.directory = relive, directory / "files"
        self.directory.mkdir()
        self.port = free_port()
        self.log = directory / "out.log"
        with self.log.open("w") as out:
            self.process = start(
                PYTHON,
                SERVICES / "attended.py",
                str(self.port),
                self.directory,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        eventually(lambda: self.ask("/"), "it answers")
        self.target = f"pid:{self.process.pid}"

    def watch(self, *options: str, every: str = "never", **how: Any) -> dict[str, Any]:
        return dict(
            self.relive("watch", self.target, "--name", "attended", "--every", every, *options, **how)
        )

    def ask(self, path: str, port: int | None = None) -> str:
        """The answer to a request on a connection of its own; raises OSError without one."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=20)
        with contextlib.closing(connection):
            return answer_of(connection, path)

    def incident(self, kind: str) -> dict[str, Any]:
        """Wait for the first of a kind."""

        def look() -> list[dict[str, Any]]:
            return [one for one in self.relive.incidents("attended") if one["sighting"]["kind"] == kind]

        return eventually(look, f"an incident: {kind}")[-1]

    def until_not_watched(self) -> None:
        eventually(
            lambda: all(one["kind"] == "branch" for one in self.relive("ps")),
            "the watch ends with its process",
        )

    @property
    def life(self) -> Path:
        return next(self.relive.home.glob("capsules/attended/*"))

    def agent(self) -> int:
        return int((self.life / "agent.pid").read_text().split()[0])


def answer_of(connection: http.client.HTTPConnection, path: str) -> str:
    connection.request("GET", path)
    return connection.getresponse().read().decode()


@pytest.fixture
def service(relive: Relive, start: Start, tmp_path: Path) -> Iterator[Attended]:
    made = Attended(relive, start, tmp_path)
    yield made
    made.process.close()
    made.until_not_watched()


def of_relive(home: Path) -> list[str]:
    """Command lines of processes that know of this home."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(home) in words and int(name) != os.getpid():
                found.append(words)
    return found


def test_a_commit_holds_what_was_changed_since_the_watch_began(service: Attended) -> None:
    """GIVEN files from before; WHEN some are changed before a commit and others after it; THEN a branch sees the first as they were
    then, and a restore names the others.
    """
    for name in ("kept", "gone", "moved", "later"):
        (service.directory / name).write_text("before")
    service.watch()
    for order in (
        "/write?new=1",
        "/write?kept=changed",
        "/remove?gone",
        "/move?moved=away",
        "/child?child=2",
    ):
        service.ask(order)
    commit = service.relive.commit("attended")
    assert commit.manifest.target.name == "attended"
    for order in (
        "/write?new=3",
        "/write?kept=again",
        "/write?gone=back",
        "/write?later=lost",
        "/write?after=4",
    ):
        service.ask(order)
    branch = service.relive.restore(commit, service.port)
    count, _, *names = service.ask("/", branch.ports[service.port]).split()
    assert int(count) == 7
    told = branch.exec(
        "sh", "-c", f"cd {service.directory}; head -c 20 new kept away child later; ls"
    ).split()
    assert told[told.index("new") + 2] == "1"
    assert told[told.index("kept") + 2] == "changed"
    assert told[told.index("away") + 2] == "before"
    assert told[told.index("child") + 2] == "2"
    assert "gone" not in names and "moved" not in names
    said = service.relive.say("restore", commit.id)
    assert f"changed them first later: {service.directory}/later." in said.stderr
    assert f"not there then: {service.directory}/after." in said.stderr
    assert (service.directory / "new").read_text() == "3"


def test_its_port_is_taken_in_the_middle_of_traffic_and_given_back(service: Attended) -> None:
    """GIVEN a connection from before and a load of new ones; WHEN it is watched, agent and proxy are killed, and the watch is
    stopped; THEN no request is lost, what went by the proxy is recorded, and nothing of Relive is left.
    """
    before = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
    assert answer_of(before, "/").split()[1] == "127.0.0.1"
    with contextlib.closing(before), Load(lambda: service.ask("/")) as load:
        service.watch("--record", str(service.port), "--capture", "proxy")
        eventually(lambda: load.last.split()[1] == PASSED, "new connections are recorded")
        assert answer_of(before, "/").split()[1] == "127.0.0.1"
        first = service.agent()
        os.kill(first, signal.SIGKILL)
        eventually(lambda: not procfs.exists(first), "the agent is gone")
        load.more()
        assert [one["name"] for one in service.relive("ps")] == ["attended"]
        assert service.agent() != first
        commit = service.relive.commit("attended")
        assert any(
            "nobody followed them then" in line for layer in commit.manifest.layers for line in layer.left_out
        )
        load.more()
        assert service.relive("stop", "attended") == {"stopped": [service.target]}
        load.more()
        assert load.last.split()[1] == "127.0.0.1"
        assert answer_of(before, "/").split()[1] == "127.0.0.1"
    # The last supervisor sees by itself that the life is over, a moment after the command has returned.
    eventually(lambda: not of_relive(service.relive.home), "nothing of Relive is left")
    assert procfs.status_field(service.process.pid, "TracerPid") == "0"
    assert len(service.relive("log", "attended")) == 1


def test_a_proxy_that_dies_leaves_the_port_to_the_service(service: Attended, tmp_path: Path) -> None:
    """Nobody asked for it: packets cannot be taken, as the program for that is not there. That is said."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in TOOLS.iterdir():
        if tool.name != CAPTURE:
            (tools / tool.name).symlink_to(tool)
    begun = service.watch("--record", str(service.port), environment={"RELIVE_TOOLS": str(tools)})
    why = next(one for one in begun["missing"] if "recording proxy" in one)
    assert CAPTURE in why
    listed = service.relive("ps")[0]
    assert (listed["capture"], listed["notes"]) == ("proxy", [why])
    eventually(lambda: service.ask("/").split()[1] == PASSED, "the port is taken")
    agent = service.agent()
    os.kill(agent, signal.SIGKILL)  # so that nobody starts another
    eventually(lambda: not procfs.exists(agent), "the agent is gone")
    proxies = [
        int(name)
        for name in filter(str.isdigit, os.listdir("/proc"))
        if is_proxy(int(name), service.relive.home)
    ]
    assert len(proxies) == 1
    os.kill(proxies[0], signal.SIGKILL)
    eventually(lambda: not procfs.exists(proxies[0]), "it is gone, and its sockets with it")
    assert service.ask("/").split()[1] == "127.0.0.1"
    service.relive("ps")
    eventually(lambda: service.ask("/").split()[1] == PASSED, "the next agent takes it again")


def is_proxy(pid: int, home: Path) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"relive.proxies.ingress.proxy" in words and str(home).encode() in words


def test_failures_are_seen_and_committed(service: Attended) -> None:
    """A line of its output, a 5xx answer, a health check, at last a fatal signal: each is an incident, with a commit that lives."""
    url = f"http://127.0.0.1:{service.port}/health"
    service.watch("--log-pattern", "PANIC", "--health-url", url)
    service.ask("/sick")
    service.ask("/say?PANIC")
    assert "PANIC" in service.incident("log")["sighting"]["summary"]
    sick = service.incident("unhealthy")
    assert "status 503" in sick["sighting"]["summary"]
    service.ask("/well")
    own = service.relive.commit(service.target)
    with pytest.raises((OSError, http.client.HTTPException)):
        service.ask("/null")
    died = service.incident("signal")
    assert died["before"] == own.id and died["at"] is not None
    assert f"pid {service.process.pid}" in died["sighting"]["summary"]
    service.until_not_watched()
    assert [one for one in service.relive("incidents", "attended") if one["sighting"]["kind"] == "exit"] == []
    branch = service.relive.restore(own, service.port)
    assert int(service.ask("/", branch.ports[service.port]).split()[0]) > 4


def test_a_replay_finds_the_cause_in_the_file_that_is_its_log(service: Attended) -> None:
    """GIVEN a service whose standard error is a file, and a request that prints a traceback there; WHEN it is replayed; THEN the
    branch's own file shows the same cause, and the host's gets nothing of it.
    """
    service.watch("--record", str(service.port), "--capture", "beside", every="never")
    service.relive.commit("attended")
    service.ask("/raise?it")
    number = service.incident("answer")["number"]
    written = service.log.read_bytes()
    (run,) = service.relive("replay", str(number))["runs"]
    assert run["verdict"]["kind"] == "reproduced", run
    assert "the same stack in the log" in run["verdict"]["evidence"][0]
    assert service.log.read_bytes() == written


def test_an_end_with_a_status_is_an_incident(service: Attended) -> None:
    service.watch(every="start")
    before = eventually(lambda: service.relive.commits("attended"), "the first commit")[0]["id"]
    with pytest.raises((OSError, http.client.HTTPException)):
        service.ask("/exit?7")
    ended = service.incident("exit")
    assert ended["sighting"]["exit_status"] == 7
    assert ended["before"] == before


def test_gunicorn_with_workers_is_watched_under_load(relive: Relive, start: Start, tmp_path: Path) -> None:
    """Commits at a rate while requests come; a worker that is killed becomes no loss of the watch, and a branch answers."""
    port = free_port()
    master = start(
        *(
            PYTHON,
            "-m",
            "gunicorn",
            "--workers",
            "2",
            "--chdir",
            SERVICES,
            "--bind",
            f"127.0.0.1:{port}",
            "wsgi_counter:app",
        ),
        env=dict(os.environ, COUNTER_LOG=str(tmp_path / "counts")),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    ask(port, "/state")
    with Load(lambda: ask(port, "/state")) as load:
        relive(
            "watch",
            f"pid:{master.pid}",
            "--name",
            "wsgi",
            "--every",
            "300ms",
            "--pause-share",
            "100",
            "--record",
            str(port),
        )
        eventually(lambda: len(relive.commits("wsgi")) >= 3, "commits")
        load.more()
        relive("stop", "wsgi")
        load.more()
    commit = relive("log", "wsgi")[0]
    branch = relive.restore(commit["id"], port)
    assert ask(branch.ports[port], "/state")
    master.close()


def test_files_that_were_named_are_in_each_commit(service: Attended, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "below").mkdir(parents=True)
    (data / "below" / "one").write_text("1")
    (data / "two").symlink_to("below/one")
    service.watch("--files", str(data))
    commit = service.relive.commit("attended")
    (data / "below" / "one").write_text("changed by another")
    (data / "three").write_text("added by another")
    branch = service.relive.restore(commit)
    assert branch.exec("sh", "-c", f"cat {data}/two; ls {data}").split() == ["1below", "two"]


def test_what_cannot_be_watched_is_refused_with_a_remedy(service: Attended) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    for words, code, remedy in (
        ([f"pid:{gone.pid}"], "target-unknown", "ps -e"),
        (["pid:x"], "usage", "pid:1234"),
        (["pid:1"], "target-undumpable", "service itself"),
        ([service.target, "--record", "1"], "usage", "listens at"),
        ([service.target, "--record", str(service.port), "--listen", "127.0.0.1:1"], "usage", "one of them"),
        ([service.target, "--every", "request"], "usage", "--record"),
        ([service.target, "--health-url", "ftp://x"], "usage", "400"),
        ([service.target, "--log", "/nowhere"], "usage", "existing"),
        (["podman:x", "--log", "/dev/null"], "usage", "leave"),
    ):
        with pytest.raises(Refused) as caught:
            service.relive("watch", *words)
        assert (caught.value.code, remedy in caught.value.remedy) == (code, True), words
    mute = subprocess.Popen(
        ["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        with pytest.raises(Refused) as caught:
            service.relive("watch", f"pid:{mute.pid}", "--log-pattern", "x")
    finally:
        mute.kill()
        mute.communicate()
    assert "--log" in caught.value.remedy and "pipe" in caught.value.cause
    service.watch()
    with pytest.raises(Refused) as caught:
        service.relive("watch", service.target, "--name", "again")
    assert caught.value.code == "capsule-exists"
    service.relive("stop", service.target)
