"""Directories of a branch keep the times that they had at the commit, whoever made its upper layers.

Copying a file up has overlayfs set the time of its directory to what it was before. But several do so at once while a branch is
built: CRIU, which opens files, process 1 of the original's capsule, which hides names that the original is about to make
(``native/init/branches.c``), and ``preserved_files``. One that looks while another is at work takes the time of now for that of
before. And CRIU makes names for files that had been deleted and were still open, and removes them again.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

__all__ = ["DirectoryTimes"]


class DirectoryTimes:
    """Opens the directories when it is made, since their paths lead elsewhere later.

    Args:
        layers: upper layers, each with the trees that lie below it, the uppermost first.

    Raises:
        OSError: one is not there.
    """

    def __init__(self, layers: Sequence[tuple[Path, Sequence[Path]]]) -> None:
        self._layers: list[tuple[int, list[int]]] = []
        try:
            for upper, trees in layers:
                if trees:
                    opened: list[int] = []
                    self._layers.append((_directory(upper), opened))
                    opened += [_directory(tree) for tree in trees]
        except OSError:
            self.close()
            raise

    def put_back(self) -> None:
        """To be called just before the branch runs: only what the trees hold is known.

        Raises:
            OSError: a directory cannot be read.
        """
        for upper, trees in self._layers:
            for below, _, _, here in os.fwalk(dir_fd=upper):
                facts = _facts_of(below, trees)
                if facts is not None:
                    os.utime(here, ns=(facts.st_atime_ns, facts.st_mtime_ns))

    def close(self) -> None:
        """Let go of the directories."""
        for upper, trees in self._layers:
            for descriptor in (upper, *trees):
                os.close(descriptor)
        self._layers = []


def _directory(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _facts_of(path: str, trees: Sequence[int]) -> os.stat_result | None:
    """Of the uppermost tree that says what is there, where that is a directory."""
    for tree in trees:
        with contextlib.suppress(OSError):
            facts = os.stat(path, dir_fd=tree, follow_symlinks=False)
            return facts if stat.S_ISDIR(facts.st_mode) else None
    return None
