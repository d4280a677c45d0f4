"""Commits that may be wrong: taken while the kernel's objects were believed, between the last comparison and the one that failed.

They are known by the names of their captures, one a line of a file of Relive's home, which is only ever added to: where the kernel
is believed again (``kernel_trust``), or another one runs, they stay what they are. None of them is restored; who takes a name out
of the file has it restored all the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from relive.kernel.atomic_write import sync_directory

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

    def is_any(self) -> bool:
        """There may be some."""
        return self.path.exists()

    def holds(self, capture: str) -> bool:
        """Whether this one is suspect; raises OSError where that cannot be read."""
        try:
            return capture in self.path.read_text().split()
        except FileNotFoundError:
            return False
