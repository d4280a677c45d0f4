"""Processes as chaos.py sees and kills them from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


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


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


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
