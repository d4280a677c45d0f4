"""What processes have mapped: devices, System V segments, memory of a kind of its own."""

from __future__ import annotations

from collections.abc import Iterator

from relive.check.finding import Finding
from relive.check.rules.making import IN_A_CAPSULE, blocks, note_finding
from relive.check.snapshot import Process, Snapshot
from relive.kernel.procfs import Mapping
from relive.model.commit import TargetKind

__all__ = ["GPU", "memory"]

GPU = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/accel/", "/dmabuf")
_HARMLESS_DEVICES = ("/dev/zero", "/dev/shm/")


def memory(seen: Snapshot) -> Iterator[Finding]:
    """Of each process; what several have mapped, of the first of them."""
    reported: set[str] = set()
    for process in seen.processes:
        for mapping in process.mappings:
            if mapping.path not in reported:
                reported.add(mapping.path)
                yield from _of_one(seen, process, mapping)
        if process.memory.huge:
            yield note_finding(
                "huge-pages",
                process,
                "memory of hugetlbfs",
                "a branch needs as many free huge pages (`/proc/sys/vm/nr_hugepages`), and has them at once, also with --lazy",
            )
        if process.memory.locked:
            yield note_finding(
                "locked-memory",
                process,
                "locked memory (mlock)",
                "a branch has it at once, also with --lazy, and needs that much memory free",
            )


def _of_one(seen: Snapshot, process: Process, mapping: Mapping) -> Iterator[Finding]:
    path = mapping.path
    subject = f"memory at {mapping.start:x} ({path})"
    if path.startswith(GPU):
        yield blocks(
            "gpu",
            process,
            subject,
            "it is memory of a GPU, whose state is in the device",
            "let the process that talks to the GPU be one of its own, which is not committed",
        )
    elif path.startswith("/dev/") and not path.startswith(_HARMLESS_DEVICES):
        yield blocks(
            "unsupported-file", process, subject, "it is memory of a device", "unmap it before a commit"
        )
    elif path.startswith("/SYSV") and process.spaces.get("ipc", 0) == seen.limits.spaces.get("ipc", 0):
        if seen.kind is TargetKind.PROCESS:
            yield blocks(
                "shared-memory-outside",
                process,
                subject,
                "System V shared memory lies in the host's IPC namespace, where other programs reach it too",
                f"{IN_A_CAPSULE}, which gives it an IPC namespace of its own",
            )
    elif path.startswith("/secretmem"):
        yield blocks(
            "unsupported-file",
            process,
            subject,
            "memory of memfd_secret(2) cannot be read by anybody else, and so not be saved",
            "turn the feature off that uses it",
        )
    elif path == "[uprobes]":
        yield blocks(
            "traced", process, subject, "a uprobe is set in it", "end perf, bpftrace or what else set it"
        )
    elif path.startswith("anon_inode:") and "io_uring" not in path:  # a ring is told of as a descriptor
        yield blocks(
            "unsupported-file",
            process,
            subject,
            "it is memory of the kernel's that CRIU cannot save",
            "turn the feature off that uses it",
        )
