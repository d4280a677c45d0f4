"""What the service in a branch writes to its log.

That is its standard error, for which a branch has a file of its own. The standard error of a watched service may have led to a
file: then it is that file, and those that its watch was told to read. They are the branch's own, in its layers.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection
from pathlib import Path

from relive.kernel import procfs
from relive.replay.outcomes import read_log, read_open_log
from relive.sandbox.branch import Branch

__all__ = ["BranchLog"]

_STANDARD_ERROR = "2"


class BranchLog:
    """What is written from a moment on. Close it.

    Files that a process has open are read by its descriptors, held from the beginning on: what is written there can be read when
    the service has ended, and no name within a branch is followed.

    Args:
        files: that a watch read for the output, as the service sees them; None: no watch did.
        begin: bytes of the branch's standard error that are of earlier.
    """

    def __init__(self, branch: Branch, files: Collection[str] | None, begin: int) -> None:
        self._log, self._begin = branch.log("stderr"), begin
        self._held = _open_logs(branch.facts.root, files) if files is not None else {}

    def begin(self) -> None:
        """Whatever stands there by now is of earlier."""
        self._begin = self._log.stat().st_size
        for descriptor in self._held:
            self._held[descriptor] = os.fstat(descriptor).st_size

    def lines(self) -> list[str]:
        """What has been written since then."""
        found = read_log(self._log, self._begin)
        for descriptor, begin in self._held.items():
            found += read_open_log(descriptor, begin)
        return found

    def close(self) -> None:
        """Let go of the files."""
        for descriptor in self._held:
            os.close(descriptor)


def _open_logs(root: int, files: Collection[str]) -> dict[int, int]:
    """A descriptor for each file, with its size."""
    found: dict[tuple[int, int], int] = {}
    for pid in procfs.tree_of(root):
        for link in procfs.descriptors_of(pid):
            is_error = pid == root and link.name == _STANDARD_ERROR
            with contextlib.suppress(OSError):
                if is_error or os.readlink(link) in files:
                    _hold(link, found)
    return {descriptor: os.fstat(descriptor).st_size for descriptor in found.values()}


def _hold(link: Path, found: dict[tuple[int, int], int]) -> None:
    facts = link.stat()
    if stat.S_ISREG(facts.st_mode) and (facts.st_dev, facts.st_ino) not in found:
        found[facts.st_dev, facts.st_ino] = os.open(link, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
