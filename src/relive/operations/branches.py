"""Branches: listing, entering, reading and ending what runs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import IO, BinaryIO

from pydantic import Field

from relive.agent.capsule.lives import all_lives
from relive.agent.capsule.stopping import STOP_LIMIT, StopResult, stop_service
from relive.config import Settings
from relive.errors import BranchUnknown, RecordingCorrupt, RestoreFailed, TargetUnknown
from relive.incidents.report.masking import Mask, mask_for
from relive.kernel.pidfds import has_ended
from relive.kernel.plainfile import open_plain
from relive.operations.branch_states import find_living
from relive.operations.operation import Effect, Faces, Operation, Params, Result, Tool
from relive.operations.progress import Progress
from relive.operations.targets import tend
from relive.sandbox.branch import Branch, find_branch, list_branches
from relive.watching.launch import end_watch
from relive.watching.life import all_watches, find_watch

__all__ = [
    "EXEC",
    "ExecParams",
    "Executed",
    "LogPart",
    "LogStream",
    "Stopped",
    "execute",
    "inside_environment",
    "log_part",
    "log_streams",
    "mask_of_output",
    "masked_lines",
    "stop",
]

_LEARNED_MOST = 64 << 20  # [bytes] of a file that is read twice
_LINE_MOST = 1 << 20  # [bytes] longer lines are masked piece by piece
_MOST_LOG = 1 << 16  # [bytes] of a part


class ExecParams(Params):
    """What is run in a branch."""

    branch: str = Field(description="The branch's id, or a unique beginning of it")
    command: list[str] = Field(description="The command and its arguments", min_length=1)
    limit: float = Field(default=60.0, gt=0, le=3600, description="Seconds after which it is killed")
    most: int = Field(default=1 << 20, gt=0, le=16 << 20, description="Bytes kept of each of its two streams")


class Executed(Result):
    """What a command in a branch did.

    Attributes:
        status: as a shell shows it; None when it was killed for its time.
        stdout, stderr: what is no UTF-8 is written as escapes; cut: bytes of both that are left out.
    """

    status: int | None
    stdout: str
    stderr: str
    cut: int


def execute(settings: Settings, params: ExecParams, _progress: Progress) -> Executed:
    """Run a command in a branch until it ends; raises BranchUnknown."""
    found = find_living(settings, params.branch)
    process = subprocess.Popen(
        found.command_inside(params.command),
        env=inside_environment(),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    status: int | None = None
    with process:
        heard = [_Heard(stream, params.most) for stream in (process.stdout, process.stderr)]
        handle = os.pidfd_open(process.pid)
        try:
            is_over = has_ended(handle, params.limit)
        finally:
            # Before it is reaped: until then its group's number is nobody else's.
            os.killpg(process.pid, signal.SIGKILL)
            os.close(handle)
        if is_over:
            ended = process.wait()
            status = ended if ended >= 0 else 128 - ended
        out, err = (one.end() for one in heard)
    return Executed(status=status, stdout=out[0], stderr=err[0], cut=out[1] + err[1])


def _look_up(settings: Settings, params: ExecParams) -> None:
    find_living(settings, params.branch)


EXEC = Operation(
    "exec",
    ExecParams,
    Executed,
    execute,
    Faces(
        cli=("exec",),
        rest=("POST /branches/{branch}/exec",),
        mcp=Tool(
            Effect.DESTROYS,
            "Run a command inside a branch: look at its files, send its service requests. Only the branch is changed.",
            is_acting=True,
        ),
    ),
    look_up=_look_up,
)


class _Heard:
    """Reads a stream in a thread, keeps its beginning, and lets the rest go by."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream, self._most = stream, most
        self._kept = bytearray()
        self._cut = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while data := os.read(self._stream.fileno(), 1 << 16):
            taken = data[: self._most - len(self._kept)]
            self._kept += taken
            self._cut += len(data) - len(taken)

    def end(self) -> tuple[str, int]:
        """(text, bytes that are left out), once nobody writes any more."""
        self._thread.join()
        return self._kept.decode("utf-8", "backslashreplace"), self._cut


def inside_environment() -> dict[str, str]:
    """The variables of a command in a branch: nothing of the caller's but how his terminal speaks."""
    spoken = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TERM") if name in os.environ}
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **spoken}


def log_streams(settings: Settings, name: str) -> tuple[dict[str, Path], RestoreFailed | None]:
    """The files with what a branch, the newest life of a capsule or a watched container said.

    They are "stdout", "stderr", and "stubs" where there are any.
    The second value says why a branch was ended before its time (``Branch.cut_short``). Raises BranchUnknown.
    """
    try:
        branch = find_branch(settings, name)
    except BranchUnknown:
        lives = [one.paths for one in all_lives(settings) if one.facts.spec.name == name]
        lives = lives or [one.paths for one in all_watches(settings) if one.is_called(name)]
        if not lives:
            raise
        return dict(zip(("stdout", "stderr"), lives[-1].logs, strict=True)), None
    streams = {"stdout": branch.log("stdout"), "stderr": branch.log("stderr")}
    if branch.log("stubs").exists():
        streams["stubs"] = branch.log("stubs")
    return streams, branch.cut_short


class LogStream(StrEnum):
    """What is read: standard output or error, or what a branch's stubs could not answer as recorded."""

    STDOUT = "stdout"
    STDERR = "stderr"
    STUBS = "stubs"


class LogPart(Result):
    """A part of what was said, what is no UTF-8 as escapes; ``next``: cursor for the part that follows, None at the end so far."""

    text: str
    next: int | None


def log_part(settings: Settings, name: str, stream: LogStream, after: int | None) -> LogPart:
    """At most ``_MOST_LOG`` bytes from the place ``after``, or the last ones; raises BranchUnknown."""
    streams, _ = log_streams(settings, name)
    mask = mask_of_output(settings, name)
    if stream.value not in streams:
        return LogPart(text="", next=None)
    with _opened(streams[stream.value]) as file:
        least = file.tell()
        size = file.seek(0, os.SEEK_END)
        begin = max(least, size - _MOST_LOG if after is None else min(after, size))
        file.seek(begin)
        data = file.read(_MOST_LOG)
    end = begin + len(data)
    lines = data.decode("utf-8", "backslashreplace").splitlines(keepends=True)
    return LogPart(text="".join(mask.whole(lines)), next=end if end < size else None)


def mask_of_output(settings: Settings, name: str) -> Mask:
    """A mask that knows the secrets of a branch's or capsule's service, as far as it runs."""
    mask = mask_for(settings, name)
    with contextlib.suppress(BranchUnknown):
        branch = find_branch(settings, name)
        if branch.is_alive:
            mask.learn_process(branch.facts.root)
    return mask


def masked_lines(path: Path, mask: Mask) -> Iterator[bytes]:
    """The lines of one of those files without secrets; the file may be larger than this host's memory.

    In one that is not large, also what is known to be secret from a later line only. Raises RecordingCorrupt.
    """
    with _opened(path) as file:
        if os.fstat(file.fileno()).st_size <= _LEARNED_MOST:
            for line in _lines(file):
                _masked(line, mask)
            file.seek(0)
        for line in _lines(file):
            yield _masked(line, mask)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(_LINE_MOST):
        yield line


def _masked(line: bytes, mask: Mask) -> bytes:
    text = line.decode("utf-8", "surrogateescape")
    masked = mask.sentence(text)
    return line if masked == text else masked.encode("utf-8", "surrogateescape")


def _opened(path: Path) -> BinaryIO:
    """At the first byte that was not freed (``relive.agent.capsule.log_rotation``)."""
    try:
        file = open_plain(path)
        with contextlib.suppress(OSError):  # nothing is there, or no file system that knows holes
            file.seek(os.lseek(file.fileno(), 0, os.SEEK_DATA))
        return file
    except OSError as error:
        raise RecordingCorrupt(
            f"what was said in {path.name} cannot be read",
            cause=f"{error.strerror}; the service may have put something else in its place",
        ) from error


class Stopped(Result):
    """Ids of branches and names of capsules that were stopped, targets of containers that are not watched any more."""

    stopped: list[str]


def stop(
    settings: Settings,
    names: list[str],
    progress: Progress,
    *,
    every_branch: bool = False,
    only_branches: bool = False,
    number: int | None = None,
    limit: float = STOP_LIMIT,
) -> Stopped:
    """End branches and remove what was theirs; unless ``only_branches``, also what is no branch.

    A capsule's service is asked to end, and what of it has not after a time is killed: see ``agent.capsule.stopping``. Of a
    container or service that is watched the watch is ended, and it runs on. Stopping what has ended is no error.

    Args:
        number: the signal by which a service is asked; None: the one that it was started with, or SIGTERM.
        limit: seconds that it has to end.

    Raises:
        BranchUnknown: there never was one of that name.
        AgentUnreachable: of a watch that does not end.
        CapsuleError: a service does not even end when it is killed.
    """
    tend(settings, progress)
    wanted = list(names)
    if every_branch:
        wanted += [branch.facts.id for branch in list_branches(settings)]
    stopped = []
    for name in wanted:
        branch = _branch_of(settings, name, is_wanted=only_branches)
        if branch is not None:
            branch.stop()
            stopped.append(branch.facts.id)
        else:
            stopped.append(_stop_service(settings, name, progress, number, limit))
    return Stopped(stopped=stopped)


def _branch_of(settings: Settings, name: str, *, is_wanted: bool) -> Branch | None:
    try:
        return find_branch(settings, name)
    except BranchUnknown:
        if is_wanted:
            raise
        return None


def _stop_service(settings: Settings, name: str, progress: Progress, number: int | None, limit: float) -> str:
    lives = [one for one in all_lives(settings) if one.facts.spec.name == name]
    capsule = next((one for one in lives if one.is_alive), None)
    if capsule is None:
        try:
            return _stop_watching(settings, name, progress)
        except BranchUnknown:
            if not lives:
                raise
        capsule = lives[-1]  # its agent may still be writing down how it ended
    wanted = number or capsule.facts.spec.stop_signal or signal.SIGTERM
    if stop_service(capsule, number=wanted, limit=limit, say=progress.status) is StopResult.HAD_ENDED:
        progress.status(f"{name} had ended already.")
    return name


def _stop_watching(settings: Settings, name: str, progress: Progress) -> str:
    try:
        watch = find_watch(settings, name)
    except TargetUnknown:
        raise BranchUnknown(
            f"{name!r} is no branch, no capsule and not watched",
            remedy="`relive ps --all` lists all of them",
        ) from None
    end_watch(watch)
    progress.status(f"{watch.target} is not watched any more; it runs on, as if it had never been.")
    return watch.target
