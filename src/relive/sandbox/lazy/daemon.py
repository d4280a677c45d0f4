"""The page daemon, one process for each lazy branch, in the host's namespaces; it has one child, its keeper.

It is forked by ``pager``, with everything open that it needs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from relive.errors import MemoryLost, ReliveError
from relive.model.branch import MemoryFailure, MemoryState
from relive.sandbox.lazy.handover import Handover, HandoverBroken
from relive.sandbox.lazy.keeper import DescriptorKeeper
from relive.sandbox.lazy.lifeline import Lifeline
from relive.sandbox.lazy.server import BranchGone, PageServer
from relive.sandbox.lazy.state import pager_killed, write_failure, write_memory
from relive.sandbox.lazy.touched import Touched, TouchedMemory, learned
from relive.store.pages.page_reader import CommitPages

__all__ = ["serve_branch"]

_PROGRESS_EVERY = 0.1  # [s]


def serve_branch(
    directory: Path,
    pages: CommitPages,
    handover: Handover,
    lifeline: Lifeline,
    on_held: Callable[[], None],
    touched: TouchedMemory,
) -> None:
    """Bring one branch's memory in; returns when it is there, or the branch is gone.

    Args:
        directory: the branch's, for ``memory.json``.
        on_held: called when the processes may run.
        touched: what earlier branches of the commit touched first, and where to keep what this one does.
    """
    # Before there is any other thread: it is forked by a bare system call.
    keeper = DescriptorKeeper(lifeline, lambda: _note(directory, pager_killed()))
    server = PageServer(pages, handover, lifeline, keeper)
    progress = _Progress(directory, server)
    progress.write()
    known = touched.read()
    try:
        server.read_early(known)
        server.serve(on_held, progress.write_now_and_then)
        progress.write()
        _remember(touched, known, server)
    except (BranchGone, HandoverBroken):
        lifeline.hang_up()
        _remember(touched, known, server)
    except BaseException as error:
        _note(directory, _failure(error))
        lifeline.hang_up()
        if not isinstance(error, ReliveError):
            raise
    finally:
        keeper.dismiss()


def _remember(touched: TouchedMemory, known: Touched, server: PageServer) -> None:
    both = learned(known, server.touched)
    if both is not None:
        with contextlib.suppress(OSError):  # the next branch waits for its pages then
            touched.write(both)


class _Progress:
    """Keeps ``memory.json`` up to date."""

    def __init__(self, directory: Path, server: PageServer) -> None:
        self._directory = directory
        self._server = server
        self._written = 0.0

    def write_now_and_then(self) -> None:
        if time.monotonic() - self._written >= _PROGRESS_EVERY:
            self.write()

    def write(self) -> None:
        self._written = time.monotonic()
        with contextlib.suppress(OSError):  # a full disk is no reason to end the branch
            write_memory(self._directory, MemoryState(total=self._server.total, present=self._server.present))


def _note(directory: Path, failure: MemoryFailure) -> None:
    with contextlib.suppress(OSError):
        write_failure(directory, failure)


def _failure(error: BaseException) -> MemoryFailure:
    if isinstance(error, ReliveError):
        return MemoryFailure(code=error.code, message=error.message, cause=error.cause, remedy=error.remedy)
    return MemoryFailure(
        code=MemoryLost.code,
        message="the page daemon failed",
        cause=f"{type(error).__name__}: {error}",
        remedy="restore the commit again, without --lazy if it goes on failing",
    )
