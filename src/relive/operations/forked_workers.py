"""Numbered work, done by a few forked processes at a time.

For what wants a process with one thread (CRIU, namespaces), and what the caller has made ready in its memory: a forked process has
that, too.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import BinaryIO, NoReturn, Self

from relive.kernel import libc

__all__ = ["ForkedWorkers", "end_with", "in_forked_workers"]

_PR_SET_PDEATHSIG = 1
_PATIENCE = 30.0  # [s] for a worker to take back what it is at


@dataclass(slots=True)
class _Worker:
    """A forked process: what it says are lines, each the answer to a number that it was given.

    Attributes:
        handle: of the process (pidfd_open(2)).
    """

    pid: int
    handle: int
    channel: socket.socket
    answers: BinaryIO
    number: int | None = None

    def answer(self) -> str | None:
        """Once it has said something, or ended; None: it has ended without an answer, whoever else has its channel open."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.channel, selectors.EVENT_READ)
            return _line(self) if selector.select(0) else None

    def give(self, number: int) -> None:
        self.number = number
        with contextlib.suppress(OSError):  # it has been killed: its answer does not come either
            self.channel.sendall(b"%d\n" % number)

    def end(self) -> str | None:
        """It ends by itself when nobody gives it work; what it is at, it takes back. Returns an answer that was on its way."""
        with contextlib.suppress(OSError):
            self.channel.shutdown(socket.SHUT_WR)
        try:
            if self.number is not None:
                signal.pidfd_send_signal(self.handle, signal.SIGTERM)
            with selectors.DefaultSelector() as selector:
                selector.register(self.handle, selectors.EVENT_READ)
                if not selector.select(_PATIENCE):
                    signal.pidfd_send_signal(self.handle, signal.SIGKILL)
        finally:
            os.close(self.handle)
        os.waitpid(self.pid, 0)
        with self.channel, self.answers:
            return self.answer() if self.number is not None else None


class ForkedWorkers:
    """Processes that are forked as they are needed, each at one number at a time. The caller must have one thread.

    A context manager: what is still being worked on at the end of the block is given up, and all workers have ended then.

    Args:
        at_once: workers, at most.
        work: called in a worker, for one number after the other; returns one line. What it raises kills its worker.
        take_back: called with a line that nobody was given: there, as the caller was killed, or here, at the end of the block.
        clear_up: called at the end of the block where a worker was given up or killed. What it had begun may be left, since what
            interrupts it can come in any moment, also in one in which it clears up itself.
    """

    def __init__(
        self,
        at_once: int,
        work: Callable[[int], str],
        take_back: Callable[[str], None],
        clear_up: Callable[[], None],
    ) -> None:
        self._at_once, self._work, self._take_back, self._clear_up = at_once, work, take_back, clear_up
        self._has_lost = False
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for worker in self._workers:
                self._has_lost |= worker.number is not None
                untold = worker.end()
                if untold is not None:
                    self._take_back(untold)
        finally:
            self._selector.close()
            if self._has_lost:
                self._clear_up()

    @property
    def busy(self) -> int:
        """Numbers that are being worked on."""
        return sum(worker.number is not None for worker in self._workers)

    @property
    def has_room(self) -> bool:
        """One more number can be given at once."""
        return self.busy < self._at_once

    def give(self, number: int) -> None:
        """Have a number worked on, by a worker that has nothing to do, or by a new one."""
        idle = next((worker for worker in self._workers if worker.number is None), None)
        (idle or self._begin()).give(number)

    def wait(self) -> Iterator[tuple[int, str | None]]:
        """Numbers with what was returned for them, at least one where any is worked on; None: its process was killed over it."""
        answered = False
        while not answered and self.busy:
            for worker in {id(key.data): key.data for key, _ in self._selector.select()}.values():
                number, line = worker.number, worker.answer()
                worker.number = None
                if line is None:
                    self._drop(worker)
                if number is not None:  # else it had nothing to do when it was killed
                    answered = True
                    yield number, line

    def _begin(self) -> _Worker:
        worker = _fork(self._workers, self._work, self._take_back)
        self._workers.append(worker)
        for source in (worker.channel, worker.handle):
            self._selector.register(source, selectors.EVENT_READ, worker)
        return worker

    def _drop(self, worker: _Worker) -> None:
        self._has_lost = True
        self._selector.unregister(worker.channel)
        self._selector.unregister(worker.handle)
        self._workers.remove(worker)
        worker.end()


def in_forked_workers(
    numbers: Iterable[int],
    at_once: int,
    work: Callable[[int], str],
    take_back: Callable[[str], None],
    clear_up: Callable[[], None],
) -> Generator[tuple[int, str | None], None, None]:
    """Each of ``numbers`` with what ``work`` returned for it, as they come; None: its process was killed over it.

    Who stops iterating before the end lets what is being worked on be given up. The rest is as of ``ForkedWorkers``.
    """
    left = deque(numbers)
    with ForkedWorkers(at_once, work, take_back, clear_up) as workers:
        while left or workers.busy:
            while left and workers.has_room:
                workers.give(left.popleft())
            yield from workers.wait()


def end_with(caller: int) -> None:
    """Have the kernel kill this process when its caller ends, however that does: the branch that it owns ends with it."""
    libc.call("prctl", _PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != caller:  # it has ended before
        os.kill(os.getpid(), signal.SIGKILL)


def _line(worker: _Worker) -> str | None:
    try:
        line = worker.answers.readline()
    except OSError:
        return None
    return line[:-1].decode() if line.endswith(b"\n") else None


def _fork(others: list[_Worker], work: Callable[[int], str], take_back: Callable[[str], None]) -> _Worker:
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        for other in others:  # else none of them would see that the caller is gone
            other.channel.close()
            other.answers.close()
            os.close(other.handle)
        _serve(theirs, work, take_back)
    theirs.close()
    ours.settimeout(_PATIENCE)  # for the rest of a line that was begun
    return _Worker(pid, os.pidfd_open(pid), ours, ours.makefile("rb"))


def _serve(channel: socket.socket, work: Callable[[int], str], take_back: Callable[[str], None]) -> NoReturn:
    status = 70
    try:
        gc.freeze()  # what is the caller's is never destroyed here
        signal.set_wakeup_fd(-1)
        for callers in (signal.SIGINT, signal.SIGHUP):  # he ends this one
            signal.signal(callers, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _give_up)
        with channel.makefile("rb") as asked:
            while number := asked.readline():
                line = work(int(number))
                try:
                    channel.sendall(line.encode() + b"\n")
                except OSError:
                    take_back(line)
                    break
        status = 0
    except BaseException:  # its caller is told by its end
        status = 71
    finally:
        os._exit(status)


def _give_up(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once: taking back must not be interrupted
    raise KeyboardInterrupt
