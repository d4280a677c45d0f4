"""Capabilities of restored processes: a branch does not get those with which root leaves a sandbox (capabilities(7))."""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence
from pathlib import Path

from relive.images import criu_images_pb2 as pb
from relive.images.imagefile import read_entries, write_entries
from relive.kernel.capabilities import WITHHELD

__all__ = ["limit_capabilities"]

_SETS = ("cap_inh", "cap_prm", "cap_eff", "cap_bnd", "cap_amb")
_WORD_BITS = 32


def limit_capabilities(images: Path, processes: Iterable[pb.PstreeEntry]) -> None:
    """Take the withheld capabilities from every thread of a commit laid out in ``images``.

    Raises:
        ObjectCorrupt: an image is damaged.
    """
    for process in processes:
        for thread in process.threads or [process.pid]:
            path = images / f"core-{thread}.img"
            if path.exists():
                entries = read_entries(path, pb.CoreEntry)
                limited = [_limit(entry) for entry in entries]  # all of them, not only up to the first
                if any(limited):
                    write_entries(path, entries)


def _limit(entry: pb.CoreEntry) -> bool:
    if not entry.HasField("thread_core") or not entry.thread_core.HasField("creds"):
        return False
    changed = False
    for name in _SETS:
        words: MutableSequence[int] = getattr(entry.thread_core.creds, name)
        for bit in WITHHELD.values():
            index, mask = bit // _WORD_BITS, 1 << bit % _WORD_BITS
            if index < len(words) and words[index] & mask:
                words[index] &= ~mask
                changed = True
    return changed
