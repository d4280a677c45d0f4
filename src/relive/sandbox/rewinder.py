"""The process beside a branch that keeps what it was before it ran, and puts that back in place: ``native/rewind.c``.

Only a branch of one process can have one, and not where something of its state cannot be seen or put back (``_check``). Its
service is made to stand still before it runs (``stop_before_it_runs``), the rewinder takes it over and lets it go; it ends with it.
What is compared and what is written back: docs/rollback.md.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.kernel_trust import KernelTrust, running_kernel
from relive.checkpoint.micro_fingerprint import check_trackable
from relive.checkpoint.micro_record import FullCommitNeeded, Seen, read_seen
from relive.checkpoint.micro_tracker import DISTRUSTED, is_of_memory
from relive.checkpoint.suspect_captures import SuspectCaptures
from relive.kernel import procfs
from relive.kernel.children import read_until
from relive.sandbox.rootfs import RINGS_DIRECTORY

__all__ = [
    "CannotRewind",
    "PutBack",
    "Spoilt",
    "put_back",
    "refuse_rewinding",
    "start_rewinder",
    "stop_before_it_runs",
]

_SOCKET, _LOOK, _REFUSED, _HOME = "rewind.sock", "rewind.look", "rewind.refused", "rewind.home"
_READY_WITHIN = 30.0  # [s] to copy all memory
_ANSWER_WITHIN = 30.0  # [s]
_ANSWER_MOST = 512  # [bytes]
_EPOLLET = 1 << 31
_UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


class CannotRewind(Exception):
    """The branch cannot be put back in place, for the reason given; it runs on as it was."""


class Spoilt(CannotRewind):
    """It failed in the middle: the service was killed, since it was neither what it had been nor what it was to be."""


@dataclass(frozen=True, slots=True)
class PutBack:
    """How long the service stood still for it [ns], and how many pages were written.

    Attributes:
        digest: of all memory and registers, which were read and compared; two restores of one commit have the same. None: not asked
            for.
    """

    paused_ns: int
    pages: int
    digest: str | None = None


def refuse_rewinding(directory: Path, reason: str) -> None:
    """Have ``put_back`` say why the branch of a directory cannot be put back in place."""
    (directory / _REFUSED).write_text(reason)


def stop_before_it_runs(root: int) -> None:
    """Have a process stand still as soon as CRIU lets go of it, if it is alone; ``start_rewinder`` has to follow.

    Args:
        root: its number in the caller's /proc.
    """
    if len(procfs.tree_of(root)) == 1:
        # Its directory is a handle of it (pidfd_send_signal(2)), whatever its number is in the caller's PID namespace.
        handle = os.open(f"/proc/{root}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            signal.pidfd_send_signal(handle, signal.SIGSTOP)
        finally:
            os.close(handle)


def start_rewinder(directory: Path, tools: CriuTools, root: int, shift_ns: int | None, home: Path) -> None:
    """Have the state of a process kept that was stopped before it ran, and let it run.

    Where that cannot be it runs without, and ``put_back`` will say why.

    Args:
        directory: of the branch.
        root: host pid.
        shift_ns: what was added to its wall clock; None: nothing.
        home: of Relive: whether the kernel's objects are believed there (``KernelTrust``).
    """
    try:
        _start(directory, tools, root, shift_ns, home)
    except CannotRewind as refusal:
        refuse_rewinding(directory, str(refusal))


def _start(directory: Path, tools: CriuTools, root: int, shift_ns: int | None, home: Path) -> None:
    shift = [] if shift_ns is None else [str(shift_ns)]
    asks = [] if KernelTrust(home).lost() is None else ["ask"]
    try:
        (directory / _HOME).write_text(str(home))
        if len(procfs.tree_of(root)) != 1:
            raise CannotRewind("it is more than one process")
        if resource.prlimit(root, resource.RLIMIT_CPU) != _UNLIMITED:
            raise CannotRewind("its processor time is limited, and what it has used counts")
        with subprocess.Popen(  # what is started goes on in a child, which is nobody's
            [str(tools.rewind), *asks, str(directory), str(root), *shift],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            start_new_session=True,
        ) as process:
            _converse(process, directory / _LOOK)
    except OSError as error:
        raise CannotRewind(f"its rewinder cannot be started: {error}") from error
    finally:
        _let_run(root)


def _converse(process: subprocess.Popen[bytes], look: Path) -> None:
    assert process.stdin is not None
    _expect(process, "looked")
    try:
        _check(read_seen(look))
    except FullCommitNeeded as refusal:
        process.stdin.write(b"drop\n")
        _expect(process, "refused")
        raise CannotRewind(str(refusal)) from refusal
    finally:
        look.unlink(missing_ok=True)
    process.stdin.write(b"keep\n")
    _expect(process, "ready")


def _expect(process: subprocess.Popen[bytes], wanted: str) -> None:
    assert process.stdout is not None
    answer = read_until(process.stdout, b"\n", _READY_WITHIN).decode(errors="replace").strip()
    kind, _, reason = answer.partition(" ")
    if kind != wanted:
        raise CannotRewind(reason or "its rewinder has died")


def _let_run(root: int) -> None:
    """However it went: one that is still stopped, and held by nobody, was not taken over."""
    stat = procfs.read_stat(root)
    if stat is not None and stat.state == "T":
        with contextlib.suppress(ProcessLookupError):
            os.kill(root, signal.SIGCONT)


def _check(seen: Seen) -> None:
    """Raise FullCommitNeeded where something of the process is neither seen nor put back."""
    # A branch is in a time namespace always; its clocks go on there.
    seen.lines = [line for line in seen.lines if not line.startswith("timens_offsets ")]
    check_trackable(seen)
    for watched in seen.watched.values():
        if any(one.events & _EPOLLET for one in watched):
            raise FullCommitNeeded("it watches a descriptor for changes only (EPOLLET)")
    for mapping in seen.mappings:
        name = mapping.name
        if mapping.rights[1:4:2] == "ws" and not name.startswith(f"{RINGS_DIRECTORY}/"):
            raise FullCommitNeeded(f"it writes to a file by a mapping: {name}")


def put_back(
    directory: Path, *, verifies: bool = False, while_held: Callable[[], None] | None = None
) -> PutBack:
    """Put the branch of a directory back to what it was before it ran.

    Args:
        verifies: read all of it before it runs, and compare it with what it was.
        while_held: called when it is as it was, and before it runs. The caller has the other ends of all connections that it had
            then: what lies in them is taken out here, and what they have carried is not asked for. With OSError it is killed.

    Raises:
        CannotRewind: it has no rewinder, or something differs that cannot be put back. Spoilt: see there.
    """
    words = ["rollback", *(["verify"] if verifies else []), *(["hold"] if while_held is not None else [])]
    with socket.socket(socket.AF_UNIX) as line, contextlib.ExitStack() as stack:
        line.settimeout(_ANSWER_WITHIN)
        place = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, place)
        try:
            line.connect(f"/proc/self/fd/{place}/{_SOCKET}")  # the whole path may be too long
            answer = _ask(line, " ".join(words))
            if answer == "held" and while_held is not None:
                while_held()
                answer = _ask(line, "go")
        except (FileNotFoundError, ConnectionRefusedError):
            raise CannotRewind(_why_not(directory)) from None
        except OSError as error:
            raise Spoilt(f"it did not come to run: {error}") from error
    _believe_no_more(directory, answer)
    return _put_back_as(answer)


def _believe_no_more(directory: Path, answer: str) -> None:
    """The kernel's objects, where the rewinder found that they tell something else than is so."""
    reason = answer.partition(" ")[2]
    if reason.startswith(DISTRUSTED):
        with contextlib.suppress(OSError):  # the rewinder itself does not believe them any more
            home = Path((directory / _HOME).read_text())
            SuspectCaptures(home).add_uncompared(running_kernel(), of_memory=is_of_memory(reason))
            KernelTrust(home).lose(reason)


def _ask(line: socket.socket, words: str) -> str:
    line.sendall(f"{words}\n".encode())
    return line.recv(_ANSWER_MOST).decode(errors="replace").strip()


def _put_back_as(answer: str) -> PutBack:
    kind, _, rest = answer.partition(" ")
    if kind == "done":
        paused, pages, *digest = rest.split()
        return PutBack(int(paused), int(pages), *digest)
    if kind == "refused":
        raise CannotRewind(rest)
    raise Spoilt(rest or "its rewinder has died")


def _why_not(directory: Path) -> str:
    try:
        return (directory / _REFUSED).read_text()
    except FileNotFoundError:
        return "nothing was kept of what it was before it ran"
