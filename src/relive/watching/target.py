"""A watched container as a target of commits: found anew in each of its starts."""

from __future__ import annotations

from collections.abc import Callable

from relive.checkpoint.target import Target
from relive.kernel import procfs

__all__ = ["FoundContainer"]


class FoundContainer:
    """Call it before each commit, one call at a time. Within one start of the container it is the same target, which remembers
    the files it has copied.

    Args:
        find: makes a target of the container as it runs now; raises as its engine's room says.
    """

    def __init__(self, find: Callable[[], Target]) -> None:
        self._find = find
        self._found: tuple[int, Target] | None = None

    def __call__(self) -> Target:
        """The target; raises what ``find`` does."""
        if self._found is not None:
            started, target = self._found
            if procfs.is_same_process(target.root, started):
                return target
        target = self._find()
        stat = procfs.read_stat(target.root)
        self._found = (stat.start_ticks if stat is not None else 0, target)
        return target
