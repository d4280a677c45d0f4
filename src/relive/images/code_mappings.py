"""Where code of files lay in the memory of a committed process (mm-PID.img, files.img)."""

from __future__ import annotations

import os
from pathlib import Path

from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries
from relive.kernel.procfs import Mapping

__all__ = ["read_code_mappings"]

_PROT_EXEC = 4
_FILE_PRIVATE = 1 << 6  # VMA_FILE_PRIVATE of criu/include/image.h


def read_code_mappings(images: Path, pid: int) -> list[Mapping]:
    """Lowest address first; ``pid`` as inside. None of a process that shares the memory of another, whose images hold it.

    Raises:
        FileNotFoundError, ObjectCorrupt: as ``read_entries``.
    """
    image = images / f"mm-{pid}.img"
    if not image.exists():
        return []
    names = {
        one.id: one.reg.name
        for one in read_entries(images / "files.img", pb.FileEntry)
        if one.HasField("reg")
    }
    return [
        Mapping(vma.start, vma.end, "r-xp", vma.pgoff, os.fsdecode(names.get(vma.shmid, "")))
        for vma in read_entries(image, pb.MmEntry)[0].vmas
        if vma.prot & _PROT_EXEC and vma.status & _FILE_PRIVATE
    ]
