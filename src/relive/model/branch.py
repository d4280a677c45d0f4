"""A branch as a value: one life of a commit in a sandbox."""

from __future__ import annotations

from enum import StrEnum

from relive.model.commit_id import CommitId
from relive.model.text import NativeText
from relive.model.value import Value

__all__ = [
    "BranchFacts",
    "Clients",
    "Clock",
    "MemoryFailure",
    "MemoryState",
    "MissingFile",
    "Publication",
    "unwritable_words",
]


class Clock(StrEnum):
    """What a branch sees as the wall clock; the monotonic clock always goes on from the commit."""

    RECORDED = "recorded"
    NOW = "now"


class Clients(StrEnum):
    """What becomes of connections that clients had: they stay open and say nothing, or are closed as by a crash."""

    KEEP = "keep"
    CLOSE = "close"


class Publication(Value):
    """A port of the branch that can be reached from the host.

    Attributes:
        forwarder: host pid of the process that carries the bytes; with ``forwarder_started`` it names it for good.
    """

    host: str
    host_port: int
    port: int
    forwarder: int
    forwarder_started: int = 0


class MissingFile(Value):
    """A path of which a branch sees what the host has, since what the commit saw is not kept.

    Attributes:
        reason: a clause, for people.
    """

    path: NativeText
    reason: str


class MemoryFailure(Value):
    """Why the memory of a lazy branch cannot come, in the words of the error tree."""

    code: str
    message: str
    cause: str | None
    remedy: str | None


class MemoryState(Value):
    """How far the memory of a lazy branch is there.

    Attributes:
        total: pages that the restored processes had to wait for; present: those of them that are there.
        failure: why the rest will not come; the branch is then being stopped.
    """

    total: int
    present: int
    failure: MemoryFailure | None = None

    @property
    def is_complete(self) -> bool:
        """Nothing is missing (any more)."""
        return self.present >= self.total

    @property
    def percent(self) -> int:
        """How much is there, rounded down."""
        return 100 * self.present // max(1, self.total) if self.total else 100


def unwritable_words(path: str) -> str:
    """What a branch says of one of its ``unwritable_databases``, in a sentence."""
    return (
        f"{path} cannot be written in the branch: its inode number is another one there, so SQLite says "
        "'attempt to write a readonly database' to who had it open (docs/limits.md)"
    )


class BranchFacts(Value):
    """What is written into the branch's ``state.json``.

    Attributes:
        init: host pid of the branch's process 1; with ``init_started`` (clock ticks after boot) it names it for good.
        root: host pid of the restored tree's root; with ``root_started`` it names it for good.
        groups: directories of its control groups.
        is_owned: it lives no longer than the process that restored it.
        restore_us: microseconds from the request to the running branch; seal_us: those of them in which it was proved that
            there is no way out.
        stubs: host pid of the process that answers its service; with ``stubs_started`` it names it for good.
        mark: given by whoever asked for it (``Settings.mark``).
        pager: host pid of the page daemon of a branch restored lazily; with ``pager_started`` it names it for good.
        missing_files: at most the first hundred of ``missing_count``.
        unwritable_databases: files of SQLite with a rollback journal that were open, and have another inode number in the
            branch: SQLite does not write to them.
        clients: what became of connections of clients.
        taken_wall_ns: when the commit was taken; 0 in branches of an older Relive.
        wants_stubs: what its service says to others is answered from the recording, where there is one, at this ``speed``.
        newer_pending: how many newer commits of its service were not durable yet, where the newest that is was restored.
        kept: of a branch just made, the commit that was made of it.
    """

    id: str
    commit: CommitId
    name: str
    init: int
    init_started: int
    root: int
    root_started: int = 0
    groups: list[str] = []
    clock: Clock
    created_wall_ns: int
    restore_us: int
    seal_us: int = 0
    is_owned: bool = False
    stubs: int | None = None
    stubs_started: int = 0
    pager: int | None = None
    pager_started: int = 0
    is_container: bool = False
    publications: list[Publication] = []
    mark: str | None = None
    missing_files: list[MissingFile] = []
    missing_count: int = 0
    unwritable_databases: list[NativeText] = []
    clients: Clients = Clients.KEEP
    taken_wall_ns: int = 0
    wants_stubs: bool = True
    speed: str = "1"
    newer_pending: int = 0
    kept: CommitId | None = None
