"""Which memory branches of a commit touched first: the next one has it before it runs, instead of waiting for it page by page.

Kept below Relive's home as plain JSON, for the commits that were restored lazily last; from process to the first pages of windows,
as they lay in the commit, in the order in which they were touched. Only hints: what they name is read and checked as any page is,
what they leave out comes when it is touched, and a file that is missing or cannot be read is as good as none.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from relive.kernel.atomic_write import Durability, replace_file
from relive.model.commit import CommitId

__all__ = ["Touched", "TouchedMemory", "drop_touched", "learned"]

Touched = Mapping[int, Sequence[int]]
"""By pid, as the commit has it: pages, each the first of a window."""

_NAME = "touched"
_MOST = 128  # windows of a process: 16 MiB
_MOST_OF_COMMIT = 256  # all of them are read before any process of a branch runs
_COMMITS = 64


def drop_touched(home: Path, needed: Container[str]) -> None:
    """Forget it of all commits that are not among these.

    Raises:
        OSError: it cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        for path in (home / _NAME).iterdir():
            if path.name not in needed:
                path.unlink(missing_ok=True)


class TouchedMemory:
    """What is known of one commit."""

    def __init__(self, home: Path, commit: CommitId) -> None:
        self._path = home / _NAME / commit

    def read(self) -> Touched:
        """What was touched; nothing where that is not known."""
        with contextlib.suppress(
            OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError
        ):
            found = json.loads(self._path.read_bytes())
            os.utime(self._path)  # it was restored just now
            return _bounded({int(pid): [int(page) for page in pages] for pid, pages in found.items()})
        return {}

    def write(self, touched: Touched) -> None:
        """Remember this instead, and forget commits that were not restored for long.

        Raises:
            OSError: it cannot be written.
        """
        directory = self._path.parent
        directory.mkdir(mode=0o700, exist_ok=True)
        data = json.dumps(touched, separators=(",", ":")).encode()
        replace_file(self._path, data, durability=Durability.NONE, shared=True)
        others = sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in others[:-_COMMITS]:
            path.unlink(missing_ok=True)


def learned(known: Touched, found: Touched) -> Touched | None:
    """What is known when branches have touched this as well; None: nothing else. Where it is too much, the last are kept."""
    if all(set(pages) <= set(known.get(pid, ())) for pid, pages in found.items()):
        return None
    pids = [*known, *(pid for pid in found if pid not in known)]
    return _bounded({pid: list(dict.fromkeys([*found.get(pid, ()), *known.get(pid, ())])) for pid in pids})


def _bounded(touched: Touched) -> Touched:
    """At most so much of a process, and of all together, as is worth it."""
    most = min(_MOST, max(1, _MOST_OF_COMMIT // max(1, len(touched))))
    return {pid: pages[:most] for pid, pages in list(touched.items())[:_MOST_OF_COMMIT]}
