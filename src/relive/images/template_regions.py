"""Which memory of a commit's processes branches can share: what a template of CRIU maps once for all (``native/template_shim.c``).

That is private memory, in no file or with changed pages of one, of a kind that CRIU makes with nothing but mmap(2), where it has
pages. All else (stacks that grow down, huge pages, memory that is locked) each branch gets from the page file, as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries
from relive.images.pagemap import PAGE_SHIFT, Run, read_pagemap
from relive.images.sockets import read_files

__all__ = ["MappedFile", "Region", "read_regions"]

_REGULAR, _HEAP, _FILE_PRIVATE, _ANON_PRIVATE = 1, 1 << 5, 1 << 6, 1 << 9  # VMA_* of criu/include/image.h
_PRIVATE, _ANONYMOUS, _NORESERVE = 0x2, 0x20, 0x4000  # MAP_* of mmap(2)

Span = tuple[int, int]  # address of the first byte, and of the one behind the last


@dataclass(frozen=True, slots=True)
class MappedFile:
    """The file that a mapping is of: its path in the images, and the byte at which the mapping begins."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class Region:
    """One mapping of a process.

    Attributes:
        pages: the N of ``pages-N.img``, in which its pages are.
        protection, flags: as mmap(2) has them.
        size: bytes.
        runs: (offset in the page file, bytes, offset in the mapping) of its pages, in the order of that file.
        file: None: it is in no file.
    """

    pages: int
    protection: int
    flags: int
    size: int
    runs: list[tuple[int, int, int]]
    file: MappedFile | None = None


def read_regions(images: Path) -> list[Region]:
    """Those of all processes, in the order of their page files and in that of the file.

    Raises:
        ObjectCorrupt: an image is damaged.
    """
    names = {one.id: one.reg.name for one in read_files(images) if one.HasField("reg")}
    mappings = {one.pid: _mappings(images, one.pid) for one in _processes(images)}
    found: list[Region] = []
    for one in _processes(images):
        path = images / f"pagemap-{one.pid}.img"
        if not path.exists():
            continue
        pages, runs = read_pagemap(path.name, path.read_bytes())
        # CRIU gives a child what it has in common with its parent by fork(2), and compares; that is in no region.
        inherited = {(vma.start, vma.end) for vma in mappings.get(one.ppid, ())}
        found += _regions(pages, runs, mappings[one.pid], inherited, names)
    return sorted(found, key=lambda region: (region.pages, region.runs[0][0]))


def _processes(images: Path) -> list[pb.PstreeEntry]:
    return read_entries(images / "pstree.img", pb.PstreeEntry)


def _mappings(images: Path, pid: int) -> list[pb.VmaEntry]:
    path = images / f"mm-{pid}.img"
    return list(read_entries(path, pb.MmEntry)[0].vmas) if path.exists() else []


def _regions(
    pages: int,
    runs: Iterable[Run],
    mappings: Iterable[pb.VmaEntry],
    inherited: set[Span],
    names: Mapping[int, str],
) -> Iterator[Region]:
    kept = {
        (vma.start, vma.end): vma
        for vma in mappings
        if (_is_in_no_file(vma) or _is_of_file(vma, names)) and (vma.start, vma.end) not in inherited
    }
    for span, parts in _by_mapping(runs, sorted(kept)).items():
        vma = kept[span]
        file = None if _is_in_no_file(vma) else MappedFile(names[vma.shmid], vma.pgoff)
        yield Region(pages, vma.prot, vma.flags, span[1] - span[0], parts, file)


def _is_in_no_file(vma: pb.VmaEntry) -> bool:
    kinds = vma.status & ~_HEAP
    return kinds == _REGULAR | _ANON_PRIVATE and vma.flags & ~_NORESERVE == _PRIVATE | _ANONYMOUS


def _is_of_file(vma: pb.VmaEntry, names: Mapping[int, str]) -> bool:
    kinds = vma.status & ~_HEAP
    return kinds == _REGULAR | _FILE_PRIVATE and vma.flags & ~_NORESERVE == _PRIVATE and vma.shmid in names


def _by_mapping(runs: Iterable[Run], spans: list[Span]) -> Mapping[Span, list[tuple[int, int, int]]]:
    """The parts of runs that are in the spans; both are in the order of their addresses."""
    found: dict[Span, list[tuple[int, int, int]]] = {}
    offset, at = 0, 0
    for first, count in runs:
        start, end = first << PAGE_SHIFT, (first + count) << PAGE_SHIFT
        while at < len(spans) and spans[at][1] <= start:
            at += 1
        for low, high in spans[at:]:
            if low >= end:
                break
            begin, stop = max(start, low), min(end, high)
            found.setdefault((low, high), []).append((offset + begin - start, stop - begin, begin - low))
        offset += end - start
    return found
