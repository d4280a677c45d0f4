"""Bringing the memory of a branch in: every process's userfaultfd, until nothing is missing in any of them."""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable, Mapping, Sequence

from relive.errors import MemoryLost
from relive.kernel.userfault import UserFault
from relive.sandbox.lazy.calm import FIRST, pause_before_rest
from relive.sandbox.lazy.handover import Handover
from relive.sandbox.lazy.keeper import DescriptorKeeper
from relive.sandbox.lazy.lifeline import Lifeline
from relive.sandbox.lazy.missing import Missing, Stretch
from relive.sandbox.lazy.space import WINDOW, LazyMemory
from relive.sandbox.lazy.touched import Touched
from relive.store.pages.page_reader import CommitPages, Content

__all__ = ["BranchGone", "PageServer"]


_NOT_NOW_MS = 2


class BranchGone(Exception):
    """Process 1 has ended, and with it the whole branch: there is nobody to bring memory to."""


class PageServer:
    """One branch. Use it from one thread.

    Attributes:
        total: pages that are missing in the beginning; present: those of them that are there.
    """

    def __init__(
        self, pages: CommitPages, handover: Handover, lifeline: Lifeline, keeper: DescriptorKeeper
    ) -> None:
        self._pages = pages
        self._handover = handover
        self._lifeline = lifeline
        self._keeper = keeper
        self._spaces: list[LazyMemory] = []  # who touched something last stands first
        self._restored: dict[int, LazyMemory] = {}  # by pid; not those forked since
        self._early: Mapping[int, list[tuple[int, Content]]] = {}
        self._touched: Touched | None = None
        self._began = self._waited = (
            0.0  # [s] monotonic: when the processes were let run, when somebody waited last
        )
        self._handed = 0  # pages of these
        self._poller = select.poll()
        self._poller.register(handover, select.POLLIN)
        self._poller.register(lifeline, select.POLLRDHUP)
        self._poller.register(keeper.descriptor, select.POLLIN)
        self.total = sum(length for one in pages.processes.values() for _, length in one.runs)

    @property
    def present(self) -> int:
        """Pages that are there."""
        return self._handed - sum(one.missing.pages for one in self._restored.values() if not one.is_gone)

    @property
    def touched(self) -> Touched:
        """What was waited for in the first moments, in order."""
        if self._touched is not None:
            return self._touched
        return {pid: list(space.touched) for pid, space in self._restored.items()}

    def read_early(self, touched: Touched) -> None:
        """Read what is likely to be touched first, to be filled in before the processes run; before ``serve``.

        Raises:
            StoreError: the memory cannot be read.
        """
        self._early = {
            pid: self._pages.processes[pid].gather(firsts, WINDOW)
            for pid, firsts in touched.items()
            if pid in self._pages.processes
        }

    def serve(self, on_held: Callable[[], None], on_progress: Callable[[], None]) -> None:
        """Return when all memory is there and process 1 has let it go.

        Args:
            on_held: called when process 1 has duplicates of all userfaultfds: the processes may run.
            on_progress: called often.

        Raises:
            BranchGone, HandoverBroken: there is nothing to do any more.
            StoreError: the memory cannot be read.
            OSError: the kernel does not take it.
            MemoryLost: the keeper was killed.
        """
        while not self._handover.is_finished:
            self._attend(None)
        self._give_early()
        self._hold(self._spaces)
        on_held()
        self._began = self._waited = time.monotonic()
        while space := self._next_to_stream():
            pause = self._pause()
            if pause > 0:
                self._attend(math.ceil(pause * 1000))
            else:
                self._attend(0 if space.stream() else _NOT_NOW_MS)
            on_progress()
        # Until then faults on pages that never were, and forks, have to be answered; afterwards the kernel does it.
        self._lifeline.release_branch()
        for space in self._spaces:
            space.close()

    def _give_early(self) -> None:
        early, self._early = self._early, {}
        for pid, windows in early.items():
            for first, content in windows if pid in self._restored else ():
                self._restored[pid].give_early(first, content)

    def _pause(self) -> float:
        now = time.monotonic()
        if self._touched is None and now - self._began >= FIRST:
            self._touched = self.touched
        return pause_before_rest(now - self._began, now - self._waited)

    def _next_to_stream(self) -> LazyMemory | None:
        """The first process of which something is missing, None when there is none."""
        return next((one for one in self._spaces if one.missing.pages or one.is_waited_for), None)

    def _attend(self, limit: int | None) -> None:
        """Answer everybody who waits; with ``limit`` None, wait until somebody does."""
        is_waited_for = any(one.is_waited_for for one in self._spaces)
        ready = {descriptor for descriptor, _ in self._poller.poll(0 if is_waited_for else limit)}
        if self._lifeline.fileno() in ready:
            raise BranchGone
        if self._keeper.descriptor in ready:
            raise MemoryLost("the page daemon's keeper was killed", remedy="restore the commit again")
        if not self._handover.is_finished and self._handover.fileno() in ready:
            self._accept_process()
        for space in list(self._spaces):
            if space.fault.descriptor in ready or space.is_waited_for:
                self._attend_to(space)

    def _attend_to(self, space: LazyMemory) -> None:
        self._spaces.remove(space)
        self._spaces.insert(0, space)
        self._waited = time.monotonic()
        space.attend(self._adopt_child)
        if space.is_gone:
            self._leave(space)

    def _hold(self, spaces: Sequence[LazyMemory]) -> None:
        try:
            self._lifeline.hold([one.fault.descriptor for one in spaces])
        except ConnectionError:
            raise BranchGone from None

    def _accept_process(self) -> None:
        before = self._handover.fileno()
        came = self._handover.receive()
        if came is None:
            self._poller.unregister(before)
            if not self._handover.is_finished:
                self._poller.register(self._handover, select.POLLIN)
            return
        pid, descriptor = came
        process = self._pages.processes.get(pid)
        # All of its memory may be there already; its faults on pages that never were have to be answered all the same.
        runs = process.runs if process is not None else []
        missing = Missing(Stretch(first, first + pages, first) for first, pages in runs)
        space = LazyMemory(UserFault(descriptor), missing, process if process is not None else _Nothing())
        self._restored[pid] = space
        self._handed += missing.pages
        self._adopt(space)

    def _adopt(self, space: LazyMemory) -> None:
        self._spaces.append(space)
        self._poller.register(space.fault.descriptor, select.POLLIN)

    def _adopt_child(self, child: LazyMemory) -> None:
        self._hold([child])
        self._adopt(child)

    def _leave(self, space: LazyMemory) -> None:
        self._poller.unregister(space.fault.descriptor)
        self._spaces.remove(space)
        space.close()


class _Nothing:
    """The pages of a process of which none can be missing."""

    def read(self, first: int, pages: int) -> Content:
        raise AssertionError(f"no page of this process can be missing, but {pages} from {first:#x} on are")

    read_on = read

    def rest(self) -> None:
        pass
