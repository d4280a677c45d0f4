"""Relive as its users have it: the command line with ``--json`` on real services, in a home of its own.

Waiting is polling with a deadline; what was started is ended by the pids that were noted.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from relive.config import Settings
from relive.errors import KeyMissing
from relive.incidents.incidents import IncidentQuery, Incidents
from relive.kernel import procfs
from relive.model.commit import CommitId, Manifest
from relive.operations.commits import Commit as CommitLine
from relive.operations.incidents import IncidentLine
from relive.sandbox.branch import Branch as SandboxBranch
from relive.sandbox.branch import find_branch, list_branches
from relive.sandbox.seal import Seal
from relive.store import CommitQuery, Store
from support.forker import Forker
from support.measured import MEASURED
from support.ports import free_port
from support.waiting import LIMIT, eventually

SERVICES = Path(__file__).parent / "services"
PROGRAMS = Path(__file__).parent.parent / "programs"
RELIVE = Path(sysconfig.get_path("scripts")) / "relive"
TOOLS = Path(os.environ.get("RELIVE_TOOLS", "/var/lib/relive/tools"))
_ALL = 1 << 62  # no list is longer
_PACE = 0.002  # [s] between two rounds of a load; the machine has to do the rest too

Result = TypeVar("Result")


def compiled(source: Path, directory: Path, *options: str) -> Path:
    """A C program of ``tests/programs``."""
    program = directory / source.stem
    subprocess.run(
        ["gcc", "-O1", "-g", "-Wall", "-Werror", "-pthread", "-o", program, source, *options], check=True
    )
    return program


class Refused(Exception):
    """A command of Relive answered with an error."""

    def __init__(self, error: dict[str, Any], status: int) -> None:
        super().__init__(f"{error['code']}: {error['message']} | {error['cause']} | {error['remedy']}")
        self.code, self.status = error["code"], status
        self.message, self.cause, self.remedy = error["message"], error["cause"] or "", error["remedy"] or ""


@dataclass(frozen=True)
class Capsule:
    """A service that ``relive run`` started."""

    name: str
    life: str
    pid: int


@dataclass(frozen=True)
class Commit:
    """``asked`` and ``done``: (monotonic, wall) in seconds around the command."""

    id: str
    pause_us: int
    durable_us: int
    asked: tuple[float, float]
    done: tuple[float, float]
    manifest: Manifest


@dataclass
class Branch:
    relive: Relive
    id: str
    root: int
    asked: tuple[float, float]
    ports: dict[int, int] = field(default_factory=dict)

    def exec(self, *command: str, check: bool = True) -> str:
        """What a command says inside, both streams; as `relive exec` does it, without a new Python each time."""
        done = subprocess.run(
            self.inner.command_inside(list(command)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT,
            check=False,
        )
        text = done.stdout.decode(errors="replace")
        assert not check or done.returncode == 0, f"{command} ended with {done.returncode}: {text}"
        return text

    @property
    def inner(self) -> SandboxBranch:
        return find_branch(self.relive.settings, self.id)

    def output(self) -> str:
        """Its standard output."""
        return self.inner.log("stdout").read_text()

    def seal(self) -> Seal:
        return self.inner.seal()

    def pids(self) -> list[int]:
        """Process numbers as they are inside."""
        words = self.exec("ps", "-e", "-o", "pid=,comm=").splitlines()
        return sorted(int(line.split()[0]) for line in words if line.split()[1] not in ("ps", "relive-init"))

    def stop(self) -> None:
        self.relive("stop", self.id)


def _supervisors(life: Path) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            if words[0].endswith(b"relive-supervisor") and words[1] == os.fsencode(life):
                found.append(int(name))
    return found


def _ended_supervisors(life: Path) -> list[int]:
    """Those that were killed just now; a stopped agent may have begun one behind the last look."""
    found = _supervisors(life)
    for supervisor in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(supervisor, signal.SIGKILL)
    return found


def _clocks() -> tuple[float, float]:
    return time.monotonic(), time.time()


class Relive:
    """The command line in a home of its own."""

    commands: Forker  # set for the whole session, by its fixture

    def __init__(self, home: Path, label: str) -> None:
        self.home = home
        self.label = label
        home.mkdir(exist_ok=True)
        self.settings = Settings(home=home, tools=TOOLS)
        self.environment = dict(os.environ, RELIVE_HOME=str(home), RELIVE_TOOLS=str(TOOLS))

    def __call__(self, *words: str, environment: dict[str, str] | None = None) -> Any:
        """Run a command with ``--json``; returns its answer, raises Refused."""
        done = self.say(*words, environment=environment)
        if done.returncode != 0:
            try:
                error = json.loads(done.stdout)["error"]
            except (ValueError, KeyError):
                pytest.fail(f"relive {' '.join(words)}: {done.stdout} {done.stderr}")
            raise Refused(error, done.returncode)
        return json.loads(done.stdout)

    def say(self, *words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command with ``--json``, whatever becomes of it."""
        command, *rest = words
        return self.commands([command, "--json", *rest], self.environment | (environment or {}))

    def run(
        self,
        *command: str | Path,
        name: str = "service",
        user: str | None = None,
        options: tuple[str, ...] = (),
        **env: str,
    ) -> Capsule:
        """Start a service in a capsule that commits only when asked."""
        words = ["--detach", "--no-wait", "--every", "never", "--name", name, *options]
        if user is not None:
            words += ["--user", user]
        answer = self("run", *words, "--", *(str(word) for word in command), environment=env)
        return Capsule(answer["name"], answer["life"], answer["pid"])

    def end_agent(self, life: Path) -> None:
        """Kill the agent of a life, so that the next command starts another, and nobody else.

        Its supervisor, which would start one with all that it has inherited itself, is killed before. Each would start the other
        again: the agent is stopped while that ends. One that was stopped before it has a supervisor would get none.
        """
        life = life.resolve()  # by "current", too; the supervisor names the directory itself
        agent = int((life / "agent.pid").read_text().split()[0])
        eventually(lambda: _supervisors(life), "its supervisor")
        os.kill(agent, signal.SIGSTOP)
        try:
            eventually(lambda: not _ended_supervisors(life), "their end")
        finally:
            os.kill(agent, signal.SIGKILL)
        eventually(lambda: procfs.read_stat(agent) is None, "the agent's end")

    def commit(self, target: str | Capsule, *options: str, measured: bool = True) -> Commit:
        asked = _clocks()
        answer = self("commit", target.name if isinstance(target, Capsule) else target, *options)
        done = _clocks()
        with contextlib.closing(Store(self.settings.store)) as store:
            try:
                manifest = store.manifest(CommitId(answer["id"]))
            except KeyMissing:  # of a key that only the environment has
                manifest = store.facts(CommitId(answer["id"]))
        if measured:
            MEASURED.append((self.label, "pause", answer["pause_us"] / 1000))
            MEASURED.append((self.label, "durable", answer["durable_us"] / 1000))
        return Commit(answer["id"], answer["pause_us"], answer["durable_us"], asked, done, manifest)

    def restore(
        self, commit: Commit | str, *ports: int, clock: str = "recorded", options: tuple[str, ...] = ()
    ) -> Branch:
        """Restore with the given ports published on free ports of this host."""
        published = {port: free_port() for port in ports}
        words = [word for port, host in published.items() for word in ("--publish", f"{host}:{port}")]
        asked = _clocks()
        ref = commit.id if isinstance(commit, Commit) else commit
        answer = self("restore", "--clock", clock, *words, *options, ref)
        MEASURED.append((self.label, "restore", answer["restore_us"] / 1000))
        return Branch(self, answer["id"], answer["root"], asked, published)

    def incidents(self, service: str | None = None) -> list[dict[str, Any]]:
        """As ``relive incidents`` tells them, but for masking, and no agent that has died is replaced.

        They are read in this process: who waits for one asks often, and a command takes 25 ms of a processor.
        """
        kept = Incidents(self.settings.incidents)
        page = kept.page(IncidentQuery(service=service), limit=_ALL)
        exceptions = {one.number: one.exception for one in page.items}
        found = kept.read(exceptions)
        return [IncidentLine.of(one, exceptions[one.number]).model_dump(mode="json") for one in found]

    def commits(self, name: str | None = None) -> list[dict[str, Any]]:
        """As ``relive log`` tells them; see ``incidents``."""
        with contextlib.closing(Store(self.settings.store)) as store:
            page = store.page(CommitQuery(name=name), limit=_ALL)
        return [CommitLine.of(one, []).model_dump(mode="json") for one in page.items]

    def agent_log(self, capsule: Capsule) -> str:
        return (self.home / "capsules" / capsule.name / capsule.life / "agent.log").read_text()

    def agent(self, capsule: Capsule) -> int:
        """The pid of its agent, once there is one that has noted it."""
        noted = self.home / "capsules" / capsule.name / capsule.life / "agent.pid"
        return eventually(lambda: int((noted.read_text().split() or ["0"])[0]), "an agent")

    def output(self, capsule: Capsule) -> str:
        return (self.home / "capsules" / capsule.name / capsule.life / "io" / "stdout.log").read_text()

    def close(self) -> None:
        """End branches, services and agents, in this order, and be sure that they are gone."""
        for branch in list_branches(self.settings):
            branch.stop()
        for state in self.home.glob("capsules/*/*/state.json"):
            facts = json.loads(state.read_bytes())
            _kill(facts["init"], facts["init_started"])
        for noted in self.home.glob("capsules/*/*/agent.pid"):
            with contextlib.suppress(OSError, ValueError):
                pid, started = noted.read_text().split()
                eventually(
                    lambda p=pid, s=started: not procfs.is_same_process(int(p), int(s)), "the agent's end"
                )


def _kill(pid: int, started: int) -> None:
    if procfs.is_same_process(pid, started):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Process:
    """A process that Relive did not start; ended with the test."""

    def __init__(self, *command: str | Path, **options: Any) -> None:
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("start_new_session", True)
        self.popen = subprocess.Popen([str(word) for word in command], **options)
        self.pid = self.popen.pid

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.popen.kill()
        self.popen.wait(LIMIT)


class Http:
    """A keep-alive connection to one service."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)

    def __call__(self, method: str, path: str, body: bytes | None = None) -> Any:
        self.connection.request(method, path, body)
        answer = self.connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise ValueError(f"{answer.status}: {data!r}")
        return json.loads(data)

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Http:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def ask(port: int, path: str) -> Any:
    """One GET on a connection of its own, as soon as the service answers."""

    def attempt() -> Any:
        with Http(port) as http_:
            return http_("GET", path)

    return eventually(attempt, f"GET :{port}{path}")


class Load:
    """Something done again and again in a thread; a commit must not disturb it, so any exception fails the test.

    Attributes:
        done: how many times it was done.
        last: what it returned last.
    """

    def __init__(self, work: Callable[[], Any], close: Callable[[], None] = lambda: None) -> None:
        self.done = 0
        self.last: Any = None
        self.longest = 0.0  # [s]
        self._work, self._close = work, close
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            while not self._stop.wait(_PACE):
                began = time.monotonic()
                self.last = self._work()
                self.longest = max(self.longest, time.monotonic() - began)
                self.done += 1
        except BaseException as error:
            self._failure = error

    def more(self, count: int = 20) -> None:
        """Wait until it was done so many times more."""
        target = self.done + count
        eventually(lambda: self.done >= target or self._failure is not None, "the load goes on")
        if self._failure is not None:
            raise AssertionError(f"the load failed after {self.done} rounds") from self._failure

    def __enter__(self) -> Load:
        self._thread.start()
        try:
            self.more()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(LIMIT)
        self._close()
        if self._failure is not None:
            raise AssertionError(f"the load failed after {self.done} rounds") from self._failure


def counting(port: int) -> Load:
    """A client that makes a service count on one keep-alive connection, and sees that no count is lost or doubled."""
    client = Http(port)
    seen: list[int] = []

    def work() -> int:
        count = client("POST", "/count")["count"]
        assert not seen or count == seen[-1] + 1, f"{count} after {seen[-1]}"
        seen[:] = [count]
        return int(count)

    return Load(work, client.close)


def check_clocks(branch: Branch, commit: Commit, told: dict[str, Any], clock: str = "recorded") -> None:
    """What the branch told as its time just now: the clocks went on where the commit was, but for a wall clock of now."""
    now = _clocks()
    since = now[0] - branch.asked[0]
    grain = 0.05  # [s]
    assert commit.asked[0] - grain <= told["monotonic"] <= commit.done[0] + since + grain
    if clock == "recorded":
        assert commit.asked[1] - grain <= told["wall"] <= commit.done[1] + since + grain
    else:
        assert abs(told["wall"] - now[1]) < 5


PYTHON = Path(sys.executable)
