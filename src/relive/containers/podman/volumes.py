"""What a commit holds of a container's volumes: all of them, or of each the files that its processes have open.

A restore needs the open ones as they were: CRIU refuses a file of another size, and memory that a process keeps of a file, such as
a database's pages, fits no later one.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from relive.checkpoint.file_layers import LayerScanner, LayerSource
from relive.checkpoint.watched_files import Reported, WatchedFiles, WatchedScanner
from relive.containers.podman.container import Mounted, PodmanContainer
from relive.containers.podman.runtime import resolved
from relive.model.commit import LayerKind

__all__ = ["open_files_of_volumes", "whole_volumes"]

_REST = "of the files in it only those that were open are held"


def whole_volumes(container: PodmanContainer) -> list[LayerSource]:
    """Volumes and writable directories of the host, with all they hold."""
    return [
        LayerSource(one.destination, LayerKind.VOLUME, LayerScanner(one.source))
        for one in _writable(container)
    ]


def open_files_of_volumes(
    container: PodmanContainer, points: Collection[str], limit: int, home: Path
) -> list[LayerSource]:
    """Of the same the open files, as layers that lie over what the host has there.

    Args:
        points: all places at which something is mounted in the container.
        limit: bytes of all of them together (``open_file_limit``).
        home: Relive's.
    """
    # Where they are: the kernel names an open file without the links that a destination leads through.
    mounts = {resolved(container.pid, one.destination): one.source for one in _writable(container)}
    rest = Reported([], [], [f"{point.lstrip('/')}\t{_REST}" for point in mounts])
    points = [resolved(container.pid, point) for point in points]
    files = WatchedFiles(container.pid, lambda: rest, (), points, limit, home, volumes=list(mounts))
    return [
        LayerSource(
            point,
            LayerKind.OVERLAY,
            WatchedScanner(source, point=point, files=files, is_first=number == 0),
        )
        for number, (point, source) in enumerate(mounts.items())
    ]


def _writable(container: PodmanContainer) -> list[Mounted]:
    return [one for one in container.mounted if one.writable and one.source.is_dir()]
