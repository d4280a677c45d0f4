"""A border, as a capsule has one, and the recorder at it; the service behind it is played by the test."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relive.checkpoint.criu import CriuTools
from relive.config import load_settings
from relive.model.capsule import BorderFacts
from relive.proxies.ingress.options import RELAY
from relive.recording.dialogues import Dialogue, read_dialogues
from relive.recording.events import Event, EventKind
from relive.recording.reader import Recording
from support.waiting import LIMIT

_HOLDER = """
import socket, sys
from relive.sandbox.border import prepare_tap, raise_border, raise_tap
border = raise_tap(prepare_tap()) if sys.argv[2] == "beside" else raise_border()
print(border.model_dump_json(), flush=True)
line = socket.socket(fileno=int(sys.argv[1]))
while params := line.recv(100):
    family, kind = map(int, params.split())
    with socket.socket(family, kind) as sock:
        socket.send_fds(line, [b"s"], [sock.fileno()])
"""

_REMOVER = """
import sys
from relive.model.capsule import BorderFacts
from relive.sandbox.border import remove_border
remove_border(BorderFacts.model_validate_json(sys.argv[1]))
"""


class Bordered:
    """A process behind a border, whose sockets the test uses, and a recorder that can be ended and started again."""

    def __init__(
        self, directory: Path, host: Sequence[str] = (), *, in_python: bool = False, beside: bool = False
    ) -> None:
        """``host``: words before a command that make its network the host's; none: the test's own.

        ``in_python``: no thread in C carries anything, and nobody keeps the connections.
        ``beside``: the recorder is not in the way.
        """
        tools = CriuTools(load_settings().tools_path)
        self._module = "beside" if beside else "recorder"
        self._native = [] if in_python else ["--relay", str(tools.directory / RELAY)]
        if not in_python and not beside:
            self._native += ["--keeper", str(tools.keeper)]
        self.host = list(host)
        self.recording = directory / "egress"
        self.control = directory / "control"
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asking = threading.Lock()
        with theirs:
            self.holder = subprocess.Popen(
                [*self.host, sys.executable, "-c", _HOLDER, str(theirs.fileno()), self._module],
                stdout=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
            )
        assert self.holder.stdout is not None
        self.facts = BorderFacts.model_validate_json(self.holder.stdout.readline())
        self.recorder: subprocess.Popen[bytes] | None = None

    def start(self, *options: str, **environment: str) -> None:
        """Start a recorder and wait until it is ready."""
        reading, writing = os.pipe()
        command = [
            *(
                sys.executable,
                "-m",
                f"relive.proxies.egress.{self._module}",
                "--capsule",
                str(self.holder.pid),
            ),
            *(("--border", str(self.facts.number)) if self.facts.number else ()),
            *("--group", self.facts.group),
            *("--recording", str(self.recording), "--control", str(self.control)),
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

    def socket(self, family: int, kind: int) -> socket.socket:
        """One of the service's."""
        with self._asking:
            self._line.send(f"{int(family)} {int(kind)}".encode())
            _, (descriptor,), _, _ = socket.recv_fds(self._line, 1, 1)
        return socket.socket(fileno=descriptor)

    def server(self, name: tuple[str, int]) -> socket.socket:
        """The service listens."""
        family = socket.AF_INET6 if ":" in name[0] else socket.AF_INET
        sock = self.socket(family, socket.SOCK_STREAM)
        sock.bind(name)
        sock.listen()
        return sock

    def connect(self, destination: tuple[str, int], timeout: float = LIMIT) -> socket.socket:
        """A connection of the service."""
        family = socket.AF_INET6 if ":" in destination[0] else socket.AF_INET
        sock = self.socket(family, socket.SOCK_STREAM)
        sock.settimeout(timeout)
        try:
            sock.connect(destination)
        except BaseException:
            sock.close()
            raise
        return sock

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
        self._line.close()
        self.holder.wait(LIMIT)
        subprocess.run([*self.host, sys.executable, "-c", _REMOVER, self.facts.model_dump_json()], check=True)
        assert self.holder.stdout is not None
        self.holder.stdout.close()
