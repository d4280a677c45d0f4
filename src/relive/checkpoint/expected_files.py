"""What is known of files just before a pause; ``relive-micro`` sees in it whether that is still so (``native/micro/expected.c``).

A copy that was made while the target ran is good where the file has the same times, size and identity once all stands still: each
change moves its ctime, which nobody can set. Two changes in one tick of the clock have one time; so nothing is expected of a file
that has changed so shortly before it was looked at (``CLOCK_GRAIN_NS``), nor of one that is written through a mapping. A call
that writes moves the times when it begins, and may take long: so a copy counts only where no such call has ended since its begin.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from relive.checkpoint.file_layers import CLOCK_GRAIN_NS

__all__ = ["EXPECTED_MOST", "ExpectedFiles", "is_settled"]

EXPECTED_MOST = 256
"""[paths] looked at in a pause; more are better looked at by whoever can tell what to do then."""


def is_settled(facts: os.stat_result, looked_ns: int) -> bool:
    """Whether what has the same facts later is the same; ``looked_ns``: the time just before they were read."""
    return max(facts.st_mtime_ns, facts.st_ctime_ns) + CLOCK_GRAIN_NS < looked_ns


@dataclass(slots=True)
class ExpectedFiles:
    """Collects expectations.

    Attributes:
        descriptors: of the target that lead to regular files; None: it does not matter which there are.
    """

    descriptors: frozenset[int] | None = None
    _texts: list[bytes] = field(default_factory=list)

    def no_writing(self, calls: int) -> None:
        """The target has made so many calls that write, to whatever, and none is under way that was when they were counted."""
        self._texts.append(b"c %d" % calls)

    def absent(self, path: str) -> None:
        """Nothing is at a path."""
        self._texts.append(b"a " + os.fsencode(path))

    def same(self, path: str, facts: os.stat_result, *, follow: bool = False) -> None:
        """What is at a path (``follow``: where it leads) has these facts."""
        numbers = (
            *(facts.st_dev, facts.st_ino, facts.st_mode, facts.st_uid, facts.st_gid),
            *(facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns),
        )
        self._add("d" if follow else "p", numbers, path)

    def word(self, path: str, offset: int, value: int) -> None:
        """There is a word of 64 bits in a file."""
        self._add("w", (offset, value), path)

    def _add(self, kind: str, numbers: Iterable[int], path: str) -> None:
        self._texts.append(f"{kind} {' '.join(map(str, numbers))} ".encode() + os.fsencode(path))

    def encode(self) -> bytes:
        """As ``relive-micro`` reads it."""
        return b"".join(text + b"\0" for text in [*self._texts, b"end"])
