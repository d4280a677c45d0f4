"""Following which files a service changes: a process that asks, and process 1 of capsules that answers."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
from pathlib import Path
from typing import NoReturn

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.journal import RecordKind, read_journal
from relive.doctor.finding import Obstacle, ProbeResult, limited, works
from relive.doctor.probe import ProbeContext
from relive.kernel.seccomp import ask_supervisor
from relive.sandbox.spawn import FileTracking, become_init

__all__ = ["followed_files"]

_LIMIT = 1 << 20  # [bytes]
_OVERLAY = "start services with `relive run --files overlay`"
_OBSTACLES = {
    errno.EBUSY: Obstacle(
        "another listener", cause="this process is under a seccomp listener already", remedy=_OVERLAY
    ),
    errno.EINVAL: Obstacle(
        "none",
        cause="this kernel has no SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (Linux 5.19)",
        remedy=_OVERLAY,
    ),
}


def followed_files(context: ProbeContext) -> ProbeResult:
    """Have a process make a file under the filter of capsules, with their process 1 to answer, and read what that wrote down."""
    init = CriuTools(context.settings.tools_path).init
    code = subprocess.run([init, "--filter"], stdout=subprocess.PIPE, check=True).stdout
    journal = context.directory / "followed"
    journal.mkdir()
    made = context.directory / "made"
    first = os.fork()
    if first == 0:
        _be_first(init, code, journal, made)
    _, status = os.waitpid(first, 0)
    number = os.waitstatus_to_exitcode(status)
    if number:
        raise _OBSTACLES.get(number) or Obstacle("refused", cause=os.strerror(abs(number)), remedy=_OVERLAY)
    records = [(one.path, one.kind) for one in read_journal(journal)]
    if not made.exists() or (str(made.resolve()), RecordKind.ABSENT) not in records:
        raise Obstacle("without effect", cause="a new file was not written down")
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except OSError as error:
        return limited(
            "without real-time priority",
            cause=f"sched_setscheduler(2): {error.strerror}; a signal may interrupt calls that open files (docs/files.md)",
            remedy="give this container CAP_SYS_NICE, and its control group real-time run time",
        )
    return works("process 1 is asked before files change, and answers with real-time priority")


def _be_first(init: Path, code: bytes, journal: Path, made: Path) -> NoReturn:
    """As process 1 of a capsule; ends with the status of the process that asks, or an errno."""
    with contextlib.suppress(OSError):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        service = os.fork()
        if service == 0:
            try:
                socket.send_fds(theirs, [b"l"], [ask_supervisor(code)])
                os.close(os.open(made, os.O_WRONLY | os.O_CREAT, 0o600))
                os._exit(0)
            except OSError as error:
                os._exit(error.errno or 1)
        theirs.close()
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
        if not descriptors:
            _, status = os.waitpid(service, 0)
            os._exit(os.waitstatus_to_exitcode(status))
        directory = os.open(journal, os.O_RDONLY | os.O_DIRECTORY)
        null = os.open("/dev/null", os.O_WRONLY)
        become_init(
            init, null, service, following=FileTracking(descriptors[0], directory, Path("/proc"), _LIMIT)
        )
    os._exit(errno.EIO)
