"""What chaos.py watches: a counting service, and the client that asks for it all the time."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _chaos_processes import thread_states, until

from relive.kernel import procfs

CLIENT = str(Path(__file__).with_name("_chaos_client.py"))
ANSWER_BOUND = 10.0  # [s] a service that has not answered by then counts as lost; the client waits for longer
CLIENT_BOUND = 5.0  # [s] after which the client gives up a connection and makes another


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
