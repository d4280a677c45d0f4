"""Where a commit may lay files in a branch: its mount points come from wherever it does."""

from __future__ import annotations

import os
import re
from pathlib import Path

from relive.config import Settings
from relive.errors import ObjectCorrupt
from relive.images.validation import untrusted
from relive.model.commit import LayerKind, Manifest

__all__ = ["check_point", "refuse_hostile_points"]

# What a branch has of its own there is mounted over it anyway.
_NEVER = ("/proc", "/sys", "/run/relive")
_NOT_COVERED = (*_NEVER, "/dev", "/run")
_IN_MEMORY = ("/run", "/dev/shm")
_OUTLET = re.compile(r"((pipe|socket):\[[0-9]+\]|tty\[[0-9a-f]+:[0-9a-f]+\])")


def refuse_hostile_points(manifest: Manifest, settings: Settings) -> None:
    """Raises ObjectCorrupt where a commit lays files where it must not, or names an end of a pipe that is none."""
    homes = [os.path.realpath(path) for path in (settings.home, settings.tools_path)]
    for layer in manifest.layers:
        # Of a layer without files nothing is laid anywhere: the watch of a service has one for each of its mounts.
        if layer.kind in (LayerKind.OVERLAY, LayerKind.TMPFS) and layer.entries:
            check_point(layer.point, layer.kind, homes)
    for outlet in manifest.outlets:
        if not _OUTLET.fullmatch(outlet.key):
            raise untrusted(f"names an end of a pipe or a terminal {outlet.key!r}", "CRIU names none so")


def check_point(point: str, kind: LayerKind, homes: list[str]) -> None:
    """Raises ObjectCorrupt where no layer can be; ``homes``: directories of Relive itself."""
    if (
        not point.startswith("/")
        or point.startswith("//")
        or "\0" in point
        or os.path.normpath(point) != point
    ):
        raise _untrusted(point, "it is no absolute path, or leads through `..`")
    if kind is LayerKind.TMPFS and point not in _IN_MEMORY:
        raise _untrusted(point, f"in memory a branch has files at {' and '.join(_IN_MEMORY)} only")
    if kind is LayerKind.OVERLAY and any(_is_below(point, top) for top in _NOT_COVERED):
        raise _untrusted(point, "a branch has file systems of its own there")
    if any(_is_below(point, home) for home in homes):
        raise _untrusted(point, "Relive's own files are there")


def _is_below(path: str, top: str) -> bool:
    return Path(path).is_relative_to(top)


def _untrusted(point: str, cause: str) -> ObjectCorrupt:
    return untrusted(f"has files at {point!r}", cause)
