"""What a Python process said of itself, as values."""

from __future__ import annotations

from relive.model.value import Value

__all__ = [
    "BUCKETS",
    "PythonCensus",
    "PythonFrame",
    "PythonStacks",
    "PythonSums",
    "PythonTask",
    "PythonThread",
    "PythonValues",
    "PythonWait",
]


BUCKETS = 1 << 14  # sums, among which values are parted by their paths


class PythonFrame(Value):
    """A frame of a stack, innermost first in its list."""

    file: str
    line: int
    function: str
    locals: dict[str, str]


class PythonThread(Value):
    """``native``: the thread's number as the operating system has it; None where Python does not know it."""

    name: str
    native: int | None
    frames: list[PythonFrame]


class PythonTask(Value):
    """A task of asyncio that has not ended.

    Attributes:
        coroutines: from the outermost in, each with file and line; frames: the same with locals, innermost first.
        waits_for: the task, or kind of future, that it awaits; None: it can run.
        awaits: tasks whose ends it awaits: that one, or those of a ``gather``, a task group, a ``wait``.
    """

    name: str
    coroutines: list[str]
    frames: list[PythonFrame]
    waits_for: str | None
    awaits: list[str]


class PythonWait(Value):
    """A thread or task that waits for a lock that is held, or for a thread's end.

    Attributes:
        who: ``thread NAME`` or ``task NAME``.
        expression: what the lock is called where it is waited for; what: its representation.
        holders: who has it, as far as the source of what runs, or the lock, tells.
    """

    who: str
    expression: str
    what: str
    holders: list[str]


class PythonStacks(Value):
    """All threads and tasks of a process, who waits for whom, and its own modules' globals by module and name."""

    process: int
    threads: list[PythonThread]
    tasks: list[PythonTask]
    waits: list[PythonWait]
    globals: dict[str, dict[str, str]]
    ran_ms: int


class PythonValues(Value):
    """All that the service's own modules lead to: text by path; ``cut``: there is more."""

    process: int
    values: dict[str, str]
    cut: bool


class PythonSums(Value):
    """Sums over all values by their paths, ``BUCKETS`` of them: where two are equal so are the values; ``count``: values.

    ``is_whole``: all were summed, but for those that are too deep (``cut``).
    """

    process: int
    sums: list[int]
    count: int
    cut: bool
    is_whole: bool


class PythonCensus(Value):
    """How much of what a process holds.

    Attributes:
        types: number of objects and their bytes by type, without what they lead to.
        collections: by the path from one of the service's own modules: type, number of entries, bytes without those of the entries.
    """

    process: int
    types: dict[str, tuple[int, int]]
    collections: dict[str, tuple[str, int, int]]


class LargeObject(Value):
    """One of the objects that take most memory themselves.

    Attributes:
        size: bytes without what it leads to.
        count: entries; None where it is no collection.
        text: the beginning of its representation.
        held_by: the path from a module, or from a function that runs; None: none was found.
    """

    type: str
    size: int
    count: int | None
    text: str
    held_by: str | None


class HeldType(Value):
    """All objects of a type: how many, and their bytes without what they lead to; ``held_by`` as of a ``LargeObject``."""

    name: str
    count: int
    size: int
    held_by: str | None = None


class PythonObjects(Value):
    """What takes the memory of a process, as far as Python knows.

    Attributes:
        count, size: of all objects together.
        types: most bytes first; types_left_out: how many take less and were not told.
        objects: most bytes first.
    """

    process: int
    count: int
    size: int
    types: list[HeldType]
    types_left_out: int
    objects: list[LargeObject]
