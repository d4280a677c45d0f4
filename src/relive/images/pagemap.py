"""Which pages a CRIU page file holds: ``pagemap-*.img`` names the file and the addresses of its pages, in its order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from relive.errors import ObjectCorrupt
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import decode, messages, write_entries

__all__ = ["PAGE_SHIFT", "Run", "count_for_older_readers", "read_lazy_runs", "read_pagemap"]

PAGE_SHIFT = 12
_IN_PARENT = 1
_LAZY = 2
_PRESENT = 4
_COMPAT_MOST = (1 << 32) - 1  # of the field for older readers

Run = tuple[int, int]  # (first page: its address / 4096, number of pages)


def read_pagemap(name: str, data: bytes) -> tuple[int, list[Run]]:
    """The N of ``pages-N.img``, and the runs of pages in it, in the order of the file.

    Raises:
        ObjectCorrupt: the bytes are no such image.
    """
    head, *entries = messages(name, data) or [b""]
    runs = [run for run, _ in _present(name, entries)]
    return decode(name, head, pb.PagemapHead).pages_id, runs


def read_lazy_runs(name: str, data: bytes) -> list[bool]:
    """For each run of ``read_pagemap``: CRIU can restore it without its pages, which come later through userfaultfd.

    Raises:
        ObjectCorrupt: the bytes are no such image.
    """
    _, *entries = messages(name, data) or [b""]
    return [is_lazy for _, is_lazy in _present(name, entries)]


def count_for_older_readers(images: Path) -> None:
    """Repeat each number of pages in the field that readers know which are older than CRIU 4.2.

    CRIU 4.2 writes the number to a new field and 0 to the old one; checkpointctl 1.3 believes the 0. CRIU itself reads the old one
    only where the new one is missing (``init_compat_pagemap_entry``).

    Raises:
        ObjectCorrupt: an image is damaged.
    """
    for path in images.glob("pagemap-*.img"):
        head, *entries = messages(path.name, path.read_bytes()) or [b""]
        counted = [decode(path.name, body, pb.PagemapEntry) for body in entries]
        for entry in counted:
            if entry.HasField("nr_pages") and entry.nr_pages <= _COMPAT_MOST:
                entry.compat_nr_pages = entry.nr_pages
        write_entries(path, [decode(path.name, head, pb.PagemapHead), *counted])


def _present(name: str, entries: list[bytes]) -> Iterator[tuple[Run, bool]]:
    for body in entries:
        entry = decode(name, body, pb.PagemapEntry)
        pages = entry.nr_pages or entry.compat_nr_pages
        if _is_present(entry):
            yield (entry.vaddr >> PAGE_SHIFT, pages), bool(entry.flags & _LAZY)


def _is_present(entry: pb.PagemapEntry) -> bool:
    if not entry.HasField("flags"):  # written by a CRIU before 2.6
        return not entry.in_parent
    if entry.flags & _IN_PARENT:
        raise ObjectCorrupt(
            "the images are of an incremental dump",
            cause="Relive makes none",
            remedy="do not trust this commit",
        )
    return bool(entry.flags & _PRESENT)
