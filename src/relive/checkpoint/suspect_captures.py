"""Commits that may be wrong: taken while the kernel's objects were believed, between the last comparison and the one that failed.

They are known by the names of their captures, one a line of a file of Relive's home, which is only ever added to: where the kernel
is believed again (``kernel_trust``), or another one runs, they stay what they are. A line ``kernel WALL_NS NAME`` stands for all
that believed that kernel and was not compared by then, of other services and of agents that have died (``uncompared``). None of
them is restored; who takes a line out of the file has them restored all the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from relive.checkpoint.uncompared import latest_wall_ns, span_of
from relive.kernel.atomic_write import sync_directory
from relive.model.commit import Manifest

__all__ = ["SuspectCaptures"]


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

    def add_uncompared(self, kernel: str) -> None:
        """So is whatever believed this kernel and is not compared by now; raises as ``add``."""
        # Where the clock was set back since, what was taken before lies ahead of it.
        self.add([f"kernel {max(time.time_ns(), latest_wall_ns(self.path.parent))} {kernel}"])

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
        lost = [
            line.split(" ", 2)[1:]
            for line in self.path.read_text().splitlines()
            if line.startswith("kernel ")
        ]
        span = span_of(self.path.parent, manifest) if lost else None
        return span is not None and any(
            span.believed(kernel) and span.wall_ns <= int(at) for at, kernel in lost
        )
