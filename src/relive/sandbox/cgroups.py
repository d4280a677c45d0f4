"""The control groups of a branch (cgroups(7)): what it may take of the machine, and the root of its cgroup namespace.

In each hierarchy that is mounted here, of either version, a branch gets a group of its own: those of version 1 for memory, pids,
cpu and freezer, and the one of version 2 whatever controllers it has. So nothing in a branch, whatever it came to mount, would
see or freeze a process outside.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from relive.kernel.memory_cgroups import oom_kills
from relive.kernel.procfs import read_file

__all__ = ["GroupLimits", "Groups", "sweep_groups"]

_TOP = Path("/sys/fs/cgroup")
_VERSION_1 = ("memory", "pids", "cpu", "freezer")
_VERSION_2 = (_TOP, _TOP / "unified")
_CONTROLLERS = ("memory", "pids", "cpu")  # of version 2, what a branch's group has
_PARENT = "relive-branches"
_TRIES = 10
_GONE_WITHIN = 0.5  # [s] so long what was just killed may still be in a group


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What a branch may take at most; ``memory``: bytes, ``processes``: with their threads."""

    memory: int
    processes: int


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of one branch."""

    directories: tuple[Path, ...]

    @classmethod
    def make(cls, name: str) -> Groups:
        """Make them, without limits; where this host lets nobody make any, there are none.

        Args:
            name: that of no other branch of this machine, whatever its RELIVE_HOME.
        """
        made = []
        for top in _hierarchies():
            directory = top / _PARENT / name
            if _made(top, directory):
                made.append(directory)
        return cls(tuple(made))

    def limit(self, limits: GroupLimits) -> None:
        """Have the limits hold from now on; raises OSError where one cannot be set."""
        for directory in self.directories:
            _limit(directory, limits)

    def lower_memory(self, by: int) -> None:
        """Have the limit of memory be so many bytes lower, where what is used already leaves that."""
        for directory in self.directories:
            # It is gone, has no limit, or more is in use by now (EBUSY).
            with contextlib.suppress(OSError, ValueError):
                _lower_memory(directory, by)

    def add(self, pid: int) -> None:
        """See that a process is in all of them, and move it where it is not; its later children are born there.

        The first move of some milliseconds waits until the kernel's readers are through (5 to 20 ms), the next ones do not. So
        processes are born there where that can be had (``init_process``).

        Raises:
            OSError: it is gone.
        """
        for directory in self.directories:
            if b"%d" % pid not in read_file(f"{directory}/cgroup.procs").split():
                _write(f"{directory}/cgroup.procs", str(pid))

    def oom_kills(self) -> int:
        """Processes that the kernel has killed so far because the branch had used up its memory."""
        return sum(map(oom_kills, self.directories))

    def remove(self) -> None:
        """Remove them as soon as nobody is in there any more; doing it twice is no error."""
        deadline = time.monotonic() + _GONE_WITHIN
        for directory in self.directories:
            while not _removed(directory) and time.monotonic() < deadline:
                time.sleep(0.005)
            with contextlib.suppress(OSError):  # others are left
                directory.parent.rmdir()


def sweep_groups(prefix: str, branches: Path) -> None:
    """Remove the groups whose names begin with ``prefix`` and go on with none in ``branches``, where nobody is in them.

    Whoever makes groups has made that directory before. So it is asked for after the group was seen: in a list made before, a
    branch that another process makes at this moment would be missing.
    """
    for top in _hierarchies():
        with contextlib.suppress(OSError):
            for group in (top / _PARENT).iterdir():
                name = group.name.removeprefix(prefix)
                if name != group.name and not (branches / name).exists():
                    _removed(group)


def _hierarchies() -> list[Path]:
    first = [_TOP / name for name in _VERSION_1 if (_TOP / name / "cgroup.procs").exists()]
    return first + [top for top in _VERSION_2 if (top / "cgroup.controllers").exists()]


def _made(top: Path, directory: Path) -> bool:
    for _ in range(_TRIES):
        try:
            _make(top, directory)
        except FileNotFoundError:  # the last branch there was has just ended, and took the group above along
            continue
        except OSError:  # read-only, as within most containers
            return False
        return True
    return False


def _make(top: Path, directory: Path) -> None:
    if (top / "cgroup.controllers").exists():
        for parent in (top, directory.parent):
            parent.mkdir(exist_ok=True)
            _pass_on_controllers(parent)
    directory.mkdir(parents=True, exist_ok=True)


def _pass_on_controllers(parent: Path) -> None:
    """Have the groups below this one of version 2 limit what can be limited here, as far as they do not yet."""
    passed_on = read_file(f"{parent}/cgroup.subtree_control").decode().split()
    for controller in read_file(f"{parent}/cgroup.controllers").decode().split():
        if controller in _CONTROLLERS and controller not in passed_on:
            with contextlib.suppress(OSError):  # not to be had
                _write(f"{parent}/cgroup.subtree_control", f"+{controller}")


def _limit(directory: Path, limits: GroupLimits) -> None:
    wanted = {
        "memory.limit_in_bytes": limits.memory,
        "memory.memsw.limit_in_bytes": limits.memory,
        "memory.max": limits.memory,
        "memory.swap.max": 0,
        "pids.max": limits.processes,
        # Half of what every service has: where processors are short, a branch comes after what it is a copy of.
        "cpu.shares": 512,
        "cpu.weight": 50,
    }
    present = os.listdir(directory)
    for name, value in wanted.items():
        if name in present:
            _write(f"{directory}/{name}", str(value))


def _lower_memory(directory: Path, by: int) -> None:
    for used, *limits in (
        ("memory.usage_in_bytes", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
        ("memory.current", "memory.max"),
    ):
        present = [directory / name for name in limits if (directory / name).exists()]
        if not present:
            continue
        wanted = int(present[0].read_text()) - by
        # Version 2 would kill for what it cannot reclaim, and version 1 refuses.
        if int((directory / used).read_text()) < wanted:
            for path in present:
                _write(str(path), str(wanted))


def _write(path: str, text: str) -> None:
    """``Path.write_text`` makes six system calls more, and a branch has a dozen of these files written."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _removed(directory: Path) -> bool:
    try:
        directory.rmdir()
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True
