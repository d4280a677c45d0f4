"""Kill Relive, CRIU and their helpers at random moments, and see what that does to the observed services and the store.

    python benchmarks/chaos.py [--rounds 300] [--seed N] [--json]   the whole of Relive, under traffic
    python benchmarks/chaos.py --raw 2000                           CRIU alone, killed at a random moment of a dump

One service runs in a capsule behind the recording proxy, one as a plain process that ``relive commit pid:`` commits. Both
count requests in memory and in SQLite. A client in a process of its own sends requests with unique ids: directly to both,
and through the proxy. A round begins a commit, kills its victim in some phase of it, and then asks: does the service (the
same process) answer, is none of its threads stopped, has it lost or doubled anything it acknowledged, does the store open,
is every commit that it lists complete (each object hashed), does the next commit succeed. Some commits are restored.

Phases, as seen in /proc at the moment of the kill: *before* CRIU holds the service, *frozen* while it does, *after* it has
let go, *idle* when no commit was under way any more. Exit status 1 when a service died, stayed stopped, or lost or doubled
a request it had acknowledged, or when a listed commit was not complete. One harm is counted and no failure: CRIU executes
code of its own in the process it holds, and a process whose CRIU is killed with SIGKILL in the midst of that may die with it
(SIGTRAP, SIGSEGV), or close a connection that it used in the midst of it ("cut off"). ``--raw`` measures how often.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relive.agent.capsule import Capsule, find_capsule, living_capsules
from relive.agent.control import ask_agent
from relive.config import Settings, load_settings
from relive.engine.criu import CriuTools
from relive.engine.kerndat import place_kerndat
from relive.engine.watchdog import Watchdog
from relive.errors import ReliveError
from relive.kernel import procfs
from relive.store import Store
from relive.store.incidents import Incidents

NAME = "chaos"
RELIVE = str(Path(sys.executable).with_name("relive"))
SERVICE = str(Path(__file__).with_name("_chaos_service.py"))
CLIENT = str(Path(__file__).with_name("_chaos_client.py"))
ANSWER_BOUND = 10.0  # [s] a service that has not answered by then counts as lost; the client waits for longer
CLIENT_BOUND = 5.0  # [s] after which the client gives up a connection and makes another
RECOVERY_BOUND = 30.0  # [s] for a new agent, a new proxy and a commit
EPOCH = 30  # rounds that one life of the services lasts
RESTORE_EVERY = 25  # rounds
SPIN = 0.0002  # [s]

VICTIMS = {
    "nobody": 2,
    "criu": 6,
    "nsenter": 3,
    "agent": 5,
    "watchdog": 3,
    "tracer": 3,
    "proxy": 3,
    "viewer": 1,
    "agent+criu": 4,
    "agent+watchdog": 2,
    "agent+watchdog+criu": 4,
    "agent stopped 2 s": 2,
    "cli": 4,
    "cli+criu": 2,
    "cli+watchdog+criu": 2,
}
PHASES = ("before", "frozen", "frozen", "after")


# -- the client -------------------------------------------------------------------------------------------------------


class Client:
    """The client's process, and what it has told."""

    def __init__(self, targets: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, CLIENT, *targets],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.acknowledged: dict[str, set[str]] = defaultdict(set)
        self.failed: dict[str, set[str]] = defaultdict(set)
        self._events: list[tuple[str, float, float, bool]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            name, identity, began, ended, answered = json.loads(line)
            (self.acknowledged if answered else self.failed)[name].add(identity)
            self._events.append((name, began, ended, answered))

    def since(self, moment: float, name: str) -> tuple[float, int]:
        """(longest wait for an answer in seconds, requests that failed) of requests that ended after a moment.

        Waits for one that began after the call, so that what hangs is seen.
        """
        now = time.monotonic()
        until(
            lambda: any(event[0] == name and event[1] > now for event in self._events[-50:]), CLIENT_BOUND * 2
        )
        recent = [event for event in self._events if event[0] == name and event[2] >= moment]
        waits = [ended - began for _, began, ended, answered in recent if answered]
        return max(waits, default=0.0), sum(not answered for *_, answered in recent)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)
        self._reader.join(10)


# -- looking at processes ---------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def tracer_of(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return int(text.partition("TracerPid:")[2].split(maxsplit=1)[0])


def thread_states(pid: int) -> str:
    states = ""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{pid}/task/{thread}/stat").read_text()
                states += stat.rpartition(")")[2].split()[0]
    return states


def until(condition: Callable[[], Any], bound: float, pause: float = 0.005) -> Any:
    """Wait until something is true; returns it, or what it was last when the bound is over."""
    deadline = time.monotonic() + bound
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(pause)
    return value


def kill(pid: int | None, number: signal.Signals = signal.SIGKILL) -> bool:
    if not pid:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def kill_all(pids: Iterable[int | None]) -> bool:
    """Kill as much as is there; True when all were."""
    return min([kill(pid) for pid in pids])


# -- a service under observation --------------------------------------------------------------------------------------


@dataclass
class Service:
    """One counting service, as the harness knows it from outside."""

    root: int
    port: int
    started: int

    @classmethod
    def at(cls, root: int, port: int) -> Service:
        stat = procfs.read_stat(root)
        assert stat is not None
        return cls(root, port, stat.start_ticks)

    @property
    def lives(self) -> bool:
        return procfs.is_same_process(self.root, self.started)

    def ask(self, path: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_BOUND)
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def is_stopped(self) -> bool:
        return any(state in "Tt" for pid in procfs.tree_of(self.root) for state in thread_states(pid))


@dataclass
class Round:
    """What one round showed."""

    victim: str
    phase: str
    killed: bool
    service: str = "unharmed"
    longest_wait: float = 0.0
    direct_failed: int = 0
    proxied_failed: int = 0
    commit: str = ""
    store: str = "complete"

    @property
    def died_with_criu(self) -> bool:
        """The one harm that cannot be kept from a service; see the top."""
        return "criu" in self.victim.split("+") and self.service.startswith("died of SIG")


@dataclass
class Moment:
    """The processes of a commit under way, by pid."""

    criu: int | None = None
    nsenter: int | None = None
    frozen: bool = False


class Harness:
    """Home, tools and everything that runs in them."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.home = directory / "home"
        self.work = directory / "work"
        self.home.mkdir()
        self.work.mkdir()
        tools = load_settings().tools_path
        self.environment = {**os.environ, "RELIVE_HOME": str(self.home), "RELIVE_TOOLS": str(tools)}
        # Only the newest commits stay, so that a gap between those that are listed is a loss.
        self.environment |= {f"RELIVE_KEEP_{unit}": "0" for unit in ("MINUTES", "HOURS", "DAYS", "MONTHS")}
        self.settings: Settings = load_settings(home=self.home, tools=tools)
        self.verified: set[str] = set()
        self.told: dict[str, tuple[str, int]] = {}  # id -> (target, when it was asked for, wall clock [ns])
        self.rounds: list[Round] = []
        self.problems: list[str] = []
        self.restored = 0
        self.client: Client | None = None
        self.plain_process: subprocess.Popen[bytes] | None = None
        self.viewer: subprocess.Popen[bytes] | None = None

    def relive(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [RELIVE, *arguments],
            env=self.environment,
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    # -- epochs ------------------------------------------------------------------------------------------------------

    def begin(self, every: str) -> None:
        """Start both services and the client."""
        port, listen, plain_port = free_port(), free_port(), free_port()
        directory = self.work / f"life-{len(self.rounds)}"
        directory.mkdir(exist_ok=True)
        (directory / "plain").mkdir(exist_ok=True)
        log = (directory / "viewer.log").open("wb")
        self.viewer = subprocess.Popen(
            [
                RELIVE,
                *("run", "--name", NAME, "--every", every),
                *("--listen", f"127.0.0.1:{listen}", "--upstream", f"127.0.0.1:{port}"),
                *("--", sys.executable, SERVICE, str(port), str(directory)),
            ],
            env=self.environment,
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        self.plain_process = subprocess.Popen(
            [sys.executable, SERVICE, str(plain_port), str(directory / "plain")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        self.plain = Service.at(self.plain_process.pid, plain_port)
        self.capsule: Capsule = until(self._find, RECOVERY_BOUND)
        self.service = Service.at(self.capsule.facts.root, port)
        for one in (port, plain_port, listen):
            assert until(functools.partial(self._listens, one), RECOVERY_BOUND), (
                f"nobody listens on port {one}"
            )
        self.client = Client([f"direct:{port}:0.008", f"proxied:{listen}:0.05", f"plain:{plain_port}:0.008"])
        client = self.client
        until(lambda: client.acknowledged["direct"] and client.acknowledged["plain"], RECOVERY_BOUND)

    def _find(self) -> Capsule | None:
        with contextlib.suppress(ReliveError):
            return find_capsule(self.settings, NAME)
        return None

    @staticmethod
    def _listens(port: int) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
            return True
        return False

    def end(self) -> None:
        """Compare what was acknowledged with what the services know, then end them."""
        client = self.client
        assert client is not None
        client.close()
        if self.service.lives and until(self._is_calm, RECOVERY_BOUND, 0.1) is None:
            self.problems.append(f"left in incoming/ by a living agent: {len(self._incoming())} commits")
        for service, names in ((self.service, ("direct", "proxied")), (self.plain, ("plain",))):
            if not service.lives:
                continue  # said already
            try:
                memory, database = service.ask("/ids")
            except (OSError, ValueError) as error:
                self.problems.append(f"the service does not tell its ids: {error}")
                continue
            acknowledged = set().union(*(client.acknowledged[name] for name in names))
            lost = [one for one in acknowledged if one not in memory or one not in database]
            doubled = [
                one
                for one in {*memory, *database}
                if max(memory.get(one, 0), database.get(one, 0)) > 1 or one not in memory
            ]
            if lost or doubled:
                self.problems.append(f"{names}: lost {lost[:5]}, doubled or only on disk {doubled[:5]}")
        self.relive("stop", NAME)
        if self.viewer is not None:
            try:
                self.viewer.wait(RECOVERY_BOUND)
            except subprocess.TimeoutExpired:
                self.viewer.kill()
                self.viewer.wait()
        if self.plain_process is not None:
            self.plain_process.kill()
            self.plain_process.wait()
        if until(lambda: self._find() is None, RECOVERY_BOUND, 0.05) is False:
            self.problems.append("`relive stop` did not end the capsule")
            kill(self.capsule.facts.init)
        if until(lambda: self.agent() is None and self.proxy() is None, RECOVERY_BOUND, 0.05) is False:
            self.problems.append("the agent or the proxy outlived the capsule")
            kill(self.proxy())

    # -- processes of Relive ------------------------------------------------------------------------------------------

    def agent(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            pid, started = map(int, self.capsule.paths.agent_pid.read_text().split())
            return pid if procfs.is_same_process(pid, started) else None
        return None

    def helper(self, parent: int | None, word: str) -> int | None:
        return next((pid for pid in children(parent) if word in command_line(pid)), None) if parent else None

    def proxy(self) -> int | None:
        path = str(self.capsule.paths.proxy_socket)
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            words = command_line(pid)
            if path in words and "relive.record.proxy" in words:
                return pid
        return None

    @staticmethod
    def look(driver: int | None, root: int) -> Moment:
        moment = Moment()
        for pid in children(driver) if driver else []:
            name = comm(pid)
            if name == "criu":
                moment.criu = pid
            elif name == "nsenter":
                moment.nsenter = pid
                moment.criu = next((one for one in children(pid) if comm(one) == "criu"), None)
        moment.frozen = moment.criu is not None and tracer_of(root) == moment.criu
        return moment

    def reach(self, driver: int | None, root: int, wanted: str) -> tuple[Moment, str]:
        """Wait for a phase of the next commit, and a random while longer; returns the processes and the phase now."""
        moment = Moment()
        was_frozen = False
        deadline = time.monotonic() + 8
        while time.monotonic() < deadline:
            now = self.look(driver, root)
            moment.criu, moment.nsenter = now.criu or moment.criu, now.nsenter or moment.nsenter
            was_frozen |= now.frozen
            if wanted == "before" and now.criu:
                time.sleep(self.random.uniform(0, 0.006))
                break
            if wanted == "frozen" and now.frozen:
                time.sleep(self.random.uniform(0, 0.015))
                break
            if was_frozen and not now.frozen:
                time.sleep(self.random.uniform(0, 0.03))
                break
            time.sleep(SPIN)
        now = self.look(driver, root)
        moment.criu, moment.nsenter = now.criu or moment.criu, now.nsenter or moment.nsenter
        if now.frozen:
            return moment, "frozen"
        if moment.criu is None:
            return moment, "idle"
        return moment, "after" if was_frozen or not now.criu else "before"

    # -- one round ----------------------------------------------------------------------------------------------------

    def play(self, victim: str) -> Round:
        wanted = self.random.choice(PHASES)
        began = time.monotonic()
        if victim.startswith("cli"):
            one, service, client_name = self._play_cli(victim, wanted), self.plain, "plain"
        else:
            one, service, client_name = self._play_agent(victim, wanted), self.service, "direct"
        self._check_service(one, service)
        if not victim.startswith("cli") and service.lives:
            self._recover(one)
        assert self.client is not None
        if service.lives:
            one.longest_wait, one.direct_failed = self.client.since(began, client_name)
        if self.service.lives:
            one.proxied_failed = self.client.since(began, "proxied")[1]
        self._check_store(one)
        self.rounds.append(one)
        faults = [] if one.store == "complete" else [one.store]
        if one.service != "unharmed" and not one.died_with_criu:
            faults.append(one.service)
        self.problems += [
            f"round {len(self.rounds)}, {victim} killed {one.phase}: {fault}" for fault in faults
        ]
        return one

    def _play_agent(self, victim: str, wanted: str) -> Round:
        agent = self.agent()
        watchdog = self.helper(agent, "relive-watchdog")
        tracer = self.helper(agent, "relive.watch.tracer")
        proxy = self.proxy() if victim == "proxy" else None
        outcome: list[str] = []

        def commit() -> None:
            asked_ns = time.time_ns()
            try:
                answer = ask_agent(self.capsule.paths.agent_socket, {"op": "commit"}, limit=60)
            except ReliveError as error:
                outcome.append(error.code)
            else:
                outcome.append("durable")
                self.told[answer["id"]] = NAME, asked_ns

        asking = threading.Thread(target=commit)
        asking.start()
        moment, phase = self.reach(agent, self.service.root, wanted)
        if victim == "agent stopped 2 s":
            killed = kill(agent, signal.SIGSTOP)
            time.sleep(2)
            kill(agent, signal.SIGCONT)
        else:
            pids = {
                "criu": moment.criu,
                "nsenter": moment.nsenter,
                "agent": agent,
                "watchdog": watchdog,
                "tracer": tracer,
                "proxy": proxy,
                "viewer": self.viewer.pid if self.viewer is not None else None,
            }
            killed = kill_all(pids.get(part) for part in victim.split("+"))
        asking.join(90)
        if victim == "viewer" and self.viewer is not None:
            self.viewer.wait()
            self.viewer = None
        return Round(victim, phase, killed, commit=outcome[0] if outcome else "no answer")

    def _play_cli(self, victim: str, wanted: str) -> Round:
        asked_ns = time.time_ns()
        command = subprocess.Popen(
            [RELIVE, "commit", f"pid:{self.plain.root}", "--json"],
            env=self.environment,
            cwd=self.work,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        moment, phase = self.reach(command.pid, self.plain.root, wanted)
        pids = {
            "cli": command.pid,
            "criu": moment.criu,
            "watchdog": self.helper(command.pid, "relive-watchdog"),
        }
        killed = kill_all(pids[part] for part in victim.split("+"))
        output, _ = command.communicate(timeout=60)
        said = "killed"
        with contextlib.suppress(ValueError):
            answer = json.loads(output)
            said = answer["error"]["code"] if "error" in answer else "durable"
            if said == "durable":
                self.told[answer["id"]] = f"pid:{self.plain.root}", asked_ns
        return Round(victim, phase, killed, commit=said)

    def _check_service(self, one: Round, service: Service) -> None:
        try:
            memory, database = service.ask("/state")
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not until(lambda: not service.lives, 1):
                states = "".join(thread_states(pid) for pid in procfs.tree_of(service.root))
                one.service = f"did not answer ({type(error).__name__}, states {states})"
            else:
                one.service = f"died of {self._how(service)}"
            return
        if memory != database:
            one.service = f"counts {memory} in memory and {database} on disk"
        elif until(lambda: not service.is_stopped(), ANSWER_BOUND) is False:
            one.service = "was left stopped"

    def _how(self, service: Service) -> str:
        """The name of the signal that ended a service, or its exit status."""
        if service is self.plain and self.plain_process is not None:
            code = self.plain_process.wait()
        else:
            until(lambda: self.capsule.wait_status is not None, 5)
            code = os.waitstatus_to_exitcode(self.capsule.wait_status or 0)
        return signal.Signals(-code).name if code < 0 else f"status {code}"

    def _recover(self, one: Round) -> None:
        """A dead agent gets a new one with the next command, and commits go on."""
        told = self.relive("ps")
        if told.returncode != 0:
            self.problems.append(f"`relive ps` after {one.victim}: {told.stderr}")

        def commit() -> str | None:
            asked_ns = time.time_ns()
            with contextlib.suppress(ReliveError):
                answer = ask_agent(self.capsule.paths.agent_socket, {"op": "commit"}, limit=60)
                self.told[answer["id"]] = NAME, asked_ns
                return str(answer["id"])
            return None

        first = self.capsule.is_alive and commit()
        if not first and not until(commit, RECOVERY_BOUND, 0.1) and self.service.lives:
            self.problems.append(f"no commit after {one.victim} was killed {one.phase}")

        def whole() -> bool:
            with contextlib.suppress(ReliveError):
                status = ask_agent(self.capsule.paths.agent_socket, {"op": "status"}, limit=10)
                agent = self.agent()
                return bool(status["recording"] and self.helper(agent, "relive.watch.tracer"))
            return False

        if not until(whole, RECOVERY_BOUND, 0.02) and self.service.lives:
            self.problems.append(f"no proxy or no tracer after {one.victim} was killed {one.phase}")

    # -- the store ----------------------------------------------------------------------------------------------------

    def _check_store(self, one: Round) -> None:
        try:
            store = Store(self.settings.store)
        except ReliveError as error:
            one.store = f"does not open: {error}"
            return
        try:
            listed = {commit.id for commit in store.log()}
            for commit_id in listed - self.verified:
                self._verify(store, commit_id)
                self.verified.add(commit_id)
            # A look in the midst of thinning sees gaps that are none a moment later.
            if not until(lambda: not self._lost(store), 5, 0.1):
                one.store = f"told durable but not listed: {self._lost(store)}"
            self._sweep()
        except ReliveError as error:
            if error.code != "ref-unknown":  # thinned while we looked
                one.store = str(error)
        finally:
            store.close()

    def _lost(self, store: Store) -> list[str]:
        """Commits told durable that are not listed, though older ones are: they have not made room for newer ones.

        An incident, such as the end of a service that CRIU took along, keeps the commit before it beyond its time.
        """
        commits = store.log(NAME)
        pinned = Incidents(self.settings.incidents).pinned()
        oldest = min((commit.taken_wall_ns for commit in commits if commit.id not in pinned), default=0)
        listed = {commit.id for commit in commits}
        return [
            name
            for name, (of, told_ns) in self.told.items()
            if of == NAME and told_ns > oldest and name not in listed
        ]

    def _verify(self, store: Store, commit_id: Any) -> None:
        manifest = store.manifest(commit_id)
        with tempfile.TemporaryDirectory(dir=self.home) as directory:
            try:
                store.lay_out_images(manifest, Path(directory))
                for layer in manifest.layers:
                    for entry in layer.entries:
                        if entry.object is not None:
                            store.content(entry)
            except ReliveError:
                if commit_id in {commit.id for commit in store.log()}:
                    raise

    def _sweep(self) -> None:
        """Nothing may be left in incoming/ but what a living process holds locked. Ten seconds of age are lent to it."""
        incoming = self.settings.store / "incoming"
        for path in incoming.iterdir():
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > 2 and not _is_locked(path):
                    os.utime(path, (0, time.time() - 60))
        Store(self.settings.store).close()
        for path in incoming.iterdir():
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > 20 and not _is_locked(path):
                    self.problems.append(f"left in incoming/: {path.name}")

    def _incoming(self) -> list[Path]:
        return list((self.settings.store / "incoming").iterdir())

    def _is_calm(self) -> bool | None:
        """Nothing is being committed, and nothing is left of what was."""
        with contextlib.suppress(ReliveError):
            status = ask_agent(self.capsule.paths.agent_socket, {"op": "status"}, limit=10)
            if status["pending"] == 0 and not any(_is_locked(path) for path in self._incoming()):
                return True
        return None

    def restore_some(self) -> None:
        """Restore a random commit of each service, and ask it."""
        store = Store(self.settings.store)
        for name, service in ((NAME, self.service), (f"pid:{self.plain.root}", self.plain)):
            commits = [one for one in store.log(name) if one.root and one.id in self.verified]
            if name == NAME:
                # Only new ones: the oldest may make room for others before the restore begins.
                commits = [one for one in commits if one.life == self.capsule.facts.life][:20]
            if not commits:
                continue
            commit = self.random.choice(commits)
            port = free_port()
            done = self.relive(
                "restore", commit.id, "--publish", f"127.0.0.1:{port}:{service.port}", "--json"
            )
            if done.returncode != 0:
                self.problems.append(f"restore of {commit.id[:10]} ({name}): {done.stdout}{done.stderr}")
                continue
            branch = json.loads(done.stdout)
            try:
                memory, database = Service(0, port, 0).ask("/state")
                if memory != database:
                    self.problems.append(f"restored {commit.id[:10]} counts {memory} and {database}")
                self.restored += 1
            except (OSError, ValueError, http.client.HTTPException) as error:
                self.problems.append(f"restored {commit.id[:10]} ({name}) does not answer: {error!r}")
            finally:
                self.relive("stop", str(branch.get("id")))
        store.close()

    def close(self) -> None:
        """End what a failure of this program left behind."""
        for process in (self.viewer, self.plain_process, self.client.process if self.client else None):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        for capsule in living_capsules(self.settings):
            kill(capsule.facts.init)

    def run(self, count: int, out: Callable[[str], None]) -> None:
        """Play the rounds in lives of at most ``EPOCH`` rounds."""
        names = list(VICTIMS)
        # Each victim at least once, then by weight.
        order = self.random.sample(names, len(names)) + self.random.choices(
            names, list(VICTIMS.values()), k=count
        )
        lives = 0
        while len(self.rounds) < count:
            self.begin("request" if lives % 2 == 0 else "1s")
            lives += 1
            for _ in range(EPOCH):
                if len(self.rounds) >= count or not (self.service.lives and self.plain.lives):
                    break
                victim = order[len(self.rounds)]
                if victim == "viewer" and self.viewer is None:
                    victim = "agent"
                one = self.play(victim)
                out(f"{len(self.rounds):4} {one}")
                if len(self.rounds) % RESTORE_EVERY == 0 and self.service.lives:
                    self.restore_some()
            self.end()


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


# -- CRIU alone -------------------------------------------------------------------------------------------------------

_BUSY = """
import os, socket, sys, threading, time
def spin():
    while True:
        sum(range(200)); time.sleep(0)
def echo():
    while True:
        client, _ = listener.accept()
        while data := client.recv(64):
            client.send(data)
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
threading.Thread(target=spin, daemon=True).start()
threading.Thread(target=echo, daemon=True).start()
n = 0
while True:
    n += 1
    os.pwrite(1, n.to_bytes(8, "little"), 0)
"""


class RawVictim:
    """A small busy process of three threads with one idle TCP connection."""

    def __init__(self, progress: Path) -> None:
        self.progress = progress
        port = free_port()
        with progress.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _BUSY, str(port)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        until(lambda: progress.stat().st_size, 10)
        self.connection = socket.create_connection(("127.0.0.1", port), 5)
        self.connection.settimeout(1)
        assert self.echoes()

    def dump(self, tools: CriuTools, images: Path) -> subprocess.Popen[bytes]:
        shutil.rmtree(images, ignore_errors=True)
        images.mkdir()
        command = [str(tools.criu), "dump", "-t", str(self.process.pid), "-D", str(images), "--leave-running"]
        command += [
            "--network-lock",
            "skip",
            "--manage-cgroups=ignore",
            "--shell-job",
            "--tcp-established",
            "-v0",
        ]
        return subprocess.Popen(
            command,
            env=tools.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def harm(self) -> str | None:
        """What became of it, None for nothing."""
        before = self.progress.read_bytes()
        moved = until(
            lambda: self.process.poll() is not None or self.progress.read_bytes() != before, 2, 0.0005
        )
        # Its end may take a moment to be seen.
        if self.process.poll() is None and not self.echoes():
            until(lambda: self.process.poll() is not None, 0.5)
            if self.process.poll() is None:
                return "connection lost" if moved else f"stuck in {thread_states(self.process.pid)}"
        if self.process.poll() is not None:
            return f"died of {signal.Signals(-self.process.returncode).name}"
        blocked = [
            thread
            for thread in os.listdir(f"/proc/{self.process.pid}/task")
            if int((procfs.status_field(int(thread), "SigBlk") or "0"), 16)
        ]
        return "signals left blocked" if blocked else None

    def echoes(self) -> bool:
        with contextlib.suppress(OSError):
            self.connection.send(b"?")
            return self.connection.recv(1) == b"?"
        return False

    def close(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()


def kill_raw(count: int, directory: Path, seed: int, *, mends: bool) -> Iterator[str]:
    """Kill CRIU at a uniformly random moment of its dump of a small process, and tell what happened how often.

    Args:
        mends: have the watchdog heal the connections afterwards, as it does after every commit that failed.
    """
    tools = CriuTools(load_settings().tools_path)
    place_kerndat(tools.directory)
    chance = random.Random(seed)
    held, harms = 0, Counter[str]()
    victim: RawVictim | None = None
    length = 0.0
    with Watchdog(tools.watchdog) as watchdog:
        for _ in range(count):
            if victim is None:
                victim = RawVictim(directory / "progress")
                began = time.monotonic()
                if victim.dump(tools, directory / "images").wait(30) != 0:
                    raise SystemExit("the process cannot be dumped at all")
                length = time.monotonic() - began
            criu = victim.dump(tools, directory / "images")
            time.sleep(chance.uniform(0, length * 1.1))
            held += tracer_of(victim.process.pid) == criu.pid
            criu.kill()
            criu.wait()
            if mends:
                watchdog.tell(f"arm 10000 {criu.pid} {victim.process.pid}")
                watchdog.tell("mend")
                watchdog.tell("disarm")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(criu.pid, signal.SIGKILL)  # helpers with which it probes the kernel
            harm = victim.harm()
            if harm is not None:
                harms[harm] += 1
                victim.close()
                victim = None
    if victim is not None:
        victim.close()
    yield f"{count} kills, {held} of them seen to be while CRIU held the process"
    yield from (f"  {harm}: {number}" for harm, number in harms.most_common())


# -- the report -------------------------------------------------------------------------------------------------------


def table(rounds: list[Round]) -> Iterator[str]:
    """A line per victim and phase."""
    groups: dict[tuple[str, str], list[Round]] = defaultdict(list)
    for one in rounds:
        groups[one.victim, one.phase].append(one)
    heads = ("harmed", 8), ("with CRIU", 11), ("cut off", 9), ("longest wait", 14), ("durable", 9)
    titles = "".join(f"{title:>{width}}" for title, width in heads)
    yield f"{'killed':22}{'phase':8}{'rounds':>7}{titles}  otherwise"
    order = {name: number for number, name in enumerate(VICTIMS)}
    for (victim, phase), group in sorted(groups.items(), key=lambda item: (order[item[0][0]], item[0][1])):
        along = sum(one.died_with_criu for one in group)
        harmed = sum(one.service != "unharmed" for one in group) - along
        cut = sum(one.direct_failed for one in group)
        wait = max(one.longest_wait for one in group) * 1000
        durable = sum(one.commit == "durable" for one in group)
        others = Counter(one.commit for one in group if one.commit != "durable")
        text = ", ".join(f"{code} {number}" for code, number in others.most_common())
        yield f"{victim:22}{phase:8}{len(group):7}{harmed:8}{along:11}{cut:9}{wait:11.0f} ms{durable:9}  {text}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--raw", type=int, help="kill CRIU alone so often instead, without and with help")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--json", action="store_true", help="tell the outcome as one JSON object")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="relive-chaos-", dir="/var/tmp"))
    print(f"seed {options.seed}, {directory}", file=sys.stderr)
    if options.raw:
        for mends in (False, True):
            print("with the watchdog's help:" if mends else "nobody helps:")
            print("\n".join(kill_raw(options.raw, directory, options.seed, mends=mends)), flush=True)
        shutil.rmtree(directory)
        return 0
    harness = Harness(directory, options.seed)
    began = time.monotonic()
    try:
        harness.run(options.rounds, lambda line: print(line, file=sys.stderr, flush=True))
    finally:
        harness.close()
    if options.json:
        rounds = [vars(one) for one in harness.rounds]
        print(
            json.dumps(
                {"problems": harness.problems, "restored": harness.restored, "rounds": rounds}, indent=1
            )
        )
    else:
        print("\n".join(table(harness.rounds)))
        failed = sum(one.proxied_failed for one in harness.rounds)
        print(
            f"{len(harness.rounds)} rounds in {time.monotonic() - began:.0f} s; {len(harness.verified)} commits verified, "
            f"{harness.restored} restored; {failed} requests failed at clients of the proxy."
        )
        print("\n".join(f"PROBLEM: {problem}" for problem in harness.problems) or "No problems.")
    if not harness.problems:
        shutil.rmtree(directory)
    return 1 if harness.problems else 0


if __name__ == "__main__":
    sys.exit(main())
