"""The proxy as a process of its own, and services and agents that are played by the test."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from relive.config import load_settings
from relive.forkserver.starting import start_module
from relive.proxies.ingress.options import RELAY
from relive.recording.events import Event, EventKind
from relive.recording.exchanges import Exchange, Exchanges
from relive.recording.reader import Recording
from support.waiting import LIMIT, eventually

TIMEOUT_SECONDS = LIMIT
GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Wire:
    """One end of a TCP connection that the test plays by hand."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(TIMEOUT_SECONDS)
        # What is said in pieces shall arrive in pieces, and none wait for the acknowledgement of the one before.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def expect(self, data: bytes) -> None:
        """Receive exactly these bytes."""
        got = b""
        while len(got) < len(data):
            chunk = self.sock.recv(len(data) - len(got))
            assert chunk, f"closed after {got!r}"
            got += chunk
        assert got == data

    def receive(self, size: int = 65536) -> bytes:
        return self.sock.recv(size)

    def rest(self) -> bytes:
        """Everything up to the end of the stream."""
        got = b""
        while chunk := self.sock.recv(65536):
            got += chunk
        return got

    def is_silent(self) -> bool:
        """True if nothing is there to be read at this moment."""
        self.sock.setblocking(False)
        try:
            return not self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        finally:
            self.sock.settimeout(TIMEOUT_SECONDS)

    def half_close(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()

    def close(self) -> None:
        self.sock.close()


class PlayedService:
    """A listening socket whose connections the test plays."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.listener.settimeout(TIMEOUT_SECONDS)
        self.port: int = self.listener.getsockname()[1]
        self.wires: list[Wire] = []

    def accept(self) -> Wire:
        wire = Wire(self.listener.accept()[0])
        self.wires.append(wire)
        return wire

    def close(self) -> None:
        for wire in [*self.wires, self.listener]:
            wire.close()


class Agent:
    """A connection to the control socket.

    Attributes:
        unheard: what the proxy had to say before anybody was there.
    """

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_SECONDS)
        self.sock.connect(str(path))
        self.file = self.sock.makefile("rb")
        self.say(op="status", id="first")  # once it is answered, the proxy knows that somebody is there
        self.unheard = list(takewhile(lambda said: said.get("id") != "first", iter(self.hear, None)))

    def say(self, **message: Any) -> None:
        self.sock.sendall(json.dumps(message).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        line = self.file.readline()
        assert line, "the proxy closed the control connection"
        return dict(json.loads(line))

    def ask(self, op: str, **message: Any) -> dict[str, Any]:
        """Send a message with an id and return its reply; what comes between is an error of the test."""
        self.say(op=op, id=op, **message)
        reply = self.hear()
        assert reply["id"] == op
        return reply

    def vanish(self) -> None:
        self.file.close()
        self.sock.close()


class RunningProxy:
    """``relive.proxies.ingress.proxy`` on a recording of its own, forked from the fork server, as agents have theirs."""

    def __init__(self, directory: Path, upstream: int, *options: str) -> None:
        self.directory = directory / "recording"
        self.control = directory / "control"
        self.clients: list[Wire] = []
        self.agents: list[Agent] = []
        self.stderr = (directory / "stderr").open("a+")
        ready, ready_in = os.pipe()
        self.process = start_module(
            "relive.proxies.ingress.proxy",
            [
                *("--listen", "127.0.0.1:0", "--upstream", f"127.0.0.1:{upstream}"),
                *("--recording", str(self.directory), "--control", str(self.control)),
                *("--ready-fd", str(ready_in), *options),
            ],
            streams=(subprocess.DEVNULL, subprocess.DEVNULL, self.stderr.fileno()),
            handed=[ready_in],
            may_fork=True,
            patient=True,
        )
        os.close(ready_in)
        with os.fdopen(ready) as file:
            line = file.readline()
        assert line, f"the proxy did not start: {self.words()}"
        self.port: int = json.loads(line)["listen"][1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> Wire:
        wire = Wire(socket.create_connection(("127.0.0.1", self.port)))
        self.clients.append(wire)
        return wire

    def agent(self) -> Agent:
        agent = Agent(self.control)
        self.agents.append(agent)
        return agent

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_SECONDS)

    def stop(self) -> None:
        """End in an orderly way, so that the recording is whole."""
        for wire in self.clients:
            wire.close()
        for agent in self.agents:
            agent.vanish()
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM)
            assert self.process.wait(TIMEOUT_SECONDS) == 0, self.words()
        self.stderr.close()

    def words(self) -> str:
        """What it said on stderr."""
        self.stderr.seek(0)
        return self.stderr.read()

    def events(self, *kinds: EventKind) -> list[Event]:
        return [event for event in Recording(self.directory).events() if not kinds or event.kind in kinds]

    def kinds(self) -> list[str]:
        return [str(event.kind) for event in self.events()]

    def exchange(self, number: int) -> Exchange:
        return Exchanges(Recording(self.directory)).by_number(number)

    def notes(self, about: str) -> list[str]:
        return [
            event.fields["text"] for event in self.events(EventKind.NOTE) if event.fields["about"] == about
        ]

    def wait_for(self, kind: EventKind, count: int = 1) -> list[Event]:
        """Wait until that many events of a kind are recorded."""
        eventually(lambda: len(self.events(kind)) >= count, f"{count} of {kind}", TIMEOUT_SECONDS)
        return self.events(kind)


@pytest.fixture
def service() -> Iterator[PlayedService]:
    played = PlayedService()
    yield played
    played.close()


@pytest.fixture(params=["relay", "python"])
def way(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Options by which plain HTTP/1 is carried by threads in C, or by Python: what is seen from outside is the same."""
    return ("--relay", str(load_settings().tools_path / RELAY)) if request.param == "relay" else ()


@pytest.fixture
def start_proxy(tmp_path: Path, way: tuple[str, ...]) -> Iterator[Callable[..., RunningProxy]]:
    """Starts proxies on the same recording, one after the other; each must end well."""
    running: list[RunningProxy] = []

    def start(upstream: int, *options: str) -> RunningProxy:
        proxy = RunningProxy(tmp_path, upstream, *way, *options)
        running.append(proxy)
        return proxy

    yield start
    for proxy in running:
        proxy.stop()


@pytest.fixture
def proxy(start_proxy: Callable[..., RunningProxy], service: PlayedService) -> RunningProxy:
    """A proxy before the played service."""
    return start_proxy(service.port)
