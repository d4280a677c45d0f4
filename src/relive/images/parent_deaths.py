"""The signal that a process gets when its parent ends (PR_SET_PDEATHSIG): in a branch not for that of CRIU.

CRIU is the parent of what it restores, and ends before it runs: the root would get the signal, and die of it in most programs. In a
capsule its parent is process 1, with which all ends; so is it in a branch.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries, write_entries
from relive.images.validation import threads_of

__all__ = ["survive_criu"]


def survive_criu(images: Path, processes: Iterable[pb.PstreeEntry]) -> None:
    """Take it away from the threads of those of the processes, laid out in ``images``, whose parent is none of them.

    Raises:
        ObjectCorrupt: an image is damaged.
    """
    found = list(processes)
    members = {one.pid for one in found}
    for process in found:
        if process.ppid in members:
            continue
        for path in (images / f"core-{thread}.img" for thread in threads_of(process)):
            cores = read_entries(path, pb.CoreEntry) if path.exists() else []
            if any(one.thread_core.pdeath_sig for one in cores):
                for one in cores:
                    one.thread_core.ClearField("pdeath_sig")
                write_entries(path, cores)
