"""A process that runs, in the words in which a watch knows containers."""

from __future__ import annotations

import contextlib
import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path

from relive.kernel import procfs
from relive.kernel.sockdiag import listening_ports
from relive.watching.state import ContainerState, HealthCheck

__all__ = ["ended_state", "is_python", "life_of", "name_of", "read_life", "running_state"]

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_LIFE = re.compile(r"([0-9]{1,10})-([0-9]{1,20})-([0-9a-f]{8})")
_ODD = re.compile(r"[^A-Za-z0-9._-]")


def life_of(stat: procfs.ProcessStat) -> str:
    """What tells a process from all others of this host: its pid, when it began, and since which boot."""
    return f"{stat.pid}-{stat.start_ticks}-{_BOOT.read_text()[:8]}"


def read_life(text: str) -> tuple[int, int | None] | None:
    """(pid, when it began in ticks after boot) of what ``life_of`` gave; of a bare pid without the second. None: it is neither.

    Of an earlier boot the second is one that no process has.
    """
    if text.isascii() and text.isdigit() and len(text) <= 10:
        return int(text), None
    match = _LIFE.fullmatch(text)
    if match is None:
        return None
    is_ours = _BOOT.read_text()[:8] == match[3]
    return int(match[1]), int(match[2]) if is_ours else -1


def name_of(stat: procfs.ProcessStat) -> str:
    """What a process is called if nobody says: its command's name and its pid."""
    return f"{_ODD.sub('-', stat.comm).strip('.-_') or 'process'}-{stat.pid}"


def running_state(
    pid: int,
    *,
    identifier: str,
    name: str,
    target: str,
    health: HealthCheck | None,
    restarts: int = 0,
    logs: str,
    has_group: bool,
) -> ContainerState:
    """A process that runs, as it is now; it may end meanwhile.

    Args:
        logs: "none" where nothing can be read of its output.
    """
    command, directory = [""], "/"
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0")
        command, directory = words.decode(errors="replace").split("\0"), os.readlink(f"/proc/{pid}/cwd")
    return ContainerState(
        id=identifier,
        name=name,
        image="",
        command=command,
        directory=directory,
        status="running",
        pid=pid,
        started=_began(pid),
        exit_code=None,
        oom_killed=False,
        stopped_by_user=None,
        health=health,
        restarts=restarts,
        mounts={},
        ports=[("127.0.0.1", port) for port in sorted(listening_ports(pid))],
        logs=logs,
        has_recorder=False,
        has_group=has_group,
        target=target,
    )


def ended_state(
    *,
    identifier: str,
    name: str,
    target: str,
    exit_code: int | None,
    stopped: bool | None,
    is_final: bool,
    restarts: int = 0,
) -> ContainerState:
    """A process that has ended, or a unit that does not run."""
    return ContainerState(
        id=identifier,
        name=name,
        image="",
        command=[""],
        directory="/",
        status="exited",
        pid=0,
        started="",
        exit_code=exit_code,
        oom_killed=False,
        stopped_by_user=stopped,
        health=None,
        restarts=restarts,
        mounts={},
        ports=[],
        logs="",
        has_recorder=False,
        is_final=is_final,
        target=target,
    )


def _began(pid: int) -> str:
    stat = procfs.read_stat(pid)
    if stat is None:
        return ""
    since_boot = stat.start_ticks / os.sysconf("SC_CLK_TCK")
    return datetime.fromtimestamp(
        time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot, UTC
    ).isoformat()


def is_python(pid: int) -> bool:
    """It is an interpreter of Python."""
    with contextlib.suppress(OSError):
        return Path(os.readlink(f"/proc/{pid}/exe")).name.startswith("python")
    return False
