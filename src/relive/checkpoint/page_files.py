"""Pages in CRIU's files of pages: which of them may come after a restore, and copying some from one file to another."""

from __future__ import annotations

import os
from collections.abc import Iterable

from relive.checkpoint.page_runs import Span, union
from relive.images import criu_images_pb2 as pb

__all__ = ["copy_bytes", "lazy_spans"]

_PAGE = 4096
_MAP_PRIVATE, _MAP_ANONYMOUS, _MAP_LOCKED = 0x02, 0x20, 0x2000


def lazy_spans(mappings: Iterable[pb.VmaEntry]) -> list[Span]:
    """Pages that CRIU marks as such which can come after a restore (``vma_entry_can_be_lazy``), sorted and joined."""
    wanted = _MAP_PRIVATE | _MAP_ANONYMOUS
    return union(
        (one.start // _PAGE, one.end // _PAGE)
        for one in mappings
        if one.flags & (wanted | _MAP_LOCKED) == wanted
    )


def copy_bytes(source: int, target: int, offset: int, size: int) -> None:
    """Append ``size`` bytes of the file ``source`` from byte ``offset`` to the file ``target`` (descriptors, copy_file_range(2)).

    Raises:
        OSError: the file ends before, or the disk is full.
    """
    while size:
        done = os.copy_file_range(source, target, size, offset)
        if done == 0:
            raise OSError(f"a copied page is missing at byte {offset}")
        offset, size = offset + done, size - done
