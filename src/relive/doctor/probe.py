"""How a probe is run, so that whatever it does or meets, ``relive doctor`` goes on and the host is as before.

Each probe runs in a process forked for it. It may enter namespaces, mount, crash or hang there: its answer is one line
of JSON through a pipe, and if none comes within the limit the process and all its descendants are killed. They cannot
get away, since that process is the reaper of its descendants (PR_SET_CHILD_SUBREAPER); should the doctor itself be
killed, the kernel kills it too (PR_SET_PDEATHSIG). Then, and only then, the small process that the CRIU probes commit,
or its branch, may live on for up to 30 s, until its alarm; the next doctor removes the directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from pydantic import ValidationError

from relive.config import Settings
from relive.doctor.finding import Finding, Obstacle, ProbeOutcome, ProbeResult, fails, in_words
from relive.doctor.scratch import Scratch
from relive.errors import ReliveError
from relive.kernel import libc, procfs

__all__ = ["DEFECT", "Probe", "ProbeContext", "conduct", "root_remedy"]

DEFECT = "this is a defect of Relive, please report it with this output"

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NOT_ALLOWED = (errno.EPERM, errno.EACCES)
_ROUNDS = 50  # of killing; each needs a new descendant to have been born during the last one


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """What a probe works with.

    Attributes:
        directory: an empty directory of its own on the file system of ``$RELIVE_HOME``; removed afterwards.
        above: the existing directory that is, or would hold, ``$RELIVE_HOME``.
    """

    settings: Settings
    directory: Path
    above: Path


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing to try.

    Attributes:
        name: see ``Finding.name``.
        limit: seconds after which it is given up.
        run: tries it. What it raises becomes a finding "fails"; an OSError's cause is its text.
        remedy: what helps if it fails for a reason that the probe did not foresee.
        needs_directory: without ``ProbeContext.directory`` it cannot be tried.
    """

    name: str
    required: bool
    limit: float
    run: Callable[[ProbeContext], ProbeResult]
    remedy: str
    needs_directory: bool = False


def root_remedy() -> str:
    """What helps when the kernel says "not permitted"."""
    if os.geteuid() != 0:
        return "run it as root, for instance with sudo"
    return (
        'give this container or virtual machine the right to do it; the row "privileges" says what is missing'
    )


def conduct(probe: Probe, settings: Settings, scratch: Scratch) -> Finding:
    """Run one probe to its end; call it from a process with one thread. Never raises for what the probe does."""
    began = time.monotonic()
    directory: Path | None = None
    try:
        directory = scratch.make("probe")
    except OSError as error:
        # What writes nothing can be tried all the same.
        result = _cannot_write(error, scratch.above) if probe.needs_directory else None
    else:
        result = None
    if result is None:
        context = ProbeContext(settings, directory or scratch.above, scratch.above)
        result = _in_a_process_of_its_own(probe, context, began + probe.limit)
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
    return _finding(probe, result, round((time.monotonic() - began) * 1000, 1))


def _finding(probe: Probe, result: ProbeResult, milliseconds: float) -> Finding:
    return Finding(
        name=probe.name,
        required=probe.required,
        outcome=result.outcome,
        found=result.found,
        cause=result.cause,
        remedy=result.remedy,
        milliseconds=milliseconds,
    )


def _cannot_write(error: OSError, above: Path) -> ProbeResult:
    text = os.strerror(error.errno or 0)
    remedy = "set RELIVE_HOME to a directory on a disk that can be written"
    if error.errno in _NO_SPACE:
        remedy = "free space where RELIVE_HOME lies, or set it to another disk"
    elif error.errno in _NOT_ALLOWED and os.geteuid() != 0:
        remedy = root_remedy()
    return fails("not tried", cause=f"nothing can be written in {above}: {text}", remedy=remedy)


def _in_a_process_of_its_own(probe: Probe, context: ProbeContext, deadline: float) -> ProbeResult:
    reading, writing = os.pipe()
    doctor = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _be_the_probe(probe, context, writing, doctor)
    os.close(writing)
    line = b""
    try:
        line = _read_line(reading, deadline)
    finally:
        os.close(reading)
        if not line:
            _kill_tree(child)
        _, status = os.waitpid(child, 0)
    if line:
        with contextlib.suppress(ValidationError):
            answer = Finding.model_validate_json(line)
            return ProbeResult(answer.outcome, answer.found, answer.cause, answer.remedy)
    if time.monotonic() >= deadline:
        return fails(
            "no answer", cause=f"it did not end within {probe.limit:g} s and was killed", remedy=probe.remedy
        )
    ending = (
        f"signal {signal.Signals(os.WTERMSIG(status)).name}"
        if os.WIFSIGNALED(status)
        else f"status {status >> 8}"
    )
    return fails(
        "the probe died", cause=f"its process ended with {ending} and said nothing", remedy=probe.remedy
    )


def _read_line(reading: int, deadline: float) -> bytes:
    """One line, or nothing if the other end closed or the deadline passed before its end."""
    text = b""
    while not text.endswith(b"\n"):
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        part = os.read(reading, 1 << 16) if ready else b""
        if not part:
            return b""
        text += part
    return text


def _be_the_probe(probe: Probe, context: ProbeContext, writing: int, doctor: int) -> NoReturn:
    try:
        _detach(doctor)
        try:
            result = probe.run(context)
        except BaseException as error:
            result = _translate(error, probe)
        _kill_descendants(os.getpid())
        data = _finding(probe, result, 0).model_dump_json().encode() + b"\n"
        while data:
            data = data[os.write(writing, data) :]
    finally:
        # No handlers of the doctor's, no flushing of its buffers: this process is a copy.
        os._exit(0)


def _detach(doctor: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    with contextlib.suppress(OSError):
        libc.call("prctl", _PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        libc.call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if os.getppid() != doctor:
        os._exit(1)  # it was killed before it could be told to take us along
    nowhere = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    if nowhere > 2:
        os.close(nowhere)


def _translate(error: BaseException, probe: Probe) -> ProbeResult:
    if isinstance(error, Obstacle):
        return fails(error.found, cause=error.cause, remedy=error.remedy or probe.remedy)
    if isinstance(error, ReliveError):
        return ProbeResult(
            ProbeOutcome.FAILS, error.message, error.cause or error.message, error.remedy or probe.remedy
        )
    if isinstance(error, OSError) and error.errno is not None:
        text = os.strerror(error.errno)
        remedy = probe.remedy
        if error.errno in _NOT_ALLOWED:
            remedy = root_remedy()
        elif error.errno in _NO_SPACE:
            remedy = "free space where RELIVE_HOME lies, or set it to another disk"
        return fails(text, cause=in_words(error), remedy=remedy)
    return fails("the probe crashed", cause=f"{type(error).__name__}: {error}{_place(error)}", remedy=DEFECT)


def _place(error: BaseException) -> str:
    """Where it was raised: all of the traceback that a row has room for."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" (in {frames[-1].name}, {Path(frames[-1].filename).name})" if frames else ""


def _descendants(root: int) -> list[int]:
    """Living descendants, by a walk over all of /proc: the quick way needs what a probe is there to find out."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = procfs.read_stat(int(name))
            if stat is not None and not stat.has_ended:
                parents[stat.pid] = stat.parent
    found = [root]
    for pid in found:
        found.extend(child for child, parent in parents.items() if parent == pid)
    return found[1:]


def _kill_descendants(root: int) -> None:
    """Kill all below a process that starts no new ones: the calling one, or one that is stopped."""
    for _ in range(_ROUNDS):
        if root == os.getpid() and _has_no_children():
            return
        living = _descendants(root)
        if not living:
            return
        for pid in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if root == os.getpid():
            _reap_all()


def _has_no_children() -> bool:
    """As the reaper of all its descendants, a process without children has no descendants either."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def _reap_all() -> None:
    """Wait for children that have been killed; a process in the middle of its end is still listed."""
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            select.select([], [], [], 0.001)


def _kill_tree(root: int) -> None:
    """Kill a child of ours and all below it. It is stopped first, so that it starts nothing new."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(root, signal.SIGSTOP)
        _kill_descendants(root)
        os.kill(root, signal.SIGKILL)
