"""A capsule's memory cgroup: a limit, and the count of kills for want of memory (cgroup v1 and v2).

Where no memory cgroup can be made the capsule runs without; then kills for want of memory are only seen as SIGKILL.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from relive.errors import HostIncapable
from relive.kernel.memory_cgroups import oom_kills

__all__ = ["MemoryGroup"]

_V1 = Path("/sys/fs/cgroup/memory")
_V2 = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """One cgroup."""

    directory: Path
    version: int
    is_ours: bool = True

    @classmethod
    def make(cls, name: str, limit: int | None) -> MemoryGroup | None:
        """Make a cgroup with a limit in bytes; None where the host offers no memory cgroup and no limit is asked for.

        Raises:
            HostIncapable: a limit is asked for and cannot be set.
        """
        try:
            # The last capsule there was has just ended, and took the group along.
            with contextlib.suppress(FileNotFoundError):
                cls._make_v1(name) or cls._make_v2(name)
            group = cls._make_v1(name) or cls._make_v2(name)
            if group is not None and limit is not None:
                group._limit(limit)
        except OSError as error:
            group, cause = None, str(error)
        else:
            cause = "this host has no memory controller that Relive may use"
        if group is None and limit is not None:
            raise HostIncapable("the memory limit cannot be set", cause=cause, remedy="leave --memory away")
        return group

    @classmethod
    def of_process(cls, pid: int) -> MemoryGroup | None:
        """The group that a process is in, such as a container's; None where there is no memory controller, or no process."""
        try:
            lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            return None
        paths = {names: path for _, names, path in (line.split(":", 2) for line in lines)}
        own = next((path for names, path in paths.items() if "memory" in names.split(",")), None)
        if own is not None:
            return cls(_V1 / own.lstrip("/"), 1)
        tops = (top / paths[""].lstrip("/") for top in _V2 if "" in paths)
        return next((cls(group, 2) for group in tops if (group / "memory.events").exists()), None)

    @classmethod
    def of_unit(cls) -> MemoryGroup | None:
        """The group of the systemd unit this process belongs to, which systemd made and limits; None where it has none."""
        group = cls.of_process(os.getpid())
        if group is None or group.directory in (_V1, *_V2):
            return None
        return replace(group, is_ours=False)

    @classmethod
    def _make_v1(cls, name: str) -> MemoryGroup | None:
        if not (_V1 / "memory.limit_in_bytes").exists() and not (_V1 / "memory.usage_in_bytes").exists():
            return None
        directory = _V1 / "relive" / name
        directory.mkdir(parents=True, exist_ok=True)
        return cls(directory, 1)

    @classmethod
    def _make_v2(cls, name: str) -> MemoryGroup | None:
        for top in _V2:
            controllers = top / "cgroup.controllers"
            if controllers.exists() and "memory" in controllers.read_text().split():
                for parent in (top, top / "relive"):
                    parent.mkdir(exist_ok=True)
                    with contextlib.suppress(OSError):
                        (parent / "cgroup.subtree_control").write_text("+memory")
                directory = top / "relive" / name
                directory.mkdir(exist_ok=True)
                return cls(directory, 2)
        return None

    def _limit(self, limit: int) -> None:
        if self.version == 1:
            (self.directory / "memory.limit_in_bytes").write_text(str(limit))
            with contextlib.suppress(OSError):
                (self.directory / "memory.memsw.limit_in_bytes").write_text(str(limit))
        else:
            (self.directory / "memory.max").write_text(str(limit))
            with contextlib.suppress(OSError):
                (self.directory / "memory.swap.max").write_text("0")

    def join(self) -> None:
        """Move the calling process in; its later children are born in it."""
        if not self.is_ours:
            return  # whoever made it has put us there
        (self.directory / "cgroup.procs").write_text("0")

    def kills(self) -> int:
        """Processes of the group that the kernel has killed for want of memory so far."""
        return oom_kills(self.directory)

    def limit(self) -> int | None:
        """Bytes that the group may have; None where there is no limit, or none that matters on this machine."""
        name = "memory.limit_in_bytes" if self.version == 1 else "memory.max"
        try:
            limit = int((self.directory / name).read_text())
        except (OSError, ValueError):  # "max"
            return None
        return limit if limit < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") else None

    def held(self) -> int:
        """Bytes in use that the kernel cannot take back: all but files' pages. 0 where the group is gone."""
        name = "memory.usage_in_bytes" if self.version == 1 else "memory.current"
        prefix = "total_" if self.version == 1 else ""
        files = {f"{prefix}active_file", f"{prefix}inactive_file"}
        try:
            used = int((self.directory / name).read_text())
            lines = (self.directory / "memory.stat").read_text().splitlines()
        except (OSError, ValueError):
            return 0
        return used - sum(int(value) for name, value in map(str.split, lines) if name in files)

    def bell(self, level: int) -> int | None:
        """An eventfd (not blocking) that rings when the use crosses so many bytes; None where the kernel cannot (cgroups v2)."""
        if self.version != 1:
            return None
        bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            usage = os.open(self.directory / "memory.usage_in_bytes", os.O_RDONLY | os.O_CLOEXEC)
            try:
                (self.directory / "cgroup.event_control").write_text(f"{bell} {usage} {level}")
            finally:
                os.close(usage)
        except OSError:
            os.close(bell)
            return None
        return bell

    def remove(self, within: float = 0.0) -> None:
        """Remove it if it is empty, and with the last one the directory above.

        Args:
            within: seconds in which its last processes, which have been killed, may still end.
        """
        if not self.is_ours:
            return
        deadline = time.monotonic() + within
        with contextlib.suppress(OSError):
            while (self.directory / "cgroup.procs").read_bytes() and time.monotonic() < deadline:
                time.sleep(0.005)
            self.directory.rmdir()
            self.directory.parent.rmdir()
