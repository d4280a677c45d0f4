"""Looking at a failed process from outside of its branch: stacks by py-spy, native code by gdb.

Both run on the host with its rights, and gdb runs programs when it is told to (``shell``). So only the CLI has this, whose caller
has those rights already: no token opens it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from relive.config import Settings
from relive.errors import ToolMissing, UsageError
from relive.kernel import procfs
from relive.model.commit import CommitId
from relive.model.incident import FailureKind, Incident
from relive.model.text import printable
from relive.operations.debugging import DebugParams, leave
from relive.operations.operation import Result
from relive.operations.progress import Progress
from relive.replay.debug.session import restored
from relive.sandbox.branch import Branch
from relive.store import Store

__all__ = [
    "GDB",
    "NativeAnswer",
    "NativeEnd",
    "Stacks",
    "debug_native",
    "gdb_at",
    "gdb_on",
    "is_native",
    "native_end",
    "restored_at",
    "stacks_of",
]

# A branch's programs may be hostile, and gdb has root's rights: no scripts that a program brings along, no downloads.
GDB = ["gdb", "-q", "-nx", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off"]
# Writes (exit status, signal) where the process ends while gdb has it; one of the two is None.
_TELL_END = (
    "python gdb.events.exited.connect(lambda e: open({!r}, 'w').write("
    "repr((getattr(e, 'exit_code', None), int(gdb.convenience_variable('_exitsignal') or 0) or None))))"
)
# Attached to a process, gdb stands in its first thread, and numbers the others as it finds them.
_SWITCH = "python [one.switch() for one in gdb.selected_inferior().threads() if one.ptid[1] == {}]"
_LET_GO = "(None, None)"  # gdb calls it an exit, too
_ENDED = re.compile(r"\((\d+|None), (\d+|None)\)")


class Stacks(Result):
    """``stacks``: of each process, by its number, as py-spy shows them."""

    incident: int
    commit: CommitId | None
    branch: str
    stacks: dict[str, str]


class NativeEnd(Result):
    """How a process ended that gdb had let go on; ``as_recorded``: of that signal, or with that status, as in the incident."""

    exit_status: int | None
    signal: int | None
    as_recorded: bool


class NativeAnswer(Result):
    """``ran``: the words of the gdb command; ``output``: all that it said; ``ended``: None where the process did not end."""

    incident: int
    commit: CommitId | None
    branch: str
    ran: list[str]
    output: str
    ended: NativeEnd | None


def is_native(incident: Incident) -> bool:
    """No frames are left in Python of a process that stands before its exit; what was written in C has them all."""
    return incident.sighting.kind in (FailureKind.SIGNAL, FailureKind.EXIT)


@contextlib.contextmanager
def restored_at(
    settings: Settings, params: DebugParams, incident: Incident, progress: Progress
) -> Iterator[Branch]:
    """A branch of the commit at an incident's moment; it is stopped at the end, or kept. Raises as ``session.restored``."""
    branch = restored(settings, Store(settings.store), incident)
    try:
        yield branch
    finally:
        leave(progress, branch, keep=params.keep)


def stacks_of(incident: Incident, branch: Branch) -> Stacks:
    """The stacks of all Python threads; raises ToolMissing."""
    found = {str(pid): _stacks(pid) for pid in procfs.tree_of(branch.facts.root)}
    return Stacks(incident=incident.number, commit=incident.at, branch=branch.facts.id, stacks=found)


def _stacks(pid: int) -> str:
    tool = shutil.which("py-spy", path=_tool_path())
    if tool is None:
        raise ToolMissing(
            "the stacks of the branch cannot be read",
            cause="py-spy is not installed",
            remedy="pip install py-spy",
        )
    done = subprocess.run(
        [tool, "dump", "--pid", str(pid)], capture_output=True, text=True, check=False, timeout=60
    )
    return printable(done.stdout if done.returncode == 0 else _no_stacks(pid, done.stderr))


def _no_stacks(pid: int, said: str) -> str:
    """``said``: py-spy's own words, of which the first line is the error and the rest a trace of itself."""
    first = next((line for line in said.splitlines() if line.strip()), "py-spy said nothing")
    name = procfs.status_field(pid, "Name") or "gone"
    return f"process {pid} ({name}) shows no Python stacks: {first.removeprefix('Error: ')}"


def gdb_on(branch: Branch, process: int | None) -> list[str]:
    """The words of a gdb on a process of a branch, by its number inside; None: the first.

    Raises:
        UsageError: there is no such process. ToolMissing: there is no gdb.
    """
    pids = procfs.tree_of(branch.facts.root)
    pid = next((one for one in pids if process in (None, procfs.innermost_pid(one))), None)
    if pid is None:
        raise UsageError(
            f"the branch has no process {process}",
            cause=f"there are {', '.join(str(procfs.innermost_pid(one)) for one in pids) or 'none'}",
            remedy="name one of these, or leave --process out",
        )
    gdb = shutil.which("gdb")
    if gdb is None:
        raise ToolMissing("there is no gdb on this host", remedy="apt-get install gdb")
    return [gdb, *GDB[1:], "-p", str(pid)]


def gdb_at(incident: Incident, branch: Branch, ended: Path) -> list[str]:
    """The words of a gdb on the process as it stands where the signal was about to strike, or where it was about to exit.

    It begins in the thread that the signal was about to strike.

    Args:
        ended: a file for ``native_end``.

    Raises:
        ToolMissing: there is no gdb.
    """
    pid = _process_that_failed(incident, branch)
    if shutil.which("gdb") is None:
        raise ToolMissing(
            f"a native process is debugged with `gdb -p {pid}`",
            cause="gdb is not installed",
            remedy="apt install gdb; `relive debug --keep` keeps the branch meanwhile",
        )
    thread = _thread_that_failed(incident, pid)
    switched = ["-ex", _SWITCH.format(thread)] if thread is not None else []
    return [*GDB, "-ex", _TELL_END.format(str(ended)), "-p", str(pid), *switched]


def native_end(incident: Incident, ended: Path) -> NativeEnd | None:
    """What became of the process of ``gdb_at``, when gdb has ended; None: it had not ended then."""
    match = _ENDED.fullmatch(ended.read_text()) if ended.exists() else None
    if match is None or match[0] == _LET_GO:
        return None
    status, number = (int(one) if one.isdecimal() else None for one in match.groups())
    sighting = incident.sighting
    return NativeEnd(
        exit_status=status,
        signal=number,
        as_recorded=(status, number) == (sighting.exit_status, sighting.signal),
    )


def debug_native(incident: Incident, branch: Branch, commands: list[str]) -> NativeAnswer:
    """Give gdb commands, or have it show all stacks; raises ToolMissing."""
    with tempfile.TemporaryDirectory() as directory:
        ended = Path(directory) / "ended"
        batch = [*gdb_at(incident, branch, ended), "-batch"]
        for one in commands or ["backtrace", "thread apply all backtrace"]:
            batch += ["-ex", one]
        done = subprocess.run(
            batch, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120
        )
        return NativeAnswer(
            incident=incident.number,
            commit=incident.at,
            branch=branch.facts.id,
            ran=batch,
            output=printable(done.stdout.rstrip()),
            ended=native_end(incident, ended),
        )


def _process_that_failed(incident: Incident, branch: Branch) -> int:
    """The host's pid of the process that got the signal or was about to exit; of the service's root where that cannot be told."""
    wanted = incident.sighting.pid
    for pid in procfs.tree_of(branch.facts.root):
        if wanted is not None and procfs.innermost_pid(pid) == wanted:
            return pid
    return branch.facts.root


def _thread_that_failed(incident: Incident, pid: int) -> int | None:
    """The host's number of the thread that got the signal; None where none is known, or it is the first one."""
    wanted = incident.sighting.thread
    for thread in procfs.threads_of(pid):
        if wanted is not None and procfs.innermost_pid(pid, thread) == wanted:
            return thread if thread != pid else None
    return None


def _tool_path() -> str | None:
    """Where programs are looked for: beside this interpreter first, where py-spy lies if it came with it."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
