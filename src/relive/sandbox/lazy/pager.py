"""The page daemon as whoever restores sees it: starting it, waiting for its words, giving it up.

It is forked, not started anew: what it needs is loaded here already, and loading it again would take longer than all else
that happens before a lazy branch runs.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from relive.errors import MemoryLost
from relive.kernel import procfs
from relive.kernel.pidfds import has_ended, send_signal
from relive.sandbox.lazy.handover import Handover
from relive.sandbox.lazy.lifeline import Lifeline
from relive.sandbox.lazy.touched import TouchedMemory
from relive.sandbox.spawn import standard_streams

if TYPE_CHECKING:
    from relive.store.pages.page_reader import CommitPages

__all__ = ["Pager", "await_pager"]

_LOG = "pages.log"
_HELD = b"h"
_END_WITHIN = 10.0  # [s]


class Pager:
    """The page daemon of a branch that is being restored.

    Attributes:
        pid, started: of its process, a child of this one.
    """

    def __init__(self, directory: Path, pages: CommitPages, touched: TouchedMemory, limit: float) -> None:
        """Start it.

        The caller must be the only thread that does anything: the child goes on with Python code after fork(2). It uses
        nothing of the store but ``pages``, which the caller may close; SQLite would not outlive fork(2).

        Args:
            directory: the branch's; ``images`` in it is CRIU's work directory.
            touched: what branches of the commit touch first.
            limit: seconds to wait for its word.

        Raises:
            OSError: it cannot be started.
        """
        from relive.sandbox.lazy.daemon import serve_branch  # noqa: PLC0415 - imports numpy: only pages need it

        self._limit = limit
        self._log = directory / _LOG
        with contextlib.ExitStack() as stack:
            handover = stack.enter_context(Handover(directory / "images"))
            self._lifeline, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.enter_context(theirs)
            self._word, word = socket.socketpair()
            stack.enter_context(word)

            def held() -> None:
                with contextlib.suppress(OSError):  # whoever restores was killed: process 1 ends the branch
                    word.send(_HELD)
                word.close()

            self.pid = os.fork()
            if self.pid == 0:
                _become(
                    lambda: serve_branch(directory, pages, handover, Lifeline(theirs), held, touched),
                    self._log,
                    [handover.fileno(), theirs.fileno(), word.fileno(), *pages.descriptors()],
                )
        stat = procfs.read_stat(self.pid)
        self.started = stat.start_ticks if stat is not None else 0

    @property
    def lifeline(self) -> int:
        """Process 1's end of the lifeline; it is closed with this object."""
        return self._lifeline.fileno()

    def wait_until_held(self) -> None:
        """Wait until process 1 has duplicates of all userfaultfds, so that the processes may run.

        Raises:
            MemoryLost: it ended before, or did not come so far in time.
        """
        self._word.settimeout(self._limit)
        try:
            is_held = self._word.recv(1) == _HELD
        except TimeoutError:
            is_held = False
        if not is_held:
            raise MemoryLost(
                "the page daemon did not become ready",
                cause=self._last_line(),
                remedy="restore without --lazy, or run `relive doctor`",
            )

    def close(self) -> None:
        """Close what was open for it; it goes on. Doing it twice is no error."""
        self._word.close()
        self._lifeline.close()

    def abandon(self) -> None:
        """Give it up: it ends when process 1, which must be gone by now, and this object have closed the lifeline."""
        self.close()
        await_pager(self.pid, self.started)

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return lines[-1] if lines else "it said nothing"


def _become(work: Callable[[], None], log: Path, kept: list[int]) -> NoReturn:
    """Make this process, just forked, one that has nothing of the caller's, and let it do its work."""
    status = 70
    try:
        # Nothing of the caller is ever destroyed here: its objects would close descriptors that are others' by then.
        gc.freeze()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.chdir("/")
        standard_streams(None, log)
        begin = 3
        for descriptor in [*sorted(kept), os.sysconf("SC_OPEN_MAX")]:
            os.closerange(begin, descriptor)
            begin = descriptor + 1
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def await_pager(pid: int, started: int) -> None:
    """Wait until a page daemon has ended, whose process 1 is gone; one that does not end in 10 s is killed."""
    if procfs.is_same_process(pid, started):
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            if not has_ended(handle, _END_WITHIN):
                send_signal(handle, signal.SIGKILL)
            os.close(handle)
    with contextlib.suppress(ChildProcessError):  # it is the child of whoever restored the branch
        os.waitpid(pid, os.WNOHANG)
