"""What a branch does while a request is replayed, beside its answer: system calls, allocations of Python, what its processes take.

System calls are counted by strace(1), which stops the processes at each of them; allocations by ``tracemalloc``, which Python has
itself. Both cost time, so times of a measured run are no times of the service. A process that is traced already, or runs no
Python, is measured without what cannot be had, and ``Measured.troubles`` says so.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import relive_inprocess.relive_allocations as allocations_program
from relive.errors import ReliveError, ToolMissing
from relive.inspection.python.asking import ask, is_python
from relive.inspection.python.calling import CallDied, CallLate
from relive.kernel import procfs
from relive.model.outcome import Measured
from relive.sandbox.branch import Branch

__all__ = ["BranchMeter", "counted_calls", "require_strace"]

_LIMIT = 10.0  # [s] for each question to a process, and for strace to come and go
_POLL = 0.01  # [s]
_MOST = 60  # lines that allocate
_TICK_MS = 1000 // os.sysconf("SC_CLK_TCK")
_ROW = re.compile(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(?P<count>\d+)\s+(?:\d+\s+)?(?P<name>[a-z_]\w*)$")


def require_strace() -> None:
    """Raises ToolMissing."""
    if shutil.which("strace") is None:
        raise ToolMissing(
            "system calls cannot be counted",
            cause="there is no strace on this host",
            remedy="apt-get install strace",
        )


def counted_calls(table: str) -> dict[str, int]:
    """System calls by name, of what ``strace -c`` writes."""
    rows = (_ROW.match(line) for line in table.splitlines())
    return {row["name"]: int(row["count"]) for row in rows if row is not None and row["name"] != "total"}


class BranchMeter:
    """Measures one branch from now on. ``end`` it when its request was answered; ``close`` it in any case."""

    def __init__(self, branch: Branch) -> None:
        self._root, self._troubles = branch.facts.root, list[str]()
        self._file = Path(tempfile.mkdtemp(prefix="relive-strace-")) / "calls"
        self._traced = [
            pid for pid in self._pids() if is_python(pid) and self._asked(pid, is_end=False) is not None
        ]
        self._before = _figures(self._pids())
        self._strace: subprocess.Popen[bytes] | None = None
        self._strace = self._attached(self._pids())

    def end(self) -> Measured:
        """What was measured."""
        figures = _figures(self._pids())
        calls = self._detached()
        lines: Counter[str] = Counter()
        for pid in self._traced:
            for file, line, size in self._asked(pid, is_end=True) or ():
                lines[f"{file}:{line}"] += size
        return Measured(
            system_calls=calls,
            allocations=dict(lines.most_common(_MOST)),
            figures={
                name: count - self._before.get(name, 0) if name in _GROWING else count
                for name, count in figures.items()
            },
            troubles=self._troubles,
        )

    def close(self) -> None:
        """Let go. May be called again."""
        self._detached()
        shutil.rmtree(self._file.parent, ignore_errors=True)

    def _pids(self) -> list[int]:
        return procfs.tree_of(self._root)

    def _asked(self, pid: int, *, is_end: bool) -> Sequence[tuple[str, int, int]] | None:
        """Have a Python process begin to count, or tell what it counted; None where it does not."""
        try:
            told = ask(pid, {"end": is_end, "most": _MOST}, _LIMIT, allocations_program)
        except (CallDied, CallLate, ReliveError, OSError, ValueError) as error:
            told = {"failed": type(error).__name__}
        if "failed" in told:
            self._troubles.append(
                f"allocations of process {procfs.innermost_pid(pid)} are not known: {told['failed']}"
            )
            return None
        lines: Sequence[tuple[str, int, int]] = told.get("lines", ())
        return lines

    def _attached(self, pids: Iterable[int]) -> subprocess.Popen[bytes] | None:
        options = ["-f", "-c", "-S", "calls", "-o", str(self._file)]
        said = self._file.with_name("said")
        with said.open("wb") as stream:
            process = subprocess.Popen(
                ["strace", *options, *(word for pid in pids for word in ("-p", str(pid)))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stream,
            )
        until = time.monotonic() + _LIMIT
        while time.monotonic() < until and process.poll() is None:
            if all(_tracer_of(pid) == process.pid for pid in pids if procfs.exists(pid)):
                return process
            time.sleep(_POLL)
        process.kill()
        process.wait()
        words = said.read_text(errors="replace").strip().splitlines()
        self._troubles.append(
            f"system calls are not known: {words[-1] if words else 'strace did not attach'}"
        )
        return None

    def _detached(self) -> dict[str, int]:
        if self._strace is None:
            return {}
        process, self._strace = self._strace, None
        process.send_signal(signal.SIGINT)  # it lets go, and writes what it has counted
        try:
            process.wait(_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()  # the kernel lets go of what it traced
            process.wait()
        with contextlib.suppress(OSError):
            return counted_calls(self._file.read_text())
        self._troubles.append("system calls are not known: strace wrote none")
        return {}


_GROWING = frozenset({"CPU, ms", "page faults", "voluntary switches"})


def _figures(pids: Iterable[int]) -> dict[str, int]:
    """Sums over processes, as psutil has them of one: proc_pid_stat(5), proc_pid_status(5)."""
    found: Counter[str] = Counter()
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError):  # it has ended
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found["processes"] += 1
            found["CPU, ms"] += (int(fields[11]) + int(fields[12])) * _TICK_MS
            found["page faults"] += int(fields[7]) + int(fields[9])
            found["threads"] += int(fields[17])
            found["resident, bytes"] += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
            found["descriptors"] += len(os.listdir(f"/proc/{pid}/fd"))
            found["voluntary switches"] += int(procfs.status_field(pid, "voluntary_ctxt_switches") or 0)
    return dict(found)


def _tracer_of(pid: int) -> int:
    return int(procfs.status_field(pid, "TracerPid") or 0)
