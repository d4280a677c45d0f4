"""What a commit will cost, estimated from what there is to save; docs/check.md says from which measurements.

It is an estimate: the machine's load, the disk, and what the service writes between two commits decide. So each is a range.
"""

from __future__ import annotations

from relive.check.rules.files import SHARES_BLOCKS, copied_files
from relive.check.snapshot import Snapshot
from relive.model.commit import TargetKind
from relive.model.value import Value

__all__ = ["Estimate", "Range", "copied_ahead", "estimate", "pause_range"]

_MB = 1_000_000
# (least, most), as measured by benchmarks/check.py on two shared cores, quiet and busy; see docs/check.md.
_PAUSE_BASE_US = (4_000, 16_000)
_PAUSE_PROCESS_US = (1_000, 7_000)  # each further one
_PAUSE_THREAD_US = (30, 250)  # each further one
_PAUSE_DESCRIPTOR_US = (8, 40)
_PAUSE_MEMORY_US = (350, 1_200)  # each MB
# The least by benchmarks/pause.py with 5 GB; the most was not measured.
_PAUSE_AHEAD_US = (10, 60)  # each MB of private memory that is copied before the pause
_PAUSE_FILE_US = (400, 2_500)  # each MB of open files that a commit of a plain process copies
_FIRST_SHARE = (0.03, 1.0)  # of memory: numbered lines of text, and random bytes; most services a fifth
_FIRST_BASE = (20_000, 150_000)  # [bytes]
_LATER_BASE = (1_000, 60_000)  # [bytes] an idle service, and one under load with the recorder in it
_LATER_PROCESS = (1_000, 15_000)  # [bytes] each further one
_LATER_SHARE = (0.0, 0.03)  # of memory, written anew between two commits


class Range(Value):
    """From ``least`` to ``most``."""

    least: int
    most: int


class Estimate(Value):
    """What there is, and what it will cost.

    Attributes:
        memory, shared: bytes to be saved: private, and shared between processes.
        backed: bytes in memory that are not, since they are those of files.
        open_files: bytes of open files that each commit of a plain process copies, while it stands still.
        pause_us: microseconds for which the service stands still; the most, with the load that the host has now.
        first, later: bytes that the store grows by, compressed; later: of a further
            commit of a capsule or a watched container; those of a plain process are all first ones.
    """

    processes: int
    threads: int
    descriptors: int
    memory: int
    shared: int
    backed: int
    open_files: int
    pause_us: Range
    first: Range
    later: Range


def pause_range(
    *,
    processes: int,
    memory: int,
    ahead: int = 0,
    threads: int = 0,
    descriptors: int = 0,
    slow_files: int = 0,
) -> Range:
    """Microseconds for which a service stands still, on a quiet machine and on a busy one.

    Args:
        memory: bytes of private and shared memory in no file.
        ahead: bytes of these that are copied while the service runs (``Settings.pre_copy_from``).
        slow_files: bytes of open files that are copied meanwhile, where blocks cannot be shared.
    """

    def pause(end: int) -> int:
        return round(
            _PAUSE_BASE_US[end]
            + _PAUSE_PROCESS_US[end] * (processes - 1)
            + _PAUSE_THREAD_US[end] * max(0, threads - processes)
            + _PAUSE_DESCRIPTOR_US[end] * descriptors
            + _PAUSE_MEMORY_US[end] * (memory - ahead) / _MB
            + _PAUSE_AHEAD_US[end] * ahead / _MB
            + _PAUSE_FILE_US[end] * slow_files / _MB
        )

    return Range(least=pause(0), most=pause(1))


def copied_ahead(private: int, least: int | None) -> int:
    """How many bytes of private memory are copied while the service runs; ``least`` as of ``Settings.pre_copy_from``."""
    return private if least is not None and private >= least else 0


def estimate(seen: Snapshot) -> Estimate:
    """From what was seen."""
    private = sum(one.memory.private for one in seen.processes)
    shared = sum(one.memory.shared for one in seen.processes)
    threads = sum(one.threads for one in seen.processes)
    count = sum(len(one.descriptors) for one in seen.processes)
    copied = copied_files(seen) if seen.kind is TargetKind.PROCESS else []
    files = min(sum(one.size for one in copied), seen.limits.open_files)
    memory = private + shared
    kinds = {mount.kind for one in copied if (mount := seen.mounts.get(one.mount)) is not None}
    slow_files = files if kinds - SHARES_BLOCKS else 0

    pause = pause_range(
        processes=len(seen.processes),
        threads=threads,
        descriptors=count,
        memory=memory,
        ahead=copied_ahead(private, seen.limits.pre_copy_from),
        slow_files=slow_files,
    )
    busy = max(1.0, seen.limits.load)

    def first(end: int) -> int:
        return round(_FIRST_BASE[end] + _FIRST_SHARE[end] * memory + files)

    def later(end: int) -> int:
        return round(
            _LATER_BASE[end] + _LATER_PROCESS[end] * (len(seen.processes) - 1) + _LATER_SHARE[end] * memory
        )

    return Estimate(
        processes=len(seen.processes),
        threads=threads,
        descriptors=count,
        memory=private,
        shared=shared,
        backed=max((one.memory.backed for one in seen.processes), default=0),
        open_files=files,
        pause_us=Range(least=pause.least, most=round(pause.most * busy)),
        first=Range(least=first(0), most=first(1)),
        later=Range(least=later(0), most=later(1)),
    )
