"""Programs that crash in one way each, and a tracer spoken to over its bare protocol. Nothing here sleeps."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent.parent / "programs"
LIMIT = 60.0  # [s] for anything that is waited for

Message = dict[str, Any]


class Program:
    """A child of this process that has said "ready"."""

    def __init__(self, command: list[str], **options: Any) -> None:
        options.setdefault("start_new_session", True)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        self.pid = self.process.pid
        assert self.line() == "ready"

    def say(self, word: str = "go") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], LIMIT)
        assert ready, "the program says nothing"
        # Unbuffered on purpose: select() must see what is left.
        text = b""
        while not text.endswith(b"\n"):
            byte = os.read(self.process.stdout.fileno(), 1)
            if not byte:
                break
            text += byte
        return text.decode().rstrip("\n")

    def ask(self, word: str = "go") -> str:
        self.say(word)
        return self.line()

    def end(self) -> int:
        """Its exit code as its parent sees it, negative for a signal."""
        return self.process.wait(LIMIT)

    def states(self) -> set[str]:
        """The states of its threads."""
        found = set()
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found.add((task / "stat").read_text().rpartition(")")[2].split()[0])
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LIMIT)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class Wire:
    """A tracer process and our end of its socket."""

    def __init__(self, *options: str) -> None:
        self.socket, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "relive.signals.tracer", "--socket", str(theirs.fileno()), *options],
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.socket.settimeout(LIMIT)
        self._lines = self.socket.makefile("rb")
        self.events: list[Message] = []

    def send(self, op: str, **fields: object) -> None:
        self.socket.sendall(json.dumps({"op": op, **fields}).encode() + b"\n")

    def read(self) -> Message:
        line = self._lines.readline()
        assert line, "the tracer has ended"
        message: Message = json.loads(line)
        return message

    def command(self, op: str, **fields: object) -> Message:
        """Send a command and return its reply; events before it are kept."""
        self.send(op, **fields)
        while (message := self.read())["op"] in ("fatal", "exit", "lost"):
            self.events.append(message)
        return message

    def event(self, op: str) -> Message:
        """The next event of that kind; others before it are dropped."""
        while True:
            message = self.events.pop(0) if self.events else self.read()
            if message["op"] == op:
                return message
            assert message["op"] in ("fatal", "exit", "lost"), message

    def attach(self, root: int) -> Message:
        reply = self.command("attach", root=root)
        assert reply["op"] == "attached", reply
        return reply

    def close(self) -> None:
        self._lines.close()
        self.socket.close()
        assert self.process.wait(LIMIT) in (0, -signal.SIGKILL)


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def tracer_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("TracerPid:")[2].split()[0])


def settled(program: Program, expected: int) -> int:
    """The count of signals, once it is what is expected; less if that does not come to be."""
    deadline = time.monotonic() + 10
    while (count := int(program.ask())) < expected and time.monotonic() < deadline:
        # The last one may have been handed to a thread that the busy machine has not run yet.
        os.sched_yield()
    return count


@contextlib.contextmanager
def another(*options: str) -> Iterator[Wire]:
    wire = Wire(*options)
    try:
        yield wire
    finally:
        wire.close()


@pytest.fixture(scope="session")
def compiled() -> Iterator[Callable[[str], Path]]:
    """The executable of ``tests/programs/NAME.c``, in a directory that every user can reach (pytest's own are closed)."""
    folder = Path(tempfile.mkdtemp(prefix="relive-programs-"))
    folder.chmod(0o755)

    def build(name: str) -> Path:
        target = folder / name
        if not target.exists():
            source = PROGRAMS / f"{name}.c"
            subprocess.run(["cc", "-O1", "-g", "-pthread", "-w", "-o", target, source], check=True)
        return target

    yield build
    shutil.rmtree(folder)


@pytest.fixture
def start(compiled: Callable[[str], Path]) -> Iterator[Callable[..., Program]]:
    """Start a program by its name, or any command that says "ready"; it is ended with the test."""
    with contextlib.ExitStack() as stack:

        def begin(name: str | list[str], *arguments: str, **options: Any) -> Program:
            command = name if isinstance(name, list) else [str(compiled(name)), *arguments]
            program = Program(command, **options)
            stack.callback(program.close)
            return program

        yield begin


@pytest.fixture
def wire() -> Iterator[Wire]:
    """A tracer that traces nothing yet."""
    wire = Wire()
    yield wire
    wire.close()
