"""A network with a border, as a capsule has one, and the recorder at it; clients in there are played by the test."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from relive.checkpoint.criu import CriuTools
from relive.config import load_settings
from relive.kernel.namespaces import in_network_of
from relive.proxies.ingress.options import RELAY
from relive.recording.dialogues import Dialogue, read_dialogues
from relive.recording.events import Event, EventKind
from relive.recording.reader import Recording
from support.waiting import LIMIT

Result = TypeVar("Result")
_HOLDER = """
import sys
from relive.kernel.namespaces import Namespace, unshare
from relive.sandbox.capsule_network import HostNetwork, raise_border
host = HostNetwork.read()
unshare(Namespace.NETWORK)
raise_border(host)
print("ready", flush=True)
sys.stdin.read()
"""


class Bordered:
    """A process whose network has a border, and a recorder that can be ended and started again."""

    def __init__(self, directory: Path, host: Sequence[str] = (), *, in_python: bool = False) -> None:
        """``host``: words before a command that make its network the host's; none: the test's own.

        ``in_python``: no thread in C carries anything, and nobody keeps the connections.
        """
        tools = CriuTools(load_settings().tools_path)
        self._native = (
            [] if in_python else ["--relay", str(tools.directory / RELAY), "--keeper", str(tools.keeper)]
        )
        self.host = list(host)
        self.recording = directory / "egress"
        self.control = directory / "control"
        self.holder = subprocess.Popen(
            [*self.host, sys.executable, "-c", _HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.holder.stdout is not None
        assert self.holder.stdout.readline() == b"ready\n"
        self.recorder: subprocess.Popen[bytes] | None = None

    def start(self, *options: str, **environment: str) -> None:
        """Start a recorder and wait until it is ready."""
        reading, writing = os.pipe()
        command = [
            sys.executable,
            "-m",
            "relive.proxies.egress.recorder",
            "--network-of",
            str(self.holder.pid),
        ]
        command += [
            "--recording",
            str(self.recording),
            "--control",
            str(self.control),
            *self._native,
            *options,
        ]
        self.recorder = subprocess.Popen(
            [*self.host, *command, "--ready-fd", str(writing)],
            pass_fds=[writing],
            env=os.environ | environment,
        )
        os.close(writing)
        with os.fdopen(reading) as pipe:
            assert json.loads(pipe.readline())["pid"] == self.recorder.pid

    def kill(self) -> None:
        """End the recorder with SIGKILL."""
        self.end(signal.SIGKILL)

    def end(self, number: int = signal.SIGTERM) -> int:
        """End the recorder; returns its status."""
        assert self.recorder is not None
        recorder, self.recorder = self.recorder, None
        recorder.send_signal(number)
        return recorder.wait(LIMIT)

    def keepers(self) -> set[int]:
        """Those who hold the recorder's connections: its children."""
        assert self.recorder is not None
        text = Path(f"/proc/{self.recorder.pid}/task/{self.recorder.pid}/children").read_text()
        return {int(pid) for pid in text.split()}

    def within(self, action: Callable[[], Result]) -> Result:
        """Do something in there."""
        return in_network_of(self.holder.pid, action)

    def connect(self, destination: tuple[str, int], timeout: float = LIMIT) -> socket.socket:
        """A connection of the service."""
        return self.within(lambda: socket.create_connection(destination, timeout=timeout))

    def events(self) -> list[Event]:
        """All that is recorded."""
        return list(Recording(self.recording).events())

    def dialogue(self, sock_or_name: socket.socket | tuple[str, int]) -> Dialogue:
        """The dialogue of a connection of the service, by its own end: the newest one, since the kernel gives ports again."""
        name = sock_or_name.getsockname()[:2] if isinstance(sock_or_name, socket.socket) else sock_or_name[:2]
        return next(one for one in reversed(self.dialogues()) if one.origin == name)

    def dialogues(self) -> list[Dialogue]:
        return read_dialogues(self.events())

    def notes(self) -> list[dict[str, Any]]:
        return [dict(event.fields) for event in self.events() if event.kind is EventKind.NOTE]

    def close(self) -> None:
        if self.recorder is not None:
            self.end()
        assert self.holder.stdin is not None
        self.holder.stdin.close()
        self.holder.wait(LIMIT)
        assert self.holder.stdout is not None
        self.holder.stdout.close()
