"""What would have each commit be a full one, though micro-commits are wanted; docs/micro-commits.md lists what is checked."""

from __future__ import annotations

import stat
from collections.abc import Iterator

from relive.check.finding import Finding
from relive.check.rules.making import note_finding
from relive.check.snapshot import HeldDescriptor, Process, Snapshot
from relive.kernel.procfs import Mapping
from relive.model.commit import TargetKind

__all__ = ["micro"]

_TREE_MOST = 64  # processes, as of ``native/micro/tree.h``
_MEMORY = {
    "/memfd:": "shared memory of memfd_create(2)",
    "/[aio]": "a ring of Linux AIO",
    "/anon_hugepage": "huge pages of a pool",
}
_DESCRIPTORS = {
    "/memfd:": "a file of memfd_create(2)",
    "anon_inode:[userfaultfd]": "a userfaultfd of its own",
}


def micro(seen: Snapshot) -> Iterator[Finding]:
    """One finding, of the first process that has such a thing; it says all of them. Only capsules have micro-commits."""
    if seen.kind is not TargetKind.CAPSULE:
        return
    found: dict[str, Process] = {}
    for process in seen.processes:
        for what in _things(process):
            found.setdefault(what, process)
    if len(seen.processes) > _TREE_MOST:
        found.setdefault(f"more than {_TREE_MOST} processes", seen.root)
    if found:
        yield note_finding(
            "full-commits-only",
            next(iter(found.values())),
            ", ".join(found),
            "a micro-commit cannot follow that: each commit is a full one, however often it is committed",
        )


def _things(process: Process) -> Iterator[str]:
    for mapping in process.mappings:
        yield from _shared_memory(mapping)
    for held in process.descriptors:
        yield from (what for begin, what in _DESCRIPTORS.items() if held.target.startswith(begin))
        if _is_terminal(held):
            yield f"a terminal ({held.target})"


def _shared_memory(mapping: Mapping) -> Iterator[str]:
    if not mapping.permissions.endswith("s"):
        return
    yield from (what for begin, what in _MEMORY.items() if mapping.path.startswith(begin))
    if mapping.path.startswith("/dev/shm/") and mapping.path.endswith(" (deleted)"):
        yield "shared memory in a file without a name (a POSIX semaphore, multiprocessing)"


def _is_terminal(held: HeldDescriptor) -> bool:
    return stat.S_ISCHR(held.mode) and held.target.startswith(("/dev/pts/", "/dev/tty", "/dev/console"))
