"""Files in memory that have names in a directory: what another process writes for this one to read at once reaches no disk."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["MemoryFiles"]

# [bytes] of all files, of which a tree has one for each process; more is given back when it has been read. Enough for two thousand
# pages twice, as what was copied ahead may be copied again in the pause: fresh memory would cost as much as copying.
_KEPT_MOST = 16 << 20


class MemoryFiles:
    """Each is there from when it was made until ``close``; its name is a link to it, good for all processes that see this one."""

    def __init__(self) -> None:
        self._files: dict[Path, int] = {}

    def make(self, path: Path) -> None:
        """Have a file under this name; raises OSError. Doing it twice is no error."""
        if path not in self._files:
            file = os.memfd_create(path.name)
            try:
                path.symlink_to(f"/proc/{os.getpid()}/fd/{file}")
            except BaseException:
                os.close(file)
                raise
            self._files[path] = file

    def give_back(self, kept: int = _KEPT_MOST) -> None:
        """Nobody needs what is in them; up to ``kept`` bytes in all keep their memory, for what is written next."""
        for file in self._files.values():
            size = os.fstat(file).st_size
            if size > kept:
                os.ftruncate(file, 0)
            else:
                kept -= size

    def close(self) -> None:
        """Let go of them; who has one open may use it on."""
        while self._files:
            path, file = self._files.popitem()
            path.unlink(missing_ok=True)
            os.close(file)
