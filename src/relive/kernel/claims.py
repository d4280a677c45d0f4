"""Claims on files and directories in the making, and the removal of what their makers left when they were killed.

A claim is an flock(2), which ends with its holder, however that ends. So what is not finished and not claimed is left over. Between
its making and its claim it looks so, too: those who sweep spare what is young, or nobody sees it then (``new_claimed``).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["claimed", "new_claimed", "remove_left_over", "seen_claimed"]


@contextlib.contextmanager
def claimed(path: Path, *, at_once: bool = False) -> Iterator[int]:
    """Keep a file or directory from being swept within the block; gives the descriptor that holds it.

    Args:
        at_once: do not wait for another who has claimed it.

    Raises:
        BlockingIOError: another has claimed it; OSError: it is not there, or is a link.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if at_once else 0))
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def new_claimed(directory: Path) -> Iterator[None]:
    """Make a directory, claimed for the block; ``seen_claimed`` of its parent never sees it without the claim."""
    with contextlib.ExitStack() as stack:
        with claimed(directory.parent):
            directory.mkdir()
            stack.enter_context(claimed(directory))
        yield


def seen_claimed(parent: Path) -> list[Path]:
    """What is in a directory: all that was made by ``new_claimed`` is claimed, finished, or left over."""
    with claimed(parent):
        return list(parent.iterdir())


def remove_left_over(
    path: Path, is_left_over: Callable[[os.stat_result], bool] = lambda _facts: True
) -> bool:
    """Remove a file, or a directory with all that is in it, unless somebody claims it. Raises nothing: it stays, then.

    Args:
        is_left_over: asked while it is claimed here; False: it stays.
    """
    with contextlib.suppress(OSError), claimed(path, at_once=True) as descriptor:
        facts = os.fstat(descriptor)
        if not is_left_over(facts):
            return False
        if stat.S_ISDIR(facts.st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
        return True
    return False
