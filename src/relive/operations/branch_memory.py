"""Whether this host has the memory for one more branch: what the kernel would kill for want of it may be the observed service."""

from __future__ import annotations

from relive.kernel.meminfo import read_meminfo
from relive.model.commit import Manifest

__all__ = ["branches_with_memory", "free_for_branches", "memory_of"]

_RESERVED = 20  # the part of the host's memory that branches leave to others: one in twenty


def memory_of(manifest: Manifest) -> int:
    """Bytes that each branch has for itself: the pages of the commit."""
    return sum(image.size for image in manifest.images if image.name.startswith("pages-"))


def free_for_branches() -> int:
    """Bytes of this host's memory that may be given to further branches; below 0 where there is less than is left to others."""
    memory = read_meminfo()
    return memory.available - memory.total // _RESERVED


def branches_with_memory(manifest: Manifest, wanted: int) -> int:
    """As many branches of a commit as are wanted and this host has memory for now; at least one, which is tried in any case."""
    return max(1, min(wanted, free_for_branches() // max(1, memory_of(manifest))))
