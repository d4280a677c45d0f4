"""Servers that do nothing but tasks, as forks of one process that has imported DBOS already, which takes a second.

As a program it reads a line of JSON for each server that it is to fork, and prints its pid.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from relive.config import load_settings
from relive.server.export_shelf import ExportStore
from relive.server.task_kinds import server_kinds
from relive.server.task_store import TaskStore
from relive.server.tasks import Tasks

from .harms import GIVE_UP, KINDS, die_if_planned

TESTS = Path(__file__).parent.parent
TOOLS = load_settings().tools_path  # those of the machine, not of the empty home that a test has
_POINTS = ("begin", "announce", "note_done", "end", "set_handed")


class Server:
    """A process that was forked; it may be killed at any moment."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._handle: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._handle = None  # it has killed itself already, and nobody waits for it

    def wait(self) -> None:
        """Until it has ended."""
        if self._handle is None:
            return
        try:
            ended, _, _ = select.select([self._handle], [], [], GIVE_UP)
            assert ended, "the server does not end"
        finally:
            os.close(self._handle)
            self._handle = None

    def end(self, number: int = signal.SIGKILL) -> None:
        """Send a signal, and wait until it has ended."""
        if self._handle is not None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                signal.pidfd_send_signal(self._handle, number)
        self.wait()


class TaskServers:
    """Starts servers."""

    def __init__(self) -> None:
        self._forker = subprocess.Popen(
            [sys.executable, "-m", "server.task_server"],
            env={**os.environ, "PYTHONPATH": str(TESTS), "RELIVE_TOOLS": str(TOOLS)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._started: list[Server] = []

    def __call__(self, home: Path, *, code: str = "old", tasks: int = 4) -> Server:
        """A server on ``home``, with the kinds of ``harms.KINDS[code]``, or those of ``relive serve``."""
        assert self._forker.stdin is not None and self._forker.stdout is not None
        self._forker.stdin.write(json.dumps({"home": str(home), "code": code, "tasks": tasks}) + "\n")
        self._forker.stdin.flush()
        server = Server(int(self._forker.stdout.readline()))
        self._started.append(server)
        return server

    def end_all(self) -> None:
        """Kill those that live."""
        for server in self._started:
            server.end()
        self._started.clear()

    def close(self) -> None:
        """End the process that forks."""
        self.end_all()
        assert self._forker.stdin is not None and self._forker.stdout is not None
        self._forker.stdin.close()
        self._forker.wait(GIVE_UP)
        self._forker.stdout.close()


def _let_it_die(directory: Path) -> None:
    """Around each write of the store lies a point where the plan may kill this process."""

    def wrap(name: str) -> None:
        method = getattr(TaskStore, name)

        def wrapped(self: TaskStore, first: Any, *rest: Any, **options: Any) -> Any:
            tasks = [getattr(first, "task", first)] if not isinstance(first, list) else first
            step = f" {rest[1]}" if name in {"announce", "note_done"} else ""
            for task in tasks:
                die_if_planned(directory, f"{task} before {name}{step}")
            value = method(self, first, *rest, **options)
            for task in tasks:
                die_if_planned(directory, f"{task} after {name}{step}")
            return value

        setattr(TaskStore, name, wrapped)

    for name in _POINTS:
        wrap(name)


def _serve(home: str, code: str, tasks: int) -> None:
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    settings = load_settings(home=Path(home), tasks=tasks)
    os.dup2(os.open(settings.home / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    os.dup2(2, 1)
    _let_it_die(settings.home)
    served = Tasks(
        settings, KINDS[code] if code in KINDS else server_kinds(settings, ExportStore(settings.server))
    )
    served.start()
    ending.wait()
    served.stop()


def _main() -> None:
    importlib.import_module("dbos")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            status = 1
            try:
                _serve(**json.loads(line))
                status = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            os._exit(status)
        print(child, flush=True)


if __name__ == "__main__":
    _main()
