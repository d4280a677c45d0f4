"""The rounds of chaos.py: lives of two services under traffic, and in each round a victim that is killed in a commit."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from _chaos_parts import agent_of, helper, proxy_of, reach, signal_tracer_of, worker_of
from _chaos_processes import (
    kill,
    kill_all,
    thread_states,
    until,
)
from _chaos_store import StoreCheck, holds_a_part
from _chaos_subjects import ANSWER_BOUND, Client, Service
from _lab import free_port

from relive.agent.capsule.lives import Capsule, find_capsule, living_capsules
from relive.agent.control.client import ask_agent
from relive.config import Settings, load_settings
from relive.errors import ReliveError
from relive.kernel import procfs
from relive.store import Store

NAME = "chaos"
RELIVE = str(Path(sys.executable).with_name("relive"))
SERVICE = str(Path(__file__).with_name("_chaos_service.py"))
RECOVERY_BOUND = 30.0  # [s] for a new agent, a new proxy and a commit
EPOCH = 30  # rounds that one life of the services lasts
RESTORE_EVERY = 25  # rounds
# [s] between an answer and the client's next request
PACES = {"direct": 0.008, "proxied": 0.05, "plain": 0.008}

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


class Harness:
    """Home, tools and everything that runs in them.

    Args:
        slower: how many times slower than PACES the clients send; before each request through the proxy a commit is made.
    """

    def __init__(self, directory: Path, seed: int, slower: float = 1.0) -> None:
        self.paces = {name: pace * slower for name, pace in PACES.items()}
        self.random = random.Random(seed)
        self.home = directory / "home"
        self.work = directory / "work"
        self.home.mkdir()
        self.work.mkdir()
        tools = load_settings().tools_path
        self.environment = {**os.environ, "RELIVE_HOME": str(self.home), "RELIVE_TOOLS": str(tools)}
        # Only the newest commits stay, so that a gap between those that are listed is a loss.
        units = "MINUTES", "HOURS", "DAYS", "MONTHS", "BEFORE_INCIDENT"
        self.environment |= {f"RELIVE_KEEP_{unit}": "0" for unit in units}
        self.settings: Settings = load_settings(home=self.home, tools=tools)
        self.rounds: list[Round] = []
        self.problems: list[str] = []
        self.store = StoreCheck(self.settings, NAME, self.problems)
        self.restored = 0
        self.acknowledged = self.lost = 0
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
                # Of a micro-commit there is no CRIU to be killed.
                *("run", "--name", NAME, "--every", every, "--no-micro"),
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
        ports = {"direct": port, "proxied": listen, "plain": plain_port}
        self.client = Client([f"{name}:{ports[name]}:{pace}" for name, pace in self.paces.items()])
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
            self.problems.append(f"left in incoming/ by a living agent: {len(self.store.incoming())} commits")
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
            self.acknowledged += len(acknowledged)
            self.lost += len(lost) + len(doubled)
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
        if (
            until(
                lambda: agent_of(self.capsule) is None and proxy_of(self.capsule) is None,
                RECOVERY_BOUND,
                0.05,
            )
            is False
        ):
            self.problems.append("the agent or the proxy outlived the capsule")
            kill(proxy_of(self.capsule))

    def _is_calm(self) -> bool | None:
        """Nothing is being committed, and nothing is left of what was."""
        with contextlib.suppress(ReliveError):
            status = ask_agent(self.capsule.paths.agent_socket, {"op": "status"}, limit=10)
            if status["pending"] == 0 and not any(map(holds_a_part, self.store.incoming())):
                return True
        return None

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
        one.store = self.store.look()
        self.rounds.append(one)
        faults = [] if one.store == "complete" else [one.store]
        if one.service != "unharmed" and not one.died_with_criu:
            faults.append(one.service)
        self.problems += [
            f"round {len(self.rounds)}, {victim} killed {one.phase}: {fault}" for fault in faults
        ]
        return one

    def _play_agent(self, victim: str, wanted: str) -> Round:
        agent = agent_of(self.capsule)
        watchdog = helper(agent, "relive-watchdog")
        tracer = signal_tracer_of(agent)
        proxy = proxy_of(self.capsule) if victim == "proxy" else None
        outcome: list[str] = []

        def commit() -> None:
            asked_ns = time.time_ns()
            try:
                answer = ask_agent(self.capsule.paths.agent_socket, {"op": "commit"}, limit=60)
            except ReliveError as error:
                outcome.append(error.code)
            else:
                outcome.append("durable")
                self.store.told[answer["id"]] = NAME, asked_ns

        asking = threading.Thread(target=commit)
        asking.start()
        moment, phase = reach(agent, self.service.root, wanted, self.random)
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
        words = f"commit pid:{self.plain.root}"
        worker = until(lambda: worker_of(command.pid, words), RECOVERY_BOUND)
        moment, phase = reach(worker, self.plain.root, wanted, self.random)
        pids = {
            "cli": worker,
            "criu": moment.criu,
            "watchdog": helper(worker, "relive-watchdog"),
        }
        killed = kill_all(pids[part] for part in victim.split("+"))
        output, _ = command.communicate(timeout=60)
        said = "killed"
        with contextlib.suppress(ValueError):
            answer = json.loads(output)
            said = answer["error"]["code"] if "error" in answer else "durable"
            if said == "durable":
                self.store.told[answer["id"]] = f"pid:{self.plain.root}", asked_ns
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
                self.store.told[answer["id"]] = NAME, asked_ns
                return str(answer["id"])
            return None

        first = self.capsule.is_alive and commit()
        if not first and not until(commit, RECOVERY_BOUND, 0.1) and self.service.lives:
            self.problems.append(f"no commit after {one.victim} was killed {one.phase}")

        def whole() -> bool:
            with contextlib.suppress(ReliveError):
                status = ask_agent(self.capsule.paths.agent_socket, {"op": "status"}, limit=10)
                agent = agent_of(self.capsule)
                return bool(status["recording"] and signal_tracer_of(agent))
            return False

        if not until(whole, RECOVERY_BOUND, 0.02) and self.service.lives:
            self.problems.append(f"no proxy or no tracer after {one.victim} was killed {one.phase}")

    def restore_some(self) -> None:
        """Restore a random commit of each service, and ask it."""
        store = Store(self.settings.store)
        for name, service in ((NAME, self.service), (f"pid:{self.plain.root}", self.plain)):
            commits = [one for one in store.log(name) if one.root and one.id in self.store.verified]
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

    def _is_done(self, count: int, kills: int) -> bool:
        if kills:
            return self.kills >= kills or len(self.rounds) >= 3 * kills
        return len(self.rounds) >= count

    @property
    def kills(self) -> int:
        """Rounds whose victim was there to be hit."""
        return sum(one.killed for one in self.rounds if one.victim != "nobody")

    def sums(self, left: int) -> list[tuple[str, int]]:
        """What it all comes to, in words with a number each; ``left``: things that are left on the host."""
        along = sum(one.died_with_criu for one in self.rounds)
        return [
            ("kills that hit", self.kills),
            ("service harmed", sum(one.service != "unharmed" for one in self.rounds) - along),
            ("service died with a CRIU that was killed", along),
            ("requests acknowledged", self.acknowledged),
            ("of these lost or doubled", self.lost),
            ("commits told durable", len(self.store.told)),
            ("looks at which one was lost or damaged", sum(one.store != "complete" for one in self.rounds)),
            ("left on the host", left),
        ]

    def run(self, count: int, out: Callable[[str], None], kills: int = 0) -> None:
        """Play the rounds in lives of at most ``EPOCH`` rounds: so many, or until so many kills have hit where that is more."""
        names = list(VICTIMS)
        # Each victim at least once, then by weight.
        order = self.random.sample(names, len(names)) + self.random.choices(
            names, list(VICTIMS.values()), k=max(count, 3 * kills)
        )
        lives = 0
        while not self._is_done(count, kills):
            self.begin("request" if lives % 2 == 0 else "1s")
            lives += 1
            for _ in range(EPOCH):
                if self._is_done(count, kills) or not (self.service.lives and self.plain.lives):
                    break
                victim = order[len(self.rounds)]
                if victim == "viewer" and self.viewer is None:
                    victim = "agent"
                one = self.play(victim)
                out(f"{len(self.rounds):4} {one}")
                if len(self.rounds) % RESTORE_EVERY == 0 and self.service.lives:
                    self.restore_some()
            self.end()
