"""Paths within a tree that is not trusted: a symbolic link in it could lead out of it, and is never followed."""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath

__all__ = ["below", "prepared"]


def below(top: Path, path: str) -> Path | None:
    """Where a path is in the tree; None where that cannot be told without following a link. It need not exist."""
    here = top
    parts = PurePosixPath(path.lstrip("/")).parts
    for part in parts:
        if here.is_symlink() or part == "..":
            return None
        here /= part
    return None if not parts or here.is_symlink() else here


def prepared(top: Path, path: str) -> Path | None:
    """As ``below``, with the directories above it made where they were missing; None also where one of them is a file."""
    place = below(top, path)
    if place is None:
        return None
    for parent in reversed(place.parents):
        if not parent.is_relative_to(top) or parent == top:
            continue
        if not os.path.lexists(parent):
            parent.mkdir(mode=0o755)
        elif not stat.S_ISDIR(parent.lstat().st_mode):
            return None
    return place
