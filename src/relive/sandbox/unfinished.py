"""Directories of branches that are being made: claimed by who makes them, swept when he has died over it.

Claims are those of ``kernel.claims``. Processes and mounts of such a branch need no sweeping: its process 1 leaves when the one
who makes it is gone (``ownership.py``).
"""

from __future__ import annotations

import contextlib
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from relive.kernel.claims import claimed

__all__ = ["new_place", "sweep_unfinished"]

_LEAST_AGE = 10.0  # [s] what is younger may belong to a process that has not claimed it yet


def new_place(branches: Path) -> Path:
    """Make a directory for a branch, with ``io`` and ``rings`` in it; only the owner of ``branches`` can enter that.

    What lies in it has modes of the service's: its files, images of its memory, rings in which each of its users can write. Another
    user of this host could read them, or order a debugger.
    """
    branches.mkdir(parents=True, exist_ok=True)
    branches.chmod(0o700)
    directory = branches / uuid.uuid4().hex[:8]
    (directory / "io").mkdir(parents=True)
    (directory / "rings").mkdir()
    (directory / "rings").chmod(0o1777)
    return directory


def sweep_unfinished(
    branches: Path, state: str, let_go: Callable[[Path], bool] = lambda _directory: True
) -> None:
    """Remove directories in ``branches`` without a file ``state`` that nobody claims and that are not young.

    Args:
        let_go: called with each before it is removed; False: it stays.
    """
    oldest = time.time() - _LEAST_AGE
    for directory in branches.iterdir():
        with contextlib.suppress(OSError):  # another sweeps, or the branch is being stopped
            if (directory / state).exists() or directory.stat().st_mtime > oldest:
                continue
            with claimed(directory, at_once=True):
                if not (directory / state).exists() and let_go(directory):
                    shutil.rmtree(directory, ignore_errors=True)
