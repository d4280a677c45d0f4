"""What of Relive lies on the host beside its home while something of it runs: ``/run/relive``, where capsules have their mount
points and CRIU its cache, and ``/dev/shm/relive``, where rings lie. Whoever is the last to end removes it, and whoever ends rings
whose life was removed with its RELIVE_HOME.

Removing a directory on which another mount namespace has mounted something takes that mount away there (since Linux 3.18).
So who starts a capsule holds a shared lock until its mounts can be seen in /proc, and nothing is removed before all were looked
at.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from relive.model.capsule import RUN_DIRECTORY

__all__ = ["IN_MEMORY", "LIFE", "in_use", "remove_unused"]

IN_MEMORY = Path("/dev/shm/relive")
LIFE = "life"
"""In each directory there, a link to the directory of the life whose rings they are."""
_OTHERS_LIMIT = 5.0  # [s] a start or a look takes less
_OTHERS_POLL = 0.02  # [s]
_MADE_WITHIN = 60.0  # [s] the link to the life comes right after the directory
_CACHES = ("criu.kdat", "criu.kdat.tmp")


@contextlib.contextmanager
def in_use() -> Iterator[None]:
    """Nobody removes the mount points within the block."""
    held = _locked(fcntl.LOCK_SH)
    try:
        yield
    finally:
        os.close(held)


def _locked(kind: int) -> int:
    """An open descriptor of the directory, which is made if need be; raises OSError."""
    while True:
        RUN_DIRECTORY.mkdir(mode=0o755, parents=True, exist_ok=True)
        try:
            descriptor = os.open(RUN_DIRECTORY, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, kind)
            if os.fstat(descriptor).st_nlink > 0:
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was removed while we waited


def _locked_alone() -> int:
    """As ``_locked``, against everybody; waits for others who look at this moment: they may have seen us as the last one."""
    until = time.monotonic() + _OTHERS_LIMIT
    while True:
        try:
            return _locked(fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(_OTHERS_POLL)


def remove_unused() -> None:
    """Remove what no capsule needs any more. What cannot be removed stays: it does no harm."""
    with contextlib.suppress(OSError):
        _remove_orphans()
        IN_MEMORY.rmdir()
    if not RUN_DIRECTORY.exists():
        return
    with contextlib.suppress(OSError):
        held = _locked_alone()
        try:
            if not _is_mounted_on():
                _remove()
        finally:
            os.close(held)


def _remove() -> None:
    for name in _CACHES:
        (RUN_DIRECTORY / name).unlink(missing_ok=True)
    for point in RUN_DIRECTORY.iterdir():
        point.rmdir()  # not if anything is in it
    RUN_DIRECTORY.rmdir()


def _remove_orphans() -> None:
    """Remove rings that nobody will ever read, and nobody writes: of their life nothing is left, nor a capsule that has them."""
    orphans = [rings for rings in IN_MEMORY.iterdir() if _is_orphaned(rings)]
    if not orphans:
        return
    facts = os.stat(IN_MEMORY)
    device = f"{os.major(facts.st_dev)}:{os.minor(facts.st_dev)}"
    roots = {
        words[3] for text in _mounts() for line in text.splitlines() if (words := line.split())[2] == device
    }
    for rings in orphans:
        if not any(root.endswith(f"/{IN_MEMORY.name}/{rings.name}") for root in roots):
            _remove_orphan(rings)


def _remove_orphan(rings: Path) -> None:
    if (rings / LIFE).is_symlink():
        shutil.rmtree(rings, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        rings.rmdir()  # not if anything has come into it since


def _is_orphaned(rings: Path) -> bool:
    """Where the life is not told, as by an older Relive, only what is empty, and not being made right now. No file is."""
    if not rings.is_dir():
        return False
    link = rings / LIFE
    if link.is_symlink():
        return not link.exists()
    return time.time() - rings.stat().st_mtime > _MADE_WITHIN and not any(rings.iterdir())


def _is_mounted_on() -> bool:
    """A process sees a mount there."""
    wanted = f" {RUN_DIRECTORY}/"
    return any(wanted in text for text in _mounts())


def _mounts() -> Iterator[str]:
    """``mountinfo`` of each mount namespace."""
    seen = set()
    for directory in Path("/proc").iterdir():
        if not directory.name.isdecimal():
            continue
        try:
            namespace = (directory / "ns/mnt").readlink()
            if namespace not in seen:
                text = (directory / "mountinfo").read_text(errors="surrogateescape")
                seen.add(namespace)  # not sooner: where this process has ended, another one shows it
                yield text
        except OSError:  # it has ended
            continue
