"""Rings of a commit's Python processes, in what comes back of it: files of its own, which CRIU maps in their places."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from relive.images import criu_images_pb2 as pb
from relive.recording.rings import RingMode, make_branch_ring
from relive.sandbox.rootfs import RINGS_DIRECTORY

__all__ = ["make_rings"]


def make_rings(files: Iterable[pb.FileEntry], rings: Path, mode: RingMode) -> None:
    """Lay files into the directory ``rings`` where the commit's Python processes have theirs; ``files``: what they had open."""
    prefix = f"{RINGS_DIRECTORY}/"
    for entry in files:
        name = entry.reg.name.removeprefix(prefix) if entry.HasField("reg") else "/"
        if "/" not in name:
            path = rings / name
            # With ".new" behind its name it was just being made.
            if path.name.endswith((".ring", ".ring.new")) and not path.exists():
                make_branch_ring(path, entry.reg.size, entry.reg.mode & 0o777, mode)
