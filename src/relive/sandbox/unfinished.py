"""Directories of branches that are being made: claimed by who makes them, swept when he has died over it.

Claims are those of ``kernel.claims``, and a directory is there only with its claim: what has none is left over, however young.
Processes and mounts of such a branch need no sweeping: its process 1 leaves when the one who makes it is gone (``ownership.py``).
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from relive.kernel.claims import claimed, new_claimed, seen_claimed
from relive.kernel.disk_errors import disk_errors

__all__ = ["new_place", "sweep_unfinished"]


@contextlib.contextmanager
def new_place(branches: Path) -> Iterator[Path]:
    """Make a directory for a branch, with ``io`` and ``rings`` in it, claimed for the block; it stays at the end of that.

    Only the owner of ``branches`` can enter that.

    What lies in it has modes of the service's: its files, images of its memory, rings in which each of its users can write. Another
    user of this host could read them, or order a debugger.

    Raises:
        DiskFull, HostIncapable, StoreError: it cannot be made.
    """
    with disk_errors("making a directory for the branch", branches.parent):
        branches.mkdir(parents=True, exist_ok=True)
        branches.chmod(0o700)
    directory = branches / uuid.uuid4().hex[:8]
    with new_claimed(directory):
        (directory / "io").mkdir()
        (directory / "rings").mkdir()
        (directory / "rings").chmod(0o1777)
        yield directory


def sweep_unfinished(
    branches: Path, state: str, let_go: Callable[[Path], bool] = lambda _directory: True
) -> None:
    """Remove directories in ``branches`` without a file ``state`` that nobody claims.

    Args:
        let_go: called with each before it is removed; False: it stays.
    """
    for directory in seen_claimed(branches):
        with contextlib.suppress(OSError):  # another sweeps, or the branch is being stopped
            if (directory / state).exists():
                continue
            with claimed(directory, at_once=True):
                if not (directory / state).exists() and let_go(directory):
                    shutil.rmtree(directory, ignore_errors=True)
