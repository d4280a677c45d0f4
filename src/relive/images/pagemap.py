"""Which pages a CRIU page file holds: ``pagemap-*.img`` names the file and the addresses of its pages, in its order."""

from __future__ import annotations

from collections.abc import Iterator

from relive.errors import ObjectCorrupt
from relive.images import criu_images_pb2 as pb
from relive.images.imagefile import decode, messages

__all__ = ["Run", "read_lazy_runs", "read_pagemap"]

PAGE_SHIFT = 12
_IN_PARENT = 1
_LAZY = 2
_PRESENT = 4

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
        raise ObjectCorrupt("the images are of an incremental dump", cause="Relive makes none", remedy=None)
    return bool(entry.flags & _PRESENT)
