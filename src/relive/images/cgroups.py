"""Control groups in CRIU's images: those that processes were in at the dump are made no condition of a restore.

CRIU numbers each set of control groups that it finds. ``inventory.img`` names the set that CRIU itself was in (``root_cg_set``),
and even where CRIU is told to ignore groups, a restore moves processes whose set is another one into theirs, by path. A container's
paths are its own, and another container of the same commit does not have them: so the set of its first process is named in the
place of CRIU's, and it is born where its runtime puts CRIU. See ``prepare_task_cgroup`` in CRIU's ``cgroup.c``.
"""

from __future__ import annotations

from pathlib import Path

from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries, read_inventory, write_inventory

__all__ = ["forget_groups", "inherit_groups"]


def forget_groups(images: Path) -> None:
    """Of processes that are all born in the groups of their branch, and name no set: CRIU then starts none of its own to move them.

    To be called when ``rights.limit_rights`` has taken the sets' numbers from every thread.
    """
    (images / "cgroup.img").unlink(missing_ok=True)


def inherit_groups(images: Path) -> None:
    """Let the first process be born in whatever groups its container is given; images without groups stay as they are.

    Raises:
        ObjectCorrupt: one of the images cannot be read.
    """
    path = images / "cgroup.img"
    if not path.exists():
        return
    inventory = read_inventory(images)
    numbers = [one.id for entry in read_entries(path, pb.CgroupEntry) for one in entry.sets]
    others = [number for number in numbers if number != inventory.root_cg_set]
    if others:
        # CRIU writes them in the order in which it met them, from the root on.
        inventory.root_cg_set = others[0]
        write_inventory(images, inventory)
