"""The main thing: a small process is committed, lives again in a branch, and both lives answer.

The process makes up a word, tells it, and waits. Asked again it must still know the word: the original, because a
commit does it no harm; the branch, because its memory came back.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from types import TracebackType

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.dump import capture
from relive.checkpoint.target import process_target
from relive.checkpoint.watchdog import Watchdog
from relive.containers.restore.restoring import restore
from relive.doctor.finding import Obstacle, ProbeResult, works
from relive.doctor.probe import ProbeContext, root_remedy
from relive.errors import PermissionMissing
from relive.kernel.pidfds import has_ended
from relive.kernel.seccomp import hide_io_uring
from relive.model.commit import Trigger
from relive.sandbox.branch import Branch
from relive.sandbox.restore_request import RestoreRequest
from relive.store import Store

__all__ = ["dump_restore", "dump_restore_other_user"]

_NOBODY = 65534
_ANSWER = 2.0  # [s]
_LIMIT = 4.0  # [s] for the commit, and again for the restore
_GOOD = 7  # the status with which a life that was asked ends

# argv: uid or -1. The alarm ends it should everything that could end it have been killed; a branch inherits it.
_PROGRAM = f"""
import os, signal, sys
signal.alarm(30)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
uid = int(sys.argv[1])
if uid >= 0:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
word = os.urandom(8).hex().encode()
os.write(1, word + b"\\n")
signal.sigwait([signal.SIGUSR1])
os.write(1, word + b"\\n")
os._exit({_GOOD})
"""


class _SmallProcess:
    """The process that is committed; a context manager that ends it."""

    def __init__(self, uid: int | None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, str(-1 if uid is None else uid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            preexec_fn=_hide_io_uring,  # noqa: PLW1509 - a probe has one thread
        )
        self.pid = self._process.pid
        self.word = ""

    def __enter__(self) -> _SmallProcess:
        try:
            self.word = self.line()
            if not self.word:
                raise Obstacle(
                    "no process to try it on",
                    cause=f"{sys.executable} did not start, or may not change its user",
                )
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def line(self) -> str:
        """Its next line; empty if none comes."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _ANSWER)
        return self._process.stdout.readline().decode().strip() if ready else ""

    def ask(self) -> tuple[str, int | None]:
        """Ask it for its word; returns that, and the status with which it ended."""
        self._process.send_signal(signal.SIGUSR1)
        answer = self.line()
        try:
            return answer, self._process.wait(_ANSWER)
        except subprocess.TimeoutExpired:
            return answer, None


def _hide_io_uring() -> None:
    # As in a capsule, so that CRIU has to save and restore a filter; whether it can be made is another row.
    with contextlib.suppress(OSError):
        hide_io_uring()


def dump_restore(context: ProbeContext) -> ProbeResult:
    """A process of the caller's own user."""
    return _try(context, None)


def dump_restore_other_user(context: ProbeContext) -> ProbeResult:
    """A process that began as root and became nobody, as services do."""
    return _try(context, _NOBODY)


def _try(context: ProbeContext, uid: int | None) -> ProbeResult:
    if os.geteuid() != 0:
        raise PermissionMissing("not tried", cause="CRIU needs root", remedy=root_remedy())
    CriuTools(context.settings.tools_path).check()
    settings = context.settings.model_copy(
        update={
            "home": context.directory,
            "tools": context.settings.tools_path,
            "commit_limit": _LIMIT,
            "restore_limit": _LIMIT,
        }
    )
    with _SmallProcess(uid) as original, contextlib.closing(Store(settings.store)) as store:
        with Watchdog(CriuTools(settings.tools_path).watchdog) as watchdog:
            taken = capture(
                process_target(original.pid),
                Trigger.MANUAL,
                settings=settings,
                store=store,
                watchdog=watchdog,
            )
        stored = taken.store(store, [])
        branch = restore(settings, store, stored.id, RestoreRequest(is_owned=True))
        try:
            _check_branch(branch, original.word)
        finally:
            branch.stop()
        _check_original(original)
    return works(
        f"paused {stored.pause_us / 1000:.1f} ms, branch alive after {branch.facts.restore_us / 1000:.1f} ms"
    )


def _check_branch(branch: Branch, word: str) -> None:
    if not branch.seal().is_intact:
        raise Obstacle("the branch is not sealed", cause=f"{branch.seal()}")
    life = os.pidfd_open(branch.facts.init)
    try:
        os.kill(branch.facts.root, signal.SIGUSR1)
        ended = has_ended(life, _ANSWER)
    finally:
        os.close(life)
    # Its standard output led to a pipe of ours, which is not part of the commit: the branch was given a file.
    said = "".join(path.read_text() for path in (branch.directory / "io").glob("outlet-*.log")).split()
    if not ended or word not in said:
        state = f"wait status {branch.wait_status}" if ended else "it still waits"
        raise Obstacle(
            "restored, but not alive",
            cause=f"the branch did not answer with the word in its memory ({state})",
        )
    if branch.wait_status is None or os.waitstatus_to_exitcode(branch.wait_status) != _GOOD:
        raise Obstacle(
            "restored, but not sound", cause=f"the branch ended with wait status {branch.wait_status}"
        )


def _check_original(original: _SmallProcess) -> None:
    answer, status = original.ask()
    if answer != original.word or status != _GOOD:
        raise Obstacle(
            "the original was harmed",
            cause=f"after the commit it answered {answer!r} and ended with status {status}",
        )
