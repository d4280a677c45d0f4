"""Processes as /proc shows them (proc(5)). Everything read here may be stale by the time the caller looks at it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "Mapping",
    "MemoryUse",
    "ProcessStat",
    "children_of",
    "command_of",
    "environment_of",
    "exists",
    "exists_inside",
    "innermost_pid",
    "is_same_process",
    "is_stopped",
    "memory_of",
    "name_of",
    "namespace_pids",
    "read_file",
    "read_maps",
    "read_stat",
    "registers_of",
    "status_field",
    "terminal_of",
    "threads_of",
    "tree_of",
    "vdso_of",
    "write_calls",
]


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """What Relive needs of /proc/PID/stat.

    Attributes:
        state: one letter: R, S, D, T (stopped), t (traced), Z (zombie), X, I.
        start_ticks: clock ticks after boot at which it started; with the pid it names a process for good.
        threads: how many it has; of a zombie those that still run, and itself.
        kernel_thread: it has no user memory (PF_KTHREAD).
        exit_status: of a zombie, raw as from waitpid(2); 0 where the caller may not trace it.
    """

    pid: int
    comm: str
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int
    threads: int
    kernel_thread: bool
    exit_status: int = 0

    @property
    def has_ended(self) -> bool:
        """Nothing of it runs any more.

        The state is that of the first thread alone. While others run, or are being killed, the process holds its memory, files
        and sockets, though the first is a zombie (a main thread may also leave by pthread_exit(3)).
        """
        return self.state in "ZX" and self.threads <= 1


_PF_KTHREAD = 0x00200000
_PART = 1 << 14  # [bytes] read at once
_VDSO = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \d+ +\[vdso\]$", re.MULTILINE)


def read_file(path: str) -> bytes:
    """All of a file of /proc, in a fifth of the time that ``Path.read_bytes`` takes for one so small."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(file, _PART):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(file)


def terminal_of(pid: int) -> int:
    """The device of the terminal that controls a process, as in ``st_rdev``; 0 where none does, or it is gone."""
    try:
        fields = read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    number = int(fields[4])  # the minor number's upper bits stand above the major one
    return os.makedev((number >> 8) & 0xFFF, (number & 0xFF) | ((number >> 12) & 0xFFF00)) if number else 0


def read_stat(pid: int) -> ProcessStat | None:
    """The process's stat line, or None when there is no such process."""
    try:
        text = read_file(f"/proc/{pid}/stat").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in parentheses and may itself hold parentheses and spaces.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return ProcessStat(
        pid=pid,
        comm=head.partition("(")[2],
        state=fields[0],
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
        threads=int(fields[17]),
        kernel_thread=bool(int(fields[6]) & _PF_KTHREAD),
        exit_status=int(fields[49]),
    )


def exists(pid: int) -> bool:
    """There is a process of that number that has not ended."""
    stat = read_stat(pid)
    return stat is not None and not stat.has_ended


def name_of(pid: int) -> str | None:
    """The name of a process that lives, or None."""
    stat = read_stat(pid)
    return stat.comm if stat is not None and not stat.has_ended else None


def is_stopped(pid: int) -> bool:
    """A signal has stopped it."""
    return (status_field(pid, "State") or "").startswith("T")


def exists_inside(first: int, number: int) -> bool:
    """In the PID namespace of ``first``, its process 1, there is a process of that number there (a zombie counts)."""
    return Path("/proc", str(first), "root", "proc", str(number)).exists()


def is_same_process(pid: int, start_ticks: int) -> bool:
    """The process of that number is alive and still the one that started then (numbers are used again)."""
    stat = read_stat(pid)
    return stat is not None and stat.start_ticks == start_ticks and not stat.has_ended


def threads_of(pid: int) -> list[int]:
    """Thread ids of a process, the leader first; empty when it is gone."""
    try:
        # Numbers come round again, so a thread may have a lower one than its leader.
        return sorted(
            (int(name) for name in os.listdir(f"/proc/{pid}/task")), key=lambda tid: (tid != pid, tid)
        )
    except (FileNotFoundError, ProcessLookupError):
        return []


def descriptors_of(pid: int) -> list[Path]:
    """The links ``/proc/PID/fd/NUMBER`` of what a process has open; none where it has ended, or may not be looked at."""
    try:
        return [Path(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


def children_of(pid: int) -> list[int]:
    """Direct children, whichever thread forked them (needs CONFIG_PROC_CHILDREN)."""
    found: list[int] = []
    for thread in threads_of(pid):
        try:
            text = read_file(f"/proc/{pid}/task/{thread}/children")
        except (FileNotFoundError, ProcessLookupError):
            continue
        found.extend(int(word) for word in text.split())
    return found


def tree_of(root: int) -> list[int]:
    """The root and all its descendants, parents before children."""
    found = [root]
    for pid in found:
        found.extend(children_of(pid))
    return found


def registers_of(pid: int, thread: int) -> tuple[int, int] | None:
    """(instruction, stack) pointers of a thread that waits in a system call or is stopped; None: it runs, or is gone.

    Raises:
        PermissionError: without the right to trace it.
    """
    try:
        words = read_file(f"/proc/{pid}/task/{thread}/syscall").decode().split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # "running", "NUMBER six arguments SP PC", or "-1 SP PC" outside of a call (proc_pid_syscall(5)).
    return (int(words[-1], 16), int(words[-2], 16)) if len(words) >= 3 else None


def namespace_pids(pid: int, thread: int | None = None) -> list[int]:
    """The numbers of a process or thread in each of its PID namespaces, that of the reader first; empty: it is gone."""
    try:
        text = read_file(f"/proc/{pid}/task/{thread if thread is not None else pid}/status")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return next(
        (
            [int(word) for word in line.split()[1:]]
            for line in text.split(b"\n")
            if line.startswith(b"NSpid:")
        ),
        [],
    )


def innermost_pid(pid: int, thread: int | None = None) -> int | None:
    """The number of a process or thread in its innermost PID namespace, which is how it calls itself; None: it is gone."""
    numbers = namespace_pids(pid, thread)
    return numbers[-1] if numbers else None


def environment_of(pid: int) -> dict[str, str]:
    """The variables that a process was started with; empty when there is no such process."""
    try:
        words = read_file(f"/proc/{pid}/environ").split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(word).partition("=") for word in words)
    return {name: value for name, equals, value in pairs if equals}


def command_of(pid: int) -> list[str]:
    """The words with which a process was started; none when there is no such process."""
    try:
        words = read_file(f"/proc/{pid}/cmdline").removesuffix(b"\0").split(b"\0")
    except OSError:
        return []
    return [word.decode(errors="replace") for word in words]


def status_field(pid: int, name: str) -> str | None:
    """One field of /proc/PID/status as text, or None when the process or the field is absent."""
    try:
        text = read_file(f"/proc/{pid}/status").decode(errors="replace")  # a name may hold any bytes
    except (FileNotFoundError, ProcessLookupError):
        return None
    for line in text.split("\n"):
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    return None


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes of a process's memory that are in no file: its own, swapped out or not, and what it shares."""

    private: int
    shared: int


def write_calls(pid: int) -> int | None:
    """How many calls that write a process has made, to files or anything else; one that is under way does not count yet.

    None when there is no such process, or the kernel does not count them.
    """
    try:
        text = read_file(f"/proc/{pid}/io").decode()
    except OSError:
        return None
    found = re.search(r"^syscw: (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


def memory_of(pid: int) -> MemoryUse | None:
    """From counters, which costs the process nothing; None when it is gone or a kernel thread."""
    try:
        text = read_file(f"/proc/{pid}/status").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    found = {
        key: value.split()[0]
        for key, _, value in (line.partition(":") for line in text.split("\n"))
        if value.endswith(" kB")
    }
    if "RssAnon" not in found:
        return None
    return MemoryUse(
        private=(int(found["RssAnon"]) + int(found.get("VmSwap", "0"))) << 10,
        shared=int(found.get("RssShmem", "0")) << 10,
    )


@dataclass(frozen=True, slots=True)
class Mapping:
    """One line of /proc/PID/maps; ``path`` is empty for anonymous memory."""

    start: int
    end: int
    permissions: str
    offset: int
    path: str


def vdso_of(pid: int) -> tuple[int, int] | None:
    """Where the vDSO of a process begins and ends; None: it has none, or is gone.

    A tenth of what ``read_maps`` takes for a process of some hundred mappings.
    """
    try:
        found = _VDSO.search(read_file(f"/proc/{pid}/maps"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    return (int(found[1], 16), int(found[2], 16)) if found else None


def read_maps(pid: int) -> Iterator[Mapping]:
    """The memory mappings of a process, lowest address first; none when it is gone."""
    try:
        text = read_file(f"/proc/{pid}/maps").decode(errors="surrogateescape")
    except (FileNotFoundError, ProcessLookupError):
        return
    for line in text.split("\n"):
        if not line:
            continue
        fields = line.split(maxsplit=5)
        low, _, high = fields[0].partition("-")
        path = fields[5] if len(fields) > 5 else ""
        yield Mapping(int(low, 16), int(high, 16), fields[1], int(fields[2], 16), path)
