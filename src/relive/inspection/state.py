"""The state of a commit as values: processes, threads, descriptors, memory regions, locks.

Sizes and offsets in bytes; addresses and registers as hexadecimal text, since JSON's numbers end at 2**53. Numbers of processes
and threads are those inside the target.
"""

from __future__ import annotations

from pydantic import Field

from relive.model.commit import CommitId
from relive.model.value import Value

__all__ = ["CommitState", "Descriptor", "FileLock", "ProcessState", "Region", "ThreadState", "Waiting"]


class ThreadState(Value):
    """A thread where it stood.

    Attributes:
        call: the system call that it was in, with its first arguments; None: in none that can be told.
        registers: by name; empty where the commit has none that are known here.
    """

    tid: int
    name: str
    call: str | None
    registers: dict[str, str]


class Descriptor(Value):
    """An open file of a process.

    Attributes:
        name: a path, an address, or what else tells it from others.
        offset: where it reads or writes next; None where there is no such thing.
        unread: bytes that have arrived and nobody has read; unsent: that were written and have not arrived.
        peer: who or what is at the other end, where it has one.
        shared_with: descriptors of other processes that are the same open file, with the same offset, as "PID:FD".
        watches: of an epoll, the descriptors it waits for.
    """

    fd: int
    kind: str
    name: str
    access: str = ""
    offset: int | None = None
    size: int | None = None
    state: str | None = None
    peer: str | None = None
    unread: int | None = None
    unsent: int | None = None
    shared_with: list[str] = Field(default=[])
    watches: list[int] = Field(default=[])


class Region(Value):
    """A mapping of a process.

    Attributes:
        name: the file, or what is there in brackets; empty for plain memory.
        stored: bytes of it that are in the commit; the rest is untouched, or as in the file.
        shared_with: processes that map the same shared memory.
    """

    start: str
    end: str
    permissions: str
    name: str
    size: int
    stored: int
    shared_with: list[int] = Field(default=[])


class FileLock(Value):
    """A lock on a file; ``length`` 0: to its end."""

    pid: int
    fd: int
    path: str
    kind: str
    mode: str
    start: int
    length: int


class Waiting(Value):
    """A thread that waits for what another one holds; ``holder``: its process, ``holder_thread``: None where a process holds it."""

    pid: int
    tid: int
    what: str
    holder: int
    holder_thread: int | None


class ProcessState(Value):
    """A process. ``environment`` is that with which it was started; what it set itself since is in its memory only."""

    pid: int
    parent: int
    group: int
    session: int
    name: str
    state: str
    uid: int
    command: list[str]
    environment: dict[str, str]
    executable: str
    directory: str
    threads: list[ThreadState]
    descriptors: list[Descriptor]
    regions: list[Region]
    mapped: int = Field(description="bytes of all regions")
    stored: int = Field(description="bytes of its memory that are in the commit")


class CommitState(Value):
    """All of a commit that can be seen without running it."""

    commit: CommitId
    target: str
    taken_wall_ns: int
    processes: list[ProcessState]
    locks: list[FileLock]
    waiting: list[Waiting]
    shared: int = Field(description="bytes of shared memory in the commit")
