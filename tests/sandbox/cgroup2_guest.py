"""Process 1 of a virtual machine whose only hierarchy is cgroups v2: Relive's groups on a real kernel; see test_cgroup2.py.

Prints one line of JSON, then powers the machine off.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

MIB = 1 << 20
POWER_OFF = 0x4321FEDC  # reboot(2)


def mount(kind: str, place: str) -> None:
    Path(place).mkdir(parents=True, exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(kind.encode(), place.encode(), kind.encode(), 0, None) != 0:
        raise OSError(ctypes.get_errno(), f"mount {kind}")


def child(work: Callable[[], None]) -> int:
    """Run it in a process of its own; the pid."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def use_up(size: int) -> bytearray:
    held = bytearray(size)
    held[::4096] = b"x" * len(held[::4096])
    return held


def capsule() -> dict[str, object]:
    """A capsule's group: its limit kills who exceeds it, and the kill is counted."""
    from relive.agent.capsule.memory_cgroup import MemoryGroup

    group = MemoryGroup.make("pay-1", 48 * MIB)
    assert group is not None

    def exceed() -> None:
        group.join()
        use_up(96 * MIB)

    def stay() -> None:
        group.join()
        held = use_up(16 * MIB)
        time.sleep(60)
        held.clear()

    ended = status_of(child(exceed))
    kills = group.kills()
    within = child(stay)
    until = time.monotonic() + 60
    while group.held() < 16 * MIB and time.monotonic() < until:
        time.sleep(0.05)
    found = MemoryGroup.of_process(within)
    told: dict[str, object] = {
        "version": group.version,
        "limit": group.limit(),
        "ended": ended,
        "kills": kills,
        "held": group.held(),
        "is_of_process": found == group,
        "bell": group.bell(40 * MIB),
    }
    os.kill(within, signal.SIGKILL)
    status_of(within)
    group.remove()
    return told | {"is_left": group.directory.exists()}


def branch() -> dict[str, object]:
    """A branch's groups: limits of memory and processes, its weight, and nothing left of them."""
    from relive.sandbox.cgroups import GroupLimits, Groups, sweep_groups

    groups = Groups.make("ab-1")
    groups.limit(GroupLimits(memory=48 * MIB, processes=4))
    gate, opened = os.pipe()

    def multiply() -> None:
        os.read(gate, 1)
        made = 0
        try:
            for _ in range(10):
                child(lambda: time.sleep(5))
                made += 1
        except BlockingIOError:
            os._exit(made)

    def exceed() -> None:
        os.read(gate, 1)
        use_up(96 * MIB)

    first = child(multiply)
    groups.add(first)
    os.write(opened, b"x")
    made = status_of(first)
    second = child(exceed)
    groups.add(second)
    os.write(opened, b"x")
    ended = status_of(second)
    (directory,) = groups.directories
    weight = (directory / "cpu.weight").read_text().strip()
    told: dict[str, object] = {"made": made, "ended": ended, "kills": groups.oom_kills(), "weight": weight}
    (directory / "cgroup.kill").write_text("1")
    while (directory / "cgroup.procs").read_text():
        os.waitpid(-1, os.WNOHANG)
    groups.remove()
    Groups.make("ab-left")
    Groups.make("ab-kept")
    branches = Path("/branches")
    (branches / "kept").mkdir(parents=True)
    sweep_groups("ab-", branches)
    names = sorted(one.name for one in directory.parent.iterdir() if one.is_dir())
    return told | {"is_left": directory.exists(), "after_sweep": names}


def main() -> None:
    mount("proc", "/proc")
    mount("cgroup2", "/sys/fs/cgroup")
    told: dict[str, object] = {
        "kernel": os.uname().release,
        "controllers": Path("/sys/fs/cgroup/cgroup.controllers").read_text().split(),
        "capsule": capsule(),
        "branch": branch(),
    }
    print("TOLD", json.dumps(told), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, "/relive")
    try:
        main()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        ctypes.CDLL(None).reboot(POWER_OFF)
