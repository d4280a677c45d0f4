"""Which memory branches of a commit touched first: the next one has it before it runs, instead of waiting for it page by page.

Kept below Relive's home as plain JSON, for the commits that were restored lazily last; from process to the first pages of windows,
as they lay in the commit, in the order in which they were touched. Only hints: what they name is read and checked as any page is,
what they leave out comes when it is touched, and a file that is missing or cannot be read is as good as none.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from relive.kernel.atomic_write import Durability, replace_file
from relive.model.commit import CommitId

__all__ = ["Touched", "TouchedMemory", "learned"]

Touched = Mapping[int, Sequence[int]]
"""By pid, as the commit has it: pages, each the first of a window."""

_MOST = 128  # windows of a commit: 16 MiB
_COMMITS = 64


class TouchedMemory:
    """What is known of one commit."""

    def __init__(self, home: Path, commit: CommitId) -> None:
        self._path = home / "touched" / commit

    def read(self) -> Touched:
        """What was touched; nothing where that is not known."""
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            found = json.loads(self._path.read_bytes())
            return {int(pid): [int(page) for page in pages][:_MOST] for pid, pages in found.items()}
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
    """What is known when branches have touched this as well; None: nothing else. At most so much of each process as is worth it."""
    pids = [*known, *(pid for pid in found if pid not in known)]
    both = {pid: list(dict.fromkeys([*known.get(pid, ()), *found.get(pid, ())]))[:_MOST] for pid in pids}
    return None if both == {pid: list(pages) for pid, pages in known.items()} else both
