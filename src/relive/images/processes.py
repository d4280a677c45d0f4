"""The processes of a commit, as CRIU's images hold them."""

from __future__ import annotations

from relive.images import criu_images_pb2 as pb
from relive.images.image_directory import ImageDirectory
from relive.images.image_file import read_entries
from relive.model.commit import ProcessFacts

__all__ = ["read_processes"]


def read_processes(images: ImageDirectory) -> list[ProcessFacts]:
    """All processes, parents before their children; pids as inside the target.

    Raises:
        FileNotFoundError, ObjectCorrupt: as ``read_entries``.
    """
    found = []
    for entry in read_entries(images / "pstree.img", pb.PstreeEntry):
        core = images / f"core-{entry.pid}.img"
        facts = read_entries(core, pb.CoreEntry)[0] if core.exists() else pb.CoreEntry()
        found.append(
            ProcessFacts(
                pid=entry.pid,
                parent=entry.ppid,
                command=facts.tc.comm if facts.HasField("tc") else "",
                threads=len(entry.threads),
                uid=facts.thread_core.creds.uid if facts.HasField("thread_core") else 0,
            )
        )
    return found
