"""Following the files of a life: what process 1 has to know of the lives before it, and the moment of its own end."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from relive.checkpoint.journal import Control, read_journal
from relive.config import Settings
from relive.errors import CapsuleVersionUnknown
from relive.kernel import libc
from relive.model.capsule import CapsuleSpec, DataChoice
from relive.model.life_paths import LifePaths
from relive.store import Store

__all__ = ["hold_listener", "prepare_following"]

_PIDFD_GETFD = 438  # Linux 5.6
_LISTENER = "anon_inode:seccomp notify"


def prepare_following(settings: Settings, spec: CapsuleSpec, paths: LifePaths) -> None:
    """Lay down what process 1 reads when it starts (``native/init/track.c``).

    ``covered`` is there where earlier lives have commits. It holds the paths of which none of these needs a base: each was touched
    in the last life that has commits, or after it, so those commits hold it, or a base was kept then. ``held`` names the
    directories that each commit holds whole.

    Raises:
        OSError: the disk is full.
    """
    Control(paths.files)
    held = [path for path, choice in spec.data.items() if choice is DataChoice.COPY]
    _write(paths.files / "held", held)
    store = Store(settings.store)
    try:
        committed = {commit.life for commit in store.log(spec.name)}
    finally:
        store.close()
    earlier = sorted(
        path.name for path in paths.directory.parent.iterdir() if path.name != paths.directory.name
    )
    with_commits = [life for life in earlier if life in committed]
    if not with_commits:
        return
    covered: set[str] = set()
    for life in earlier[earlier.index(with_commits[-1]) :]:
        journal = LifePaths(paths.directory.parent / life).files
        try:
            covered.update(record.path for record in read_journal(journal))
        except CapsuleVersionUnknown:
            return  # then a base is kept of each path
    _write(paths.files / "covered", sorted(covered))


def hold_listener(init: int) -> int | None:
    """A duplicate of the descriptor by which process 1 is asked, for as long as the caller lives; None where it is not asked.

    When process 1 is killed, the kernel closes its descriptors before it kills the others in its PID namespace. With the last
    one closed, calls of the service would fail with ENOSYS in that moment, which it might write into its files as its last
    words; with this one they wait for their end.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{init}/fd"):
            if os.readlink(f"/proc/{init}/fd/{name}") == _LISTENER:
                handle = os.pidfd_open(init)
                try:
                    return libc.syscall(_PIDFD_GETFD, handle, int(name), 0)
                finally:
                    os.close(handle)
    return None


def _write(path: Path, texts: list[str]) -> None:
    path.write_bytes(b"".join(os.fsencode(text) + b"\0" for text in texts))
