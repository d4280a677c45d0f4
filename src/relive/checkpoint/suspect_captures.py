"""Commits that may be wrong: taken while the kernel's objects were believed, between the last comparison and the one that failed.

They are known by the names of their captures, one a line of a file of Relive's home, which is only ever added to: where the kernel
is believed again (``kernel_trust``), or another one runs, they stay what they are. A line ``kernel WALL_NS NAME`` stands for all
that believed that kernel and was not compared by then, of other services and of agents that have died (``uncompared``); one
``memory WALL_NS NAME`` for all that believed its counters of memory by then, since no comparison says anything of another commit's.
None of them is restored; who takes a line out of the file has them restored all the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from relive.checkpoint.uncompared import latest_wall_ns, spans_of
from relive.kernel.atomic_write import sync_directory
from relive.model.commit import Manifest

__all__ = ["SuspectCaptures"]

_OF_MEMORY = {
    "kernel": False,
    "memory": True,
}  # by the first word of a line, which of ``UncomparedSpan`` it stands for


class SuspectCaptures:
    """Of one home."""

    def __init__(self, home: Path) -> None:
        self.path = home / "suspect-captures.txt"

    def add(self, captures: Iterable[str]) -> None:
        """From now on they are suspect, also after the machine has stopped.

        Raises:
            OSError: that cannot be kept.
        """
        lines = "".join(f"{one}\n" for one in captures).encode()
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            if os.write(file, lines) != len(lines):
                raise OSError(f"{self.path} was not written whole")
            os.fsync(file)
        finally:
            os.close(file)
        sync_directory(self.path.parent)

    def add_uncompared(self, kernel: str, *, of_memory: bool) -> None:
        """So is whatever believed this kernel and is not compared by now; raises as ``add``.

        Args:
            of_memory: its counters of memory misled; then all that ever believed these is, too.
        """
        # Where the clock was set back since, what was taken before lies ahead of it.
        wall_ns = max(time.time_ns(), latest_wall_ns(self.path.parent))
        self.add(f"{word} {wall_ns} {kernel}" for word, kind in _OF_MEMORY.items() if of_memory or not kind)

    def is_any(self) -> bool:
        """There may be some."""
        return self.path.exists()

    def holds(self, capture: str) -> bool:
        """Whether this one is suspect; raises OSError where that cannot be read."""
        try:
            return capture in self.path.read_text().splitlines()
        except FileNotFoundError:
            return False

    def is_suspect(self, manifest: Manifest) -> bool:
        """Whether this commit is, by its name or by when it was taken; raises OSError where that cannot be read."""
        if not self.is_any():
            return False
        if self.holds(manifest.capture):
            return True
        lost = [line.split(" ", 2) for line in self.path.read_text().splitlines()]
        named = [(_OF_MEMORY[one[0]], int(one[1]), one[2]) for one in lost if one[0] in _OF_MEMORY]
        spans = spans_of(self.path.parent, manifest) if named else []
        return any(
            span.of_memory is kind and span.believed(kernel) and span.wall_ns <= wall_ns
            for span in spans
            for kind, wall_ns, kernel in named
        )
