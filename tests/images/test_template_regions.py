"""What of a commit's memory branches can share."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from google.protobuf.message import Message

from relive.images import criu_images_pb2 as pb
from relive.images.template_regions import MappedFile, Region, read_regions

_ANONYMOUS, _FILE = 1 | 1 << 9, 1 | 1 << 6  # a regular mapping, private: of no file, of a file
_FLAGS, _PRIVATE, _SHARED = 0x22, 0x2, 0x1


def _write(path: Path, entries: Iterable[Message]) -> None:
    bodies = [entry.SerializeToString() for entry in entries]
    parts = [struct.pack("<I", len(body)) + body for body in bodies]
    path.write_bytes(struct.pack("<II", 0x54564319, 0) + b"".join(parts))


def _vma(
    first: int, count: int, status: int = _ANONYMOUS, flags: int = _FLAGS, file: int = 0, offset: int = 0
) -> pb.VmaEntry:
    """A mapping of pages."""
    return pb.VmaEntry(
        start=first << 12,
        end=(first + count) << 12,
        pgoff=offset,
        shmid=file,
        prot=3,
        flags=flags,
        status=status,
        fd=-1,
    )


def _process(images: Path, pid: int, vmas: list[pb.VmaEntry], runs: list[tuple[int, int]]) -> None:
    memory = pb.MmEntry(vmas=vmas)
    for field in pb.MmEntry.DESCRIPTOR.fields:
        if field.name not in ("vmas", "dumpable"):
            setattr(memory, field.name, 0)
    _write(images / f"mm-{pid}.img", [memory])
    entries = [pb.PagemapEntry(vaddr=first << 12, nr_pages=count, flags=4) for first, count in runs]
    _write(images / f"pagemap-{pid}.img", [pb.PagemapHead(pages_id=pid + 100), *entries])


def _tree(images: Path, **parents: int) -> None:
    entries = [pb.PstreeEntry(pid=int(pid[1:]), ppid=up, pgid=1, sid=1) for pid, up in parents.items()]
    _write(images / "pstree.img", entries)
    file = pb.RegFileEntry(id=7, flags=0, pos=0, name="/lib/seven")
    _write(images / "files.img", [pb.FileEntry(type=1, id=7, reg=file)])


def test_a_run_over_two_mappings_is_parted_and_odd_flags_are_left_out(tmp_path: Path) -> None:
    _tree(tmp_path, p1=0)
    vmas = [
        _vma(10, 4),
        _vma(14, 4),
        _vma(18, 2, status=_FILE, flags=_PRIVATE, file=8),  # of what is no regular file
        _vma(30, 8, flags=_FLAGS | 0x2000),  # locked
        _vma(40, 8, status=_ANONYMOUS | 1 << 5),  # the heap
    ]
    _process(tmp_path, 1, vmas, [(12, 7), (30, 1), (41, 1), (44, 2)])
    page = 4096
    assert read_regions(tmp_path) == [
        Region(101, 3, _FLAGS, 4 * page, [(0, 2 * page, 2 * page)]),
        Region(101, 3, _FLAGS, 4 * page, [(2 * page, 4 * page, 0)]),
        Region(101, 3, _FLAGS, 8 * page, [(8 * page, page, page), (9 * page, 2 * page, 4 * page)]),
    ]


def test_changed_pages_of_a_file_are_a_region_of_that_file(tmp_path: Path) -> None:
    """Not those of one that is mapped shared, which are the file's own."""
    _tree(tmp_path, p1=0)
    vmas = [
        _vma(10, 4, status=_FILE, flags=_PRIVATE, file=7, offset=3 << 12),
        _vma(14, 4, status=_FILE, flags=_SHARED, file=7),
    ]
    _process(tmp_path, 1, vmas, [(12, 3)])
    assert read_regions(tmp_path) == [
        Region(101, 3, _PRIVATE, 4 * 4096, [(0, 2 * 4096, 2 * 4096)], MappedFile("/lib/seven", 3 * 4096)),
    ]


def test_what_a_child_has_from_its_parent_is_left_to_criu(tmp_path: Path) -> None:
    _tree(tmp_path, p1=0, p2=1)
    _process(tmp_path, 1, [_vma(10, 4)], [(10, 4)])
    _process(tmp_path, 2, [_vma(10, 4), _vma(20, 1)], [(10, 2), (20, 1)])
    assert [(one.pages, one.runs) for one in read_regions(tmp_path)] == [
        (101, [(0, 4 * 4096, 0)]),
        (102, [(2 * 4096, 4096, 0)]),
    ]
