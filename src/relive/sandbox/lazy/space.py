"""The memory of one process, filled in through its userfaultfd: what it touches at once, the rest from there on.

Events and copies are in step: the kernel refuses to fill a page in (EAGAIN) as long as an event that changed the memory has
not been read, so what is missing is always known when a page is placed.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Protocol

from relive.kernel.userfault import FaultEventKind, UserFault
from relive.sandbox.lazy.missing import Missing, Stretch
from relive.store.pages.page_reader import Content

__all__ = ["WINDOW", "LazyMemory", "ReadPages"]

WINDOW = 32  # [pages] brought in around one that is touched: neighbours are likely to be next
_STREAMED = 256  # [pages] at once while nobody waits; about as long as a fault may have to wait for its turn


class ReadPages(Protocol):
    """Gives the committed content of pages that follow each other; may raise StoreError.

    ``first`` is the address of the first at the time of the commit, in pages.
    """

    def read(self, first: int, pages: int) -> Content:
        """For somebody who waits for them."""

    def read_on(self, first: int, pages: int) -> Content | None:
        """For nobody yet: those behind them are likely to be next. None: they cannot be had for some milliseconds."""

    def rest(self) -> None:
        """All that was missing is there."""


class LazyMemory:
    """One process. Use it from one thread.

    Attributes:
        is_gone: the process has ended or become another program; there is nothing more to do.
        touched: what was waited for: the committed pages that windows began with, in order.
    """

    def __init__(self, fault: UserFault, missing: Missing, pages: ReadPages) -> None:
        """Takes ``fault`` over."""
        self.fault = fault
        self.missing = missing
        self.is_gone = False
        self.touched: list[int] = []
        self._pages = pages
        self._waiting: list[int] = []
        self._next = 0
        self._at_once = _STREAMED

    @property
    def is_waited_for(self) -> bool:
        """Threads wait for pages that could not be given at once; call ``attend`` again soon."""
        return bool(self._waiting)

    def close(self) -> None:
        """Give the userfaultfd up; nothing may be missing, or the process be gone."""
        self.fault.close()

    def attend(self, on_child: Callable[[LazyMemory], None]) -> None:
        """See what has happened and give what is waited for.

        Args:
            on_child: called with the memory of a child that was forked, before anything else: the child runs already.

        Raises:
            StoreError: pages cannot be read.
            OSError: the kernel does not take them.
        """
        for event in self.fault.events():
            match event.kind:
                case FaultEventKind.FAULT:
                    self._waiting.append(event.first)
                    self._at_once = WINDOW  # the next one shall not have to wait long
                case FaultEventKind.FORK:
                    on_child(LazyMemory(UserFault(event.child), self.missing.fork(), self._pages))
                case FaultEventKind.REMAP:
                    self.missing.move(event.first, event.destination, event.pages)
                    self.fault.wake(event.first, event.pages)
                case FaultEventKind.REMOVE:  # its pages read as zeros from now on
                    self.missing.drop(event.first, event.pages)
                case FaultEventKind.UNMAP:
                    self.missing.drop(event.first, event.pages)
                    self.fault.wake(event.first, event.pages)
        waiting, self._waiting = self._waiting, []
        self._waiting = [page for page in waiting if not self.is_gone and not self._give(page)]

    def give_early(self, first: int, content: Content) -> None:
        """Bring in a window before the process runs, as far as it is missing and the kernel takes it.

        Raises:
            OSError: as ``attend``.
        """
        stretch = self.missing.around(first, WINDOW)
        # Only where it lies as in the commit: what was moved has other pages there.
        if stretch is not None and (stretch.first, stretch.content, stretch.pages) == (
            first,
            first,
            len(content.pages),
        ):
            self._place(stretch, content)

    def stream(self) -> bool:
        """Bring in some pages that nobody waits for yet, those behind the last touched ones first; False: not now.

        Raises:
            StoreError, OSError: as ``attend``.
        """
        stretch = self.missing.after(self._next, self._at_once)
        if stretch is None:
            return True
        content = self._pages.read_on(stretch.content, stretch.pages)
        if content is None:
            return False
        refusal = self._place(stretch, content)
        if refusal == 0:
            self._at_once = min(2 * self._at_once, _STREAMED)
        elif refusal == errno.ENOENT and stretch.pages > 1:  # they reach over the border of two mappings
            self._at_once = max(1, stretch.pages // 2)
        elif refusal == errno.ENOENT:
            # Nothing is mapped here, or not the memory that was restored: nobody can ask.
            self.missing.drop(stretch.first, 1)
        if not self.missing.pages:
            self._pages.rest()
        return True

    def _give(self, page: int) -> bool:
        """Bring in a page that is waited for; False if that has to be tried again."""
        stretch = self.missing.around(page, WINDOW)
        if stretch is None:
            # It has never had any content, or has come in meanwhile (EEXIST).
            refusal = self.fault.zero(page)
        else:
            self.touched.append(stretch.content)
            refusal = self._place(stretch, self._pages.read(stretch.content, stretch.pages))
            if refusal == errno.ENOENT and stretch.pages > 1:
                stretch = stretch.part(page, page + 1)
                refusal = self._place(stretch, self._pages.read(stretch.content, stretch.pages))
        if refusal == errno.EAGAIN:
            return False
        if refusal == errno.ESRCH:
            self.is_gone = True
        elif refusal in (errno.ENOENT, errno.EEXIST):
            self.fault.wake(page, 1)
        return True

    def _place(self, stretch: Stretch, content: Content) -> int:
        """Fill missing pages in; returns 0 or why not all of them could be."""
        done, refusal = 0, 0
        while done < stretch.pages:
            copied = self.fault.copy(stretch.first + done, content.address(done), stretch.pages - done)
            done += copied.pages
            if copied.refusal == errno.EEXIST:
                done += 1
            elif copied.refusal and not copied.pages:
                refusal = copied.refusal
                self.is_gone = refusal == errno.ESRCH
                break
        self.missing.drop(stretch.first, done)
        self._next = stretch.first + done
        return refusal
