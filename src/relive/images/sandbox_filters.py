"""The filter of system calls that hold for all of a branch (``kernel.sandboxcalls``), put behind those of the commit's threads."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from relive.images import criu_images_pb2 as pb
from relive.images.filter_answers import allows
from relive.images.image_file import read_entries, write_entries
from relive.images.validation import threads_of, untrusted
from relive.kernel.sandboxcalls import SANDBOX_FILTER

__all__ = ["limit_calls"]

_STRICT_MODE, _FILTER_MODE = 1, 2  # SECCOMP_MODE_*
_TO_ALL_THREADS = 1  # SECCOMP_FILTER_FLAG_TSYNC
# What its restorer may call behind seccomp(2), and more: read, write, close, mmap, mprotect, munmap, brk, rt_sigaction,
# rt_sigprocmask, rt_sigreturn, sched_yield, dup, getpid, exit, wait4, fcntl, prctl, arch_prctl, gettid, futex, clock_nanosleep,
# exit_group, rseq.
_CRIU_WORK = (0, 1, 3, 9, 10, 11, 12, 13, 14, 15, 24, 32, 39, 60, 61, 72, 157, 158, 186, 202, 230, 231, 334)
_HEADER = struct.pack("<II", 0x54564319, 0x64413049)  # of seccomp.img


def limit_calls(images: Path, processes: Iterable[pb.PstreeEntry]) -> bool:
    """Put the filter behind those of every thread of a commit laid out in ``images``.

    Returns:
        Whether CRIU may restore it from under a filter. CRIU suspends filters while restored threads still do its work
        (PTRACE_O_SUSPEND_SECCOMP), which the kernel denies to one that is under a filter itself. Theirs have to allow it then.

    Raises:
        ObjectCorrupt: an image is damaged.
    """
    path = images / "seccomp.img"
    if not path.exists():
        path.write_bytes(_HEADER)
    found = read_entries(path, pb.SeccompEntry)
    filters = found[0] if found else pb.SeccompEntry()
    lets_work = all(allows(one.filter, number) for one in filters.seccomp_filters for number in _CRIU_WORK)
    limiting = _Limiting(filters)
    for process in processes:
        for thread in threads_of(process):
            core = images / f"core-{thread}.img"
            if not core.exists():
                continue
            entries = read_entries(core, pb.CoreEntry)
            limited = [limiting.limit(entry, is_leader=thread == process.pid) for entry in entries]
            if any(limited):
                write_entries(core, entries)
    write_entries(path, [filters])
    return lets_work and not limiting.has_strict


class _Limiting:
    """Threads that had the same filters share the new one too.

    Where all threads of a process have the same filters, CRIU writes them down for the first thread only, and has it give them to
    all (SECCOMP_FILTER_FLAG_TSYNC). So the others must be left as they are: with a filter of their own, the kernel would give them
    none, and CRIU would not notice (seccomp(2) returns the number of the thread that stood in the way).
    """

    def __init__(self, filters: pb.SeccompEntry) -> None:
        self._filters = filters
        self._last_of: dict[int | None, int] = {}  # the new one's place by that of the last one before
        self._is_shared = False
        self.has_strict = False  # a thread that may do nothing but read and write, and gets that mode only where it has no filter

    def limit(self, entry: pb.CoreEntry, *, is_leader: bool) -> bool:
        """Whether the thread's entry has changed; the first thread of a process comes before its others."""
        thread = entry.thread_core
        self.has_strict |= entry.HasField("thread_core") and thread.seccomp_mode == _STRICT_MODE
        if not entry.HasField("thread_core") or thread.seccomp_mode == _STRICT_MODE:
            return False  # a dead process; or such a thread
        if thread.seccomp_mode not in (0, _FILTER_MODE):
            raise untrusted(
                "holds a thread without a filter of system calls", f"mode {thread.seccomp_mode} is none"
            )
        is_filtered = thread.seccomp_mode == _FILTER_MODE
        # Without the mode the number means nothing, though CRIU writes one.
        before = thread.seccomp_filter if is_filtered and thread.HasField("seccomp_filter") else None
        if is_leader:
            self._is_shared = self._gives_to_all(before)
        elif self._is_shared:
            if is_filtered:  # the kernel would then give none of them the leader's
                raise untrusted(
                    "holds a thread that keeps filters of system calls away", "no dump has such a one"
                )
            return False
        if before not in self._last_of:
            self._last_of[before] = len(self._filters.seccomp_filters)
            flags = _TO_ALL_THREADS if self._is_shared else None
            self._filters.seccomp_filters.append(
                pb.SeccompFilter(filter=SANDBOX_FILTER, prev=before, flags=flags)
            )
        thread.seccomp_mode, thread.seccomp_filter = _FILTER_MODE, self._last_of[before]
        return True

    def _gives_to_all(self, last: int | None) -> bool:
        found, steps = self._filters.seccomp_filters, 0
        while last is not None and last < len(found) and steps <= len(found):
            if found[last].flags & _TO_ALL_THREADS:
                return True
            last, steps = (found[last].prev if found[last].HasField("prev") else None), steps + 1
        return False
