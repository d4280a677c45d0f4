"""The address space of a committed process: its mappings, and reading bytes of it by their address."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from relive.images import criu_images_pb2 as pb
from relive.store.pages.commit_memory import CommitMemory
from relive.store.pages.runs import PageFile
from relive.store.pages.size import PAGE

__all__ = [
    "ANON_SHARED",
    "AddressSpace",
    "MappedFiles",
    "PageRuns",
    "key_of_process",
    "key_of_shared",
    "permissions",
    "plain_text",
    "region_name",
]

# VMA_* of criu/include/image.h
_STACK, _VSYSCALL, _VDSO, _HEAP = 1 << 1, 1 << 2, 1 << 3, 1 << 5
_FILE_PRIVATE, _FILE_SHARED, ANON_SHARED = 1 << 6, 1 << 7, 1 << 8
_SYSV, _VVAR, _AIO_RING, _MEMFD = 1 << 10, 1 << 12, 1 << 13, 1 << 14
_MAP_SHARED = 1
_NAMELESS = "/dev/zero"
_NAMES: Final = (
    (_HEAP, "[heap]"),
    (_STACK, "[stack]"),
    (_VDSO, "[vdso]"),
    (_VVAR, "[vvar]"),
    (_VSYSCALL, "[vsyscall]"),
)


def key_of_process(pid: int) -> str:
    """The page file of a process, as ``CommitMemory.files`` calls it."""
    return f"pagemap-{pid}.img"


def key_of_shared(number: int) -> str:
    """The page file of shared memory."""
    return f"pagemap-shmem-{number}.img"


def permissions(vma: pb.VmaEntry) -> str:
    """As in /proc/PID/maps: ``rw-p``."""
    letters = "".join(letter if vma.prot & bit else "-" for letter, bit in (("r", 1), ("w", 2), ("x", 4)))
    return letters + ("s" if vma.flags & _MAP_SHARED else "p")


@dataclass(frozen=True, slots=True)
class MappedFiles:
    """Files that are mapped, by their ids: ``names``, and of those that lie in memory only, the number of the shared memory."""

    names: Mapping[int, str]
    shared: Mapping[int, int]

    @classmethod
    def of(cls, files: Sequence[pb.FileEntry], inodes: Sequence[pb.MemfdInodeEntry]) -> MappedFiles:
        """From files.img and memfd.img."""
        by_id = {one.inode_id: one for one in inodes}
        names = {one.id: plain_text(one.reg.name) for one in files if one.HasField("reg")}
        shared = {}
        for one in files:
            inode = by_id.get(one.memfd.inode_id) if one.HasField("memfd") else None
            if inode is not None:
                name = plain_text(inode.name)
                # Shared memory without a name, as mmap(2) with MAP_SHARED | MAP_ANONYMOUS makes it.
                names[one.id] = f"[shared memory {inode.shmid:#x}]" if name == _NAMELESS else f"memfd:{name}"
                shared[one.id] = inode.shmid
        return cls(names, shared)

    def shared_number(self, vma: pb.VmaEntry) -> int | None:
        """N of the pagemap-shmem-N.img that has the pages of a mapping; None: its pages are its process's."""
        if vma.status & ANON_SHARED:
            return vma.shmid
        return self.shared.get(vma.shmid) if vma.status & _MEMFD and vma.flags & _MAP_SHARED else None


def plain_text(value: str | bytes) -> str:
    """Text of an image; protobuf gives bytes for a string that is no UTF-8."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def region_name(vma: pb.VmaEntry, mm: pb.MmEntry, file_names: Mapping[int, str]) -> str:
    """A file's path, ``[heap]`` and the like, or nothing."""
    if vma.status & (_FILE_PRIVATE | _FILE_SHARED):
        return file_names.get(vma.shmid, "")
    for bit, name in _NAMES:
        if vma.status & bit:
            return name
    if vma.start < mm.mm_brk and mm.mm_start_brk < vma.end:
        return "[heap]"
    if vma.start <= mm.mm_start_stack < vma.end:
        return "[stack]"
    if vma.status & _SYSV:
        return f"[System V shared memory {vma.shmid:#x}]"
    if vma.status & ANON_SHARED:
        return file_names.get(vma.shmid, "") or f"[shared memory {vma.shmid:#x}]"
    return "[aio ring]" if vma.status & _AIO_RING else ""


@dataclass(frozen=True, slots=True)
class PageRuns:
    """The pages of a page file by their addresses; ``placed``: (first page, pages, position in the file), by address."""

    placed: Sequence[tuple[int, int, int]]

    @classmethod
    def of(cls, file: PageFile | None) -> PageRuns:
        """None: there are no pages."""
        placed, position = [], 0
        for first, pages in file.runs if file is not None else ():
            placed.append((first, pages, position))
            position += pages
        return cls(sorted(placed))

    def position(self, page: int) -> int | None:
        """Where a page stands in the file; None: it is not there."""
        number = bisect_right(self.placed, page, key=lambda run: run[0]) - 1
        if number < 0:
            return None
        first, pages, position = self.placed[number]
        return position + page - first if page < first + pages else None

    def within(self, begin: int, end: int) -> int:
        """Pages from one address to another that are there."""
        number = max(0, bisect_right(self.placed, begin // PAGE, key=lambda run: run[0]) - 1)
        low, high, found = begin // PAGE, -(-end // PAGE), 0
        for first, pages, _ in self.placed[number:]:
            if first >= high:
                break
            found += max(0, min(high, first + pages) - max(low, first))
        return found


class AddressSpace:
    """The memory of one process, read when it is asked for."""

    def __init__(self, memory: CommitMemory, pid: int) -> None:
        self._memory, self._key = memory, key_of_process(pid)
        self.runs = PageRuns.of(memory.files.get(self._key))

    def read(self, address: int, size: int) -> bytes | None:
        """Bytes at an address; None where one of their pages is not in the commit.

        Raises:
            ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: a pack is damaged or sealed.
        """
        first, last = address // PAGE, (address + size - 1) // PAGE
        found = [self.runs.position(page) for page in range(first, last + 1)]
        positions = [one for one in found if one is not None]
        if size <= 0 or len(positions) < len(found):
            return b"" if size == 0 else None
        pages = self._memory.read(self._key, np.array(positions, np.int64))
        begin = address - first * PAGE
        return pages.reshape(-1).view(np.uint8)[begin : begin + size].tobytes()
