"""Timing parts of Relive without changing it: functions are replaced by ones that note when they began and ended.

Notes go to an anonymous file, so that those of forked processes (the agent, process 1 of a branch) arrive as well. A
function that is no longer where a benchmark expects it is reported once and its row left out, since the parts move more
often than the whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib
import inspect
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Note", "Part", "Stopwatch"]


@dataclass(frozen=True, slots=True)
class Note:
    """One call: label, and nanoseconds of the monotonic clock."""

    label: str
    began: int
    ended: int

    @property
    def ms(self) -> float:
        """How long it took."""
        return (self.ended - self.began) / 1e6


@dataclass(frozen=True, slots=True)
class Part:
    """A function to time: ``where`` is "module:name" or "module:Class.name"; ``label`` a text or made of the arguments."""

    where: str
    label: str | Callable[..., str]


class Stopwatch:
    """Collects notes of this process and of those forked after it was made."""

    def __init__(self) -> None:
        self._file = os.memfd_create("stopwatch")
        fcntl.fcntl(self._file, fcntl.F_SETFL, os.O_APPEND)

    def watch(self, parts: list[Part]) -> None:
        """Time these functions from now on, in this process and its later children."""
        for part in parts:
            module, _, path = part.where.partition(":")
            *owners, name = path.split(".")
            try:
                owner: Any = importlib.import_module(module)
                for step in owners:
                    owner = getattr(owner, step)
                function = inspect.getattr_static(owner, name)
            except (ImportError, AttributeError):
                print(f"note: {part.where} is no more; its part is not shown", file=sys.stderr)
                continue
            if isinstance(function, staticmethod):
                setattr(owner, name, staticmethod(self._timed(function.__func__, part.label)))
            else:
                setattr(owner, name, self._timed(function, part.label))

    def _timed(self, function: Callable[..., Any], label: str | Callable[..., str]) -> Callable[..., Any]:
        def note(began: int, args: tuple[Any, ...]) -> None:
            text = label if isinstance(label, str) else label(*args)
            line = f"{began} {time.monotonic_ns()} {text}\n"
            with contextlib.suppress(OSError):  # a process that has closed what it inherited
                os.write(self._file, line.encode())

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def timed_async(*args: Any, **keywords: Any) -> Any:
                began = time.monotonic_ns()
                try:
                    return await function(*args, **keywords)
                finally:
                    note(began, args)

            return timed_async

        @functools.wraps(function)
        def timed(*args: Any, **keywords: Any) -> Any:
            began = time.monotonic_ns()
            try:
                return function(*args, **keywords)
            finally:
                note(began, args)

        return timed

    def take(self) -> list[Note]:
        """The notes since the last call, in order of their ends."""
        size = os.fstat(self._file).st_size
        data = os.pread(self._file, size, 0).decode()
        os.ftruncate(self._file, 0)
        notes = []
        for line in data.splitlines():
            began, ended, label = line.split(" ", 2)
            notes.append(Note(label, int(began), int(ended)))
        return notes
