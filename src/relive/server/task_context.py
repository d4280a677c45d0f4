"""What the function of a task is given: its steps, which are done once, and its progress; and what a kind of tasks is.

A server may be killed between any two instructions. Its task is then begun again from the start, elsewhere or after a restart, and:

1. A step whose value was noted is not done again; its value is given.
2. A step that was *announced* but not noted may have been done, in part or whole. Its ``found`` looks for what it would have made,
   by marks that carry the task's id, and gives it if it is there; else the step is done (again).
3. What the dead one may have left half done beside that, ``TaskKind.leftovers`` ends before anything else.

Steps are known by their key, not by their place, so a task that a server of other code began goes on where its keys are the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, TypeAdapter

from relive.errors import Cancelled, ReliveError
from relive.server.task import TaskId, TaskProgress
from relive.server.task_store import News, TaskStore

__all__ = ["LeftForAnother", "TaskAttempt", "TaskKind", "never_done"]

I_ = TypeVar("I_", bound=BaseModel)
R_ = TypeVar("R_", bound=BaseModel)
V = TypeVar("V")


class LeftForAnother(BaseException):
    """The server stops: the task is left as it stands, and goes on in another or after the restart.

    No ``Exception``, so that neither an operation nor DBOS takes it for the end of the task.
    """


def never_done() -> None:
    """The ``found`` of a step that does no harm when it is done twice."""


@dataclass(frozen=True, slots=True)
class TaskKind(Generic[I_, R_]):
    """Something the server does as a task.

    Attributes:
        name: in kebab-case, unique.
        run: does it, in a thread; what changes anything outside the task is done in ``TaskAttempt.step``. It runs again from its
            start if the server dies in it. Raises ReliveError.
        leftovers: called before that, and where such a task was cancelled meanwhile instead of it: ends what an earlier run may
            have left (branches, half-written files), all of which carry the task's id. May be called more than once.
        look_up: called before it is taken on, in any thread; raises ReliveError where something that it names is not there.
    """

    name: str
    input: type[I_]
    result: type[R_]
    run: Callable[[TaskAttempt, I_], R_]
    leftovers: Callable[[TaskAttempt, I_], None] | None = None
    look_up: Callable[[I_], None] | None = None


class TaskAttempt:
    """One attempt at a task. Its progress is an ``operations.progress.Progress``, and may be told from any thread.

    Every call of it raises Cancelled once the task is cancelled, and LeftForAnother once the server stops.

    Attributes:
        task: the task's id, which marks all that it makes.
        by: who asked for it.
        attempt: 1 the first time.
        to_end: set when ``check`` would raise, for work that says nothing of its progress.
    """

    def __init__(self, store: TaskStore, task: TaskId, kind: str, attempt: int, by: str) -> None:
        self.task = task
        self.attempt = attempt
        self.by = by
        self._kind = kind
        self._store = store
        self._lock = threading.Lock()
        self._progress: TaskProgress | None = None
        self._messages: list[str] = []
        self._cancelled = threading.Event()
        self._leaving = threading.Event()
        self.to_end = threading.Event()
        self._is_kept = False

    def step(self, key: str, act: Callable[[], V], *, result: type[V], found: Callable[[], V | None]) -> V:
        """Do something once, however often the server dies; the value of that one time.

        ``found`` is only called if an earlier attempt began the step and its end was not noted; it returns what that made, or
        None if it made nothing (``never_done`` where twice does no harm). ``result`` is what pydantic can write as JSON and read.

        Raises:
            DiskFull: the step could not be announced; it was not begun.
            Superseded: another server has the task now; the step was not begun, or its value was not noted.
        """
        self.check()
        adapter = TypeAdapter[V](result)
        announced, known = self._store.announce(self.task, self.attempt, key)
        if known is not None:
            return adapter.validate_json(known)
        value = found() if announced else None
        if value is None:
            value = act()
        text = adapter.dump_json(value).decode()
        self.persist(lambda: self._store.note_done(self.task, self.attempt, key, text))
        return value

    def note(self, key: str, value: str) -> None:
        """Keep something for later attempts; durable on return. Raises DiskFull, Superseded."""
        self._store.note_done(self.task, self.attempt, key, value)

    def noted(self, key: str) -> str | None:
        """What this attempt or an earlier one noted last; None if that is nothing."""
        return self._store.effect(self.task, key)

    def persist(self, write: Callable[[], None]) -> None:
        """Write what must not be lost: while the disk is full it waits for room, and is left for another at a stop."""
        waited = False
        while True:
            try:
                return write()
            except ReliveError as error:
                if error.code not in ("disk-full", "store-busy"):
                    raise
                if not waited:
                    waited = True
                    self.status(f"{error.message}; waiting for room")
            if self._leaving.wait(_ROOM_POLL):
                raise LeftForAnother

    def check(self) -> None:
        """Raise if the task is to end here (see the class)."""
        if self._is_kept:
            return
        if self._leaving.is_set():
            raise LeftForAnother
        if self._cancelled.is_set():
            raise Cancelled(f"the task {self._kind} was cancelled", cause=f"its id is {self.task}")

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Work of ``total`` steps begins; the block calls what it gets with the number of steps done so far."""
        yield lambda done: self._is_at(TaskProgress(what=what, done=done, total=total, unit="steps"))

    @contextmanager
    def transfer(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """``total`` bytes begin to travel; the block calls what it gets with each number of bytes that has."""
        travelled = 0

        def more(size: int) -> None:
            nonlocal travelled
            travelled += size
            self._is_at(TaskProgress(what=what, done=travelled, total=total, unit="bytes"))

        yield more

    def status(self, text: str) -> None:
        """Tell a sentence."""
        with self._lock:
            self._messages.append(text)

    def _is_at(self, progress: TaskProgress) -> None:
        with self._lock:
            self._progress = progress
        self.check()

    def news(self) -> News:
        """What was told since the last call."""
        with self._lock:
            news = News(self.task, self.attempt, self._progress, tuple(self._messages))
            self._progress = None
            self._messages = []
        return news

    def cancel(self) -> None:
        """Let it end soon."""
        self._cancelled.set()
        self.to_end.set()

    def leave(self) -> None:
        """Let it be left for another server soon."""
        self._leaving.set()
        self.to_end.set()

    @contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """Within the block it is neither cancelled nor left: what is done is tidying up."""
        self._is_kept = True
        try:
            yield
        finally:
            self._is_kept = False


_ROOM_POLL = 0.5  # [s] between two attempts to write on a full disk
