"""The public port of a service when everything of Relive beside it is killed at one moment."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.kernel import procfs
from relive.proxies.ingress.options import RELAY
from relive.recording.events import EventKind
from relive.recording.reader import Recording
from support.ports import free_port
from support.waiting import eventually

from .harness import PYTHON, SERVICES, Capsule, Http, Process, Relive, ask


class Asking:
    """Clients that connect, ask once, and begin anew; a connect that is refused is noted, as is a connection that broke."""

    def __init__(self, port: int) -> None:
        self.answered = 0
        self.refused = self.broken = 0
        self._port, self._stopping = port, threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(3)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while not self._stopping.wait(0.005):
            try:
                with Http(self._port) as http:
                    http("GET", "/")
                self.answered += 1
            except ConnectionRefusedError:
                self.refused += 1
            except OSError:
                self.broken += 1  # it stood at the moment of a kill

    def more(self) -> None:
        destination = self.answered + 20
        eventually(lambda: self.answered > destination, "answers")

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


AGENT, PROXY, SUPERVISOR, FRONT = "agent", "proxy", "supervisor", "front"
MARKS = {
    b"relive.agent": AGENT,
    b"relive.watching": AGENT,
    b"relive.proxies.ingress.proxy": PROXY,
}


class Fronted:
    """A service in a capsule, with a proxy before it."""

    kinds = frozenset({AGENT, PROXY, SUPERVISOR})

    def __init__(self, relive: Relive) -> None:
        self.relive, self.port, inner = relive, free_port(), free_port()
        given = ["--listen", f"127.0.0.1:{self.port}", "--upstream", f"127.0.0.1:{inner}"]
        command = [str(PYTHON), str(SERVICES / "attached.py"), str(inner), str(relive.home / "counts")]
        answer = relive("run", "--detach", "--name", "front", "--every", "never", *given, "--", *command)
        self.capsule = Capsule(answer["name"], answer["life"], answer["pid"])
        self.life = relive.home / "capsules" / "front" / self.capsule.life
        ask(self.port, "/")

    def processes(self) -> dict[int, str]:
        """Of those that look after the life, by their pids."""
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(os.fsencode(self.life) in word for word in words):
                found |= {int(name): kind for mark, kind in MARKS.items() if mark in words}
                program = Path(os.fsdecode(words[0])).name
                if program in ("relive-supervisor", "relive-front"):
                    found[int(name)] = program.removeprefix("relive-")
        return found

    def kill(self, *what: str) -> None:
        """At once, when all kinds are there: stopped first, so that none sees another's death."""
        eventually(lambda: set(self.processes().values()) == self.kinds and self.records(), "all are there")
        pids = [pid for pid, name in self.processes().items() if name in what]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                os.kill(pid, number)
        eventually(lambda: not any(map(procfs.exists, pids)), "they are gone")

    def is_carried_in_c(self) -> bool:
        """The proxy that runs has its relay."""
        proxies = [pid for pid, name in self.processes().items() if name == PROXY]
        return len(proxies) == 1 and RELAY in Path(f"/proc/{proxies[0]}/maps").read_text()

    def records(self) -> bool:
        """What is asked now is recorded."""
        before = self.requests()
        ask(self.port, "/")
        return self.requests() > before

    def requests(self) -> int:
        recording = Recording(self.life / "recording")
        return sum(event.kind is EventKind.REQUEST_STARTED for event in recording.events())


class Watched(Fronted):
    """A service that nothing of Relive started, with a proxy beside it."""

    kinds = Fronted.kinds | {FRONT}

    def __init__(self, relive: Relive) -> None:
        self.relive, self.port, inner = relive, free_port(), free_port()
        self.service = Process(PYTHON, SERVICES / "attached.py", str(inner), relive.home / "counts")
        ask(inner, "/")
        given = ["--listen", f"127.0.0.1:{self.port}", "--upstream", f"127.0.0.1:{inner}"]
        relive("watch", f"pid:{self.service.pid}", "--name", "front", "--every", "never", *given)
        self.life = next((relive.home / "capsules" / "front").glob("*/watch.json")).parent
        ask(self.port, "/")


@pytest.fixture
def fronted(relive: Relive) -> Iterator[Fronted]:
    made = Fronted(relive)
    yield made
    relive("stop", "front")
    eventually(lambda: not made.processes(), "nothing is left")


@pytest.fixture
def watched(relive: Relive) -> Iterator[Watched]:
    made = Watched(relive)
    yield made
    relive("stop", "front")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", made.port))
    assert made.service.popen.poll() is None
    made.service.close()
    eventually(lambda: not made.processes(), "nothing is left")


def test_no_connection_is_refused_and_all_come_back_without_a_command(fronted: Fronted) -> None:
    assert fronted.is_carried_in_c()
    clients = Asking(fronted.port)
    try:
        clients.more()
        for _ in range(2):
            fronted.kill(AGENT, PROXY)
            clients.more()
            eventually(fronted.records, "another agent has another proxy")
        fronted.kill(SUPERVISOR)
        for _ in range(2):
            fronted.kill(AGENT)
        eventually(fronted.records, "it is recorded")
    finally:
        clients.stop()
    assert clients.refused == 0


def test_with_nobody_left_process_1_carries_connections_until_the_next_command(fronted: Fronted) -> None:
    clients = Asking(fronted.port)
    try:
        clients.more()
        fronted.kill(AGENT, PROXY, SUPERVISOR)
        recorded = fronted.requests()
        clients.more()
        assert fronted.requests() == recorded and fronted.processes() == {}
        fronted.relive("ps")
        eventually(fronted.records, "another proxy has the port")
        clients.more()
    finally:
        clients.stop()
    assert clients.refused == 0


def test_the_port_of_a_watched_service_stays_open_whoever_is_killed(watched: Watched) -> None:
    clients = Asking(watched.port)
    try:
        clients.more()
        for killed in ((PROXY,), (FRONT,), (AGENT, PROXY), (AGENT, FRONT), (PROXY, FRONT)):
            watched.kill(*killed)
            clients.more()
            eventually(watched.records, "it is recorded again")
    finally:
        clients.stop()
    assert clients.refused == 0


def test_the_port_of_a_watched_service_is_carried_with_nobody_else_left(watched: Watched) -> None:
    clients = Asking(watched.port)
    try:
        clients.more()
        watched.kill(AGENT, PROXY, SUPERVISOR)
        recorded = watched.requests()
        clients.more()
        assert watched.requests() == recorded and set(watched.processes().values()) == {FRONT}
        watched.relive("ps")
        eventually(watched.records, "another proxy has the port")
    finally:
        clients.stop()
    assert clients.refused == 0


def test_that_bytes_are_no_http_is_told(fronted: Fronted) -> None:
    """An agent that takes a running proxy over tells it too."""

    def notes() -> list[str]:
        (target,) = fronted.relive("ps")
        return [note for note in target["notes"] if "no HTTP/1" in note]

    assert notes() == []
    with socket.create_connection(("127.0.0.1", fronted.port)) as client:
        client.sendall(b"*1\r\n$4\r\nPING\r\n")
        told = eventually(notes, "it is told")
    assert told[0].startswith("1 connection ")
    fronted.kill(AGENT)
    assert eventually(notes, "the next agent tells it") == told
