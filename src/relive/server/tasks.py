"""Durable tasks: what takes long is taken on, done by any server process on this ``$RELIVE_HOME``, and survives them all.

``Tasks`` is all that faces see. A task's row (``task_store``) is durable before ``submit`` returns; a thread hands it to DBOS
(``task_engine``), which gives it to a thread of one process when its turn comes; there the function of its kind runs in steps
(``task_context``). If that process dies, another one (or its successor) notices and begins the task again; it gives up a task in
which its servers have died five times.
"""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import structlog
from pydantic import BaseModel, ValidationError

from relive.config import Settings
from relive.errors import Cancelled, ReliveError, TaskError, TaskLost, UsageError
from relive.server.executors import dead_among, this_process
from relive.server.task import Task, TaskEvent, TaskFailure, TaskId, TaskPage, TaskState
from relive.server.task_context import LeftForAnother, TaskAttempt, TaskKind
from relive.server.task_engine import TaskEngine
from relive.server.task_store import Beginning, Superseded, TaskStore, cancelled

__all__ = ["PAGE_MOST", "Tasks"]

PAGE_MOST = 500
_DEATHS_MOST = 5
_KEPT = 10_000  # tasks that have ended
_TICK = 0.25  # [s] between two writes of progress, and two looks for tasks of processes that only submit
_BEAT = 1.0  # [s] between two signs of life, and two looks for dead processes
_CHECK = 10.0  # [s] between two looks for tasks that DBOS does not know of
_SWEEP = 30.0  # [s]
_EVENTS_POLL = 0.1  # [s]
_UNHELD_MOST = 5  # looks in a row that find this process having a task that no thread of it has


class Tasks:
    """The tasks of one ``$RELIVE_HOME``, and, once started, one of the processes that do them.

    All methods may be called from any thread; those that write wait for the disk, so an event loop calls them in a thread.
    """

    def __init__(self, settings: Settings, kinds: Iterable[TaskKind[Any, Any]]) -> None:
        self._kinds = {kind.name: kind for kind in kinds}
        self._waiting_most = settings.tasks_waiting
        self._store = TaskStore(settings.server)
        self._row = this_process()
        self._engine = TaskEngine(settings.server, self._row.id, self._run, most=settings.tasks)
        self._log = structlog.get_logger()
        self._changed = threading.Condition()
        # Held from taking news until they are written: else a task's end could come between, and they would be dropped.
        self._telling = threading.Lock()
        self._held: dict[TaskId, TaskAttempt | None] = {}  # None until it has begun
        self._is_leaving = False
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []
        self._unheld: dict[TaskId, int] = {}

    def start(self) -> None:
        """Begin to do tasks, also those that dead processes left. Takes a second, for DBOS."""
        self._store.beat(self._row)  # before it can have a task: what has one and no row is dead
        self._engine.start()
        for name, turn in (("tasks-news", self._news), ("tasks-handing", self._handing)):
            thread = threading.Thread(target=turn, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self, grace: float = 5.0) -> None:
        """Do no more tasks, and close. Those that run are left at their next step or word of progress, and go on elsewhere.

        What has not heeded that after ``grace`` seconds goes on until this process ends, and is then begun anew.
        """
        with self._changed:
            self._is_leaving = True
            for work in self._held.values():
                if work is not None:
                    work.leave()
            self._changed.wait_for(lambda: not self._held, grace)
            left = bool(self._held)
        self._ending.set()
        self._wake.set()
        for thread in self._threads:
            thread.join()
        self._engine.stop()
        if not left:
            self._store.remove_executor(self._row.id)
            self._store.close()

    def submit(self, kind: str, given: BaseModel, *, by: str, key: str | None = None) -> Task:
        """Take a task on; durable on return. It is begun by a started process, maybe this one.

        Args:
            by: who asks; key: his idempotency key. The same key with the same kind and input gives the task it gave before,
                for as long as that is kept (the newest 10,000 that have ended, and all others).

        Raises:
            UsageError: no such kind, or the input is another kind's.
            ReliveError: something that it names is not there (``TaskKind.look_up``).
            KeyReused: the key was given with something else.
            TasksFull: too many tasks wait.
            DiskFull: nothing was taken on.
        """
        known = self._kinds.get(kind)
        if known is None or not isinstance(given, known.input):
            raise UsageError(f"there is no task {kind!r} of {type(given).__name__}")
        # What a key gave before is given again, also where what it named has gone meanwhile.
        if known.look_up is not None and not (key is not None and self._store.has_key(by, key)):
            known.look_up(given)
        task, is_new = self._store.submit(
            kind, given.model_dump(mode="json"), by=by, key=key, waiting_most=self._waiting_most
        )
        if is_new:
            self._wake.set()
        return task

    def get(self, task_id: str) -> Task:
        """One task; raises TaskUnknown."""
        return self._store.get(task_id)

    def page(
        self,
        *,
        after: str | None = None,
        limit: int = 50,
        state: TaskState | None = None,
        kind: str | None = None,
    ) -> TaskPage:
        """Tasks, the newest first. ``after`` is ``next`` of the page before; raises UsageError where it is none.

        ``limit`` is at most ``PAGE_MOST``.
        """
        if not 0 < limit <= PAGE_MOST:
            raise UsageError(f"a page cannot have {limit} tasks", cause=f"it has 1 to {PAGE_MOST}")
        return self._store.page(after=after, limit=limit, state=state, kind=kind)

    def cancel(self, task_id: str) -> Task:
        """End a task that was not begun at once, one that runs at its next step or word of progress. Raises TaskUnknown.

        It may still succeed. One that has ended stays as it is.
        """
        return self._store.cancel(task_id)

    async def events(self, task_id: str, after: int = 0) -> AsyncIterator[TaskEvent]:
        """What happens to a task, from after the event ``after`` (0: from its begin) to its end, whichever process does it.

        Of progress only the newest is told, at most four times a second. Raises TaskUnknown.
        """
        while True:
            has_ended = self._store.has_ended(task_id)  # asked first: then all its events are there
            for event in self._store.events_after(task_id, after):
                after = event.id
                yield event
            if has_ended:
                return
            await asyncio.sleep(_EVENTS_POLL)

    # Doing them: threads of DBOS.

    def _run(self, task: TaskId) -> None:
        with self._changed:
            if self._is_leaving or task in self._held:
                raise LeftForAnother
            self._held[task] = None
        try:
            self._begin(task)
        finally:
            with self._changed:
                del self._held[task]
                self._changed.notify_all()

    def _begin(self, task: TaskId) -> None:
        beginning = self._begun(task)
        if beginning is None:
            return
        work = TaskAttempt(self._store, task, beginning.task.kind, beginning.attempt, beginning.task.by)
        with self._changed:
            self._held[task] = work
            if self._is_leaving:
                work.leave()
        try:
            state, result, failure = self._outcome(beginning, work)
            work.persist(lambda: self._store_end(work, state, result, failure))
        except Superseded:
            self._log.warning("task superseded", task=task, attempt=beginning.attempt)
            raise LeftForAnother from None
        except LeftForAnother:
            self._hand_back(task, beginning.attempt)
            raise

    def _begun(self, task: TaskId) -> Beginning | None:
        while True:
            try:
                return self._store.begin(task)
            except ReliveError as error:
                self._log.error("task not begun", task=task, error=error.as_json())
            if self._ending.wait(_BEAT):
                raise LeftForAnother

    def _hand_back(self, task: TaskId, attempt: int) -> None:
        try:
            self._store.hand_back(task, attempt)
        except Superseded:
            return
        except ReliveError as error:
            # It stays as one that runs, and is begun again as if this process had died.
            self._log.error("task not handed back", task=task, error=error.as_json())

    def _outcome(
        self, beginning: Beginning, work: TaskAttempt
    ) -> tuple[TaskState, dict[str, Any] | None, TaskFailure | None]:
        task = beginning.task
        try:
            result = self._do(beginning, work)
        except Cancelled:
            return TaskState.CANCELLED, None, cancelled(task.id, task.kind)
        except ReliveError as error:
            return TaskState.FAILED, None, TaskFailure.model_validate(error.as_json())
        except Superseded:
            raise
        except Exception as error:
            # As text: a log that draws tracebacks with their variables would show inputs.
            self._log.error("task failed", task=task.id, kind=task.kind, traceback=traceback.format_exc())
            failure = ReliveError(
                f"the task {task.kind} failed by an error of Relive's own",
                cause=f"{type(error).__name__}: {error}",
                remedy="the server's log tells where",
            )
            return TaskState.FAILED, None, TaskFailure.model_validate(failure.as_json())
        return TaskState.SUCCEEDED, result.model_dump(mode="json"), None

    def _do(self, beginning: Beginning, work: TaskAttempt) -> BaseModel:
        task = beginning.task
        kind = self._kinds.get(task.kind)
        if kind is None:
            raise TaskError(
                f"the task {task.kind} cannot be done",
                cause="it was taken on by a server of another version; this one does not know it",
                remedy="start a server of that version, and ask again",
            )
        try:
            given = kind.input.model_validate(task.input)
        except (ValidationError, UsageError) as error:
            raise TaskError(
                f"the task {task.kind} cannot be done",
                cause=f"it was taken on by a server of another version; here its input is wrong: {error}",
                remedy="ask again",
            ) from error
        self._end_leftovers(kind, given, beginning, work)
        try:
            result: BaseModel = kind.run(work, given)
        except Superseded:
            raise
        except Exception:
            # It ends for good: nothing that carries its id may stay behind, should its process have died over it.
            if kind.leftovers is not None:
                with work.uninterrupted():
                    kind.leftovers(work, given)
            raise
        return result

    def _end_leftovers(
        self, kind: TaskKind[Any, Any], given: BaseModel, beginning: Beginning, work: TaskAttempt
    ) -> None:
        """End what earlier attempts left; raises TaskLost or Cancelled where nothing else is to be done."""
        if beginning.attempt > 1 and beginning.deaths <= _DEATHS_MOST and kind.leftovers is not None:
            with work.uninterrupted():
                kind.leftovers(work, given)
        if beginning.deaths >= _DEATHS_MOST:
            raise TaskLost(
                f"the task {kind.name} was given up",
                cause=f"its server died {beginning.deaths} times while it was done",
                remedy="the server's log and the kernel's (`dmesg`) tell why; ask again when that is mended",
            )
        if beginning.cancelling:
            raise Cancelled(f"the task {kind.name} was cancelled")

    # Telling how they are: a thread.

    def _news(self) -> None:
        next_beat = 0.0
        while not self._ending.wait(_TICK):
            now = time.monotonic()
            self._guarded(self._store_news)
            self._guarded(self._hear_of_cancels)
            if now >= next_beat:
                next_beat = now + _BEAT
                self._guarded(self._beat)

    def _works(self) -> list[TaskAttempt]:
        with self._changed:
            return [work for work in self._held.values() if work is not None]

    def _store_end(
        self, work: TaskAttempt, state: TaskState, result: dict[str, Any] | None, failure: TaskFailure | None
    ) -> None:
        with self._telling:
            self._store.end(work.news(), state, result=result, failure=failure)

    def _store_news(self) -> None:
        with self._telling:
            news = [work.news() for work in self._works()]
            news = [one for one in news if one.progress is not None or one.messages]
            if news:
                self._store.publish(news)

    def _hear_of_cancels(self) -> None:
        works = {work.task: work for work in self._works()}
        if works:
            for task in self._store.cancelling_among(works):
                works[task].cancel()

    def _beat(self) -> None:
        self._store.beat(self._row.alive())

    # Handing them out: a thread.

    def _handing(self) -> None:
        turns: list[tuple[float, Callable[[], None]]] = [
            (_BEAT, self._claim_orphans),
            (_CHECK, self._find_unknown),
            (_SWEEP, self._sweep),
        ]
        due = [0.0] * len(turns)
        self._wake.set()
        while True:
            self._wake.wait(_TICK)
            self._wake.clear()
            if self._ending.is_set():
                return
            self._guarded(self._hand_out)
            for number, (pause, turn) in enumerate(turns):
                if time.monotonic() >= due[number]:
                    self._guarded(turn)
                    due[number] = time.monotonic() + pause

    def _hand_out(self) -> None:
        waiting = self._store.unhanded()
        for task in waiting:
            self._engine.hand_out(task)
            self._store.set_handed([task], handed=True)

    def _claim_orphans(self) -> None:
        """Let tasks go on that dead processes have."""
        with self._engine.alone() as alone:
            if not alone:
                return
            # In this order: whoever has a task wrote his row before.
            running = self._engine.running()
            rows = self._store.executors()
            dead = {row.id for row in dead_among(rows)}
            living = {row.id for row in rows} - dead
            left = [task for task, executor in running if executor not in living]
            left += self._unheld_among([task for task, executor in running if executor == self._row.id])
            ended = self._store.ended_among(left)
            self._engine.withdraw(ended)
            again = [task for task in left if task not in ended]
            self._engine.hand_out_again(again)
            if again:
                self._log.info("tasks taken over", tasks=again, dead=sorted(dead))
            for executor in dead:
                self._store.remove_executor(executor)

    def _unheld_among(self, own: list[TaskId]) -> list[TaskId]:
        """Tasks that this process has, as DBOS believes, but no thread of it: DBOS could not write that they are done."""
        with self._changed:
            unheld = [task for task in own if task not in self._held]
        # One that was taken this moment has no thread yet.
        self._unheld = {task: self._unheld.get(task, 0) + 1 for task in unheld}
        return [task for task, times in self._unheld.items() if times >= _UNHELD_MOST]

    def _find_unknown(self) -> None:
        """Hand tasks out anew that DBOS does not know (any more), or has as done: its file was lost or is older."""
        unknown = self._engine.unknown_among(self._store.open_tasks())
        # The store knows of an end before DBOS does, so what is open still is not merely done in between.
        lost = set(unknown).intersection(self._store.open_tasks())
        if lost:
            self._log.warning("tasks that DBOS does not know", tasks=sorted(lost))
            self._engine.withdraw(lost)
            self._store.set_handed(lost, handed=False)

    def _sweep(self) -> None:
        self._engine.sweep()
        self._store.forget_old(_KEPT)

    def _guarded(self, turn: Callable[[], None]) -> None:
        """What fails is tried again at the next turn: these threads must not end."""
        try:
            turn()
        except ReliveError as error:
            self._log.error("tasks", turn=turn.__name__, error=error.as_json())
        except Exception:
            self._log.error("tasks", turn=turn.__name__, traceback=traceback.format_exc())
