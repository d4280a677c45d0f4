"""Operations that the dashboard was asked for: done apart, remembered for as long as it runs.

Streamlit runs a page's script anew for every click and in a thread of its own, so what takes longer than a click lives here, in
the process. Whoever opens a page sees the same jobs.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from relive.config import Settings
from relive.errors import Cancelled, ReliveError
from relive.operations.operation import Operation, Params
from relive.operations.subprocess_runner import perform_apart

__all__ = ["JOBS", "Job", "JobState", "Jobs"]

_MOST_ENDED = 50  # of a home that are remembered
_MOST_MESSAGES = 20  # sentences of one job


class JobState(StrEnum):
    """How far it is."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Job:
    """One operation, as it is now.

    Attributes:
        title: for people; subject: what it is about, "incident/17", by which pages find theirs.
        doing: the step, with done of total in unit ("steps" or "bytes"); total is 0 before the first.
        messages: sentences, the last ones.
        result, error: of one that is done, or has failed.
    """

    number: int
    operation: str
    title: str
    subject: str
    home: Path
    began: float
    state: JobState = JobState.RUNNING
    doing: str = ""
    done: int = 0
    total: int = 0
    unit: str = "steps"
    messages: tuple[str, ...] = ()
    seconds: float = 0.0
    result: BaseModel | None = None
    error: ReliveError | None = None

    @property
    def is_running(self) -> bool:
        """It has not ended."""
        return self.state is JobState.RUNNING


class Jobs:
    """All jobs of a process; safe in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._jobs: dict[int, Job] = {}
        self._cancels: dict[int, threading.Event] = {}

    def start(
        self, settings: Settings, operation: Operation[Any, Any], params: Params, *, title: str, subject: str
    ) -> int:
        """Begin one; returns its number."""
        cancel = threading.Event()
        with self._lock:
            number = next(self._numbers)
            self._jobs[number] = Job(
                number, operation.name, title, subject, settings.home, began=time.monotonic()
            )
            self._cancels[number] = cancel
            self._forget_old(settings.home)

        def perform() -> None:
            try:
                result = perform_apart(operation, settings, params, _JobProgress(self, number), cancel=cancel)
            except Cancelled:
                self._end(number, state=JobState.CANCELLED)
            except ReliveError as error:
                self._end(number, state=JobState.FAILED, error=error)
            except Exception as error:  # what nobody foresaw is shown, not lost with the thread
                failure = ReliveError(f"{title} could not be done", cause=repr(error))
                self._end(number, state=JobState.FAILED, error=failure)
            else:
                self._end(number, state=JobState.DONE, result=result)

        threading.Thread(target=perform, name=f"relive-job-{number}", daemon=True).start()
        return number

    def of(self, home: Path, subject: str | None = None) -> list[Job]:
        """Those of a home, about a subject where one is given, the newest first."""
        with self._lock:
            now = time.monotonic()
            return [
                replace(job, seconds=now - job.began) if job.is_running else job
                for job in reversed(self._jobs.values())
                if job.home == home and subject in (None, job.subject)
            ]

    def cancel(self, number: int) -> None:
        """Ask a job to take back what it does; nothing where it has ended."""
        with self._lock:
            if number in self._cancels:
                self._cancels[number].set()

    def forget(self, number: int) -> None:
        """Do not remember one that has ended."""
        with self._lock:
            if number in self._jobs and not self._jobs[number].is_running:
                del self._jobs[number]

    def _forget_old(self, home: Path) -> None:
        ended = [job.number for job in self._jobs.values() if job.home == home and not job.is_running]
        for number in ended[: max(0, len(ended) - _MOST_ENDED)]:
            del self._jobs[number]

    def _change(self, number: int, change: Callable[[Job], Job]) -> None:
        with self._lock:
            self._jobs[number] = change(self._jobs[number])

    def _end(self, number: int, **how: Any) -> None:
        with self._lock:
            job = self._jobs[number]
            self._jobs[number] = replace(job, seconds=time.monotonic() - job.began, **how)
            del self._cancels[number]


class _JobProgress:
    """A ``Progress`` that writes into the job."""

    def __init__(self, jobs: Jobs, number: int) -> None:
        self._jobs, self._number = jobs, number

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """As ``Progress``."""
        self._change(doing=what, done=0, total=total, unit="steps")
        yield lambda done: self._change(done=done)

    @contextmanager
    def transfer(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """As ``Progress``."""
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            self._change(done=done)

        self._change(doing=what, done=0, total=total, unit="bytes")
        yield advance

    def status(self, text: str) -> None:
        """As ``Progress``."""
        self._jobs._change(
            self._number, lambda job: replace(job, messages=(*job.messages, text)[-_MOST_MESSAGES:])
        )

    def _change(self, **what: Any) -> None:
        self._jobs._change(self._number, lambda job: replace(job, **what))


JOBS = Jobs()
