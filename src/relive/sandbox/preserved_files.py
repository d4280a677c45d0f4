"""Keeping a branch's files as they are while its service goes on, over whose files it lies.

Process 1 of the service's capsule is told of the branch (``native/init/branches.h``). Before it lets the service change a path
for the first time, it has the branch keep what was there in its own upper layer. It does so for as long as the line is open that
``preserve_files`` returns, which process 1 of the branch holds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from relive.errors import RestoreUnsupported
from relive.kernel.mounts import forget_names
from relive.kernel.openat2 import look_without_links
from relive.kernel.unixpath import near
from relive.sandbox.changed_files import Change, LaterFiles, lay_change

__all__ = ["preserve_files"]

_ANSWER_WITHIN = 10.0  # [s]
_POINTS_MOST = 126  # as in native/init/branches.c: so many pairs of descriptors the kernel hands over at once (SCM_MAX_FD)


def preserve_files(
    later: LaterFiles,
    laid: dict[str, Change],
    points: Sequence[tuple[str, Path]],
    inside: Callable[[str], Path],
) -> socket.socket | None:
    """Called when the branch's overlays are mounted and nothing runs in it: the line to hold, None where nobody goes on.

    What has changed since ``laid`` was read is put into the upper layers here.

    Args:
        laid: the changes that lie below the branch already.
        points: mount points with the directories of their upper layers.
        inside: where a path of the branch is now.

    Raises:
        OSError: process 1 of the capsule does not answer, or the disk is full.
        RestoreUnsupported: the branch has too many file systems of the host for process 1 to look after.
    """
    life = later.living
    if life is None:
        return None
    if len(points) > _POINTS_MOST:
        raise RestoreUnsupported(
            f"the branch would lie over {len(points)} file systems of the host",
            cause=f"of no more than {_POINTS_MOST} what the running service changes can be kept from it",
            remedy="stop the service first, or restore on another host",
        )
    line = _register(life.files / "branches", points, inside)
    for path, change in later.read().items():
        if path not in laid:
            _put(change, path, points, inside)
    for point, _ in points:
        forget_names(inside(point))  # they were looked up before the whiteouts were made
    return line


def _register(
    place: Path, points: Sequence[tuple[str, Path]], inside: Callable[[str], Path]
) -> socket.socket | None:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with near(place) as name:
            line.connect(name)
    except OSError:
        line.close()
        # The life has ended: nothing changes any more, but in a later one, which is the newest then.
        return None
    with contextlib.ExitStack() as stack:
        descriptors = []
        for point, upper in points:
            for path in (inside(point), upper):
                descriptors.append(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
                stack.callback(os.close, descriptors[-1])
        text = bytes([len(points)]) + b"".join(os.fsencode(point) + b"\0" for point, _ in points)
        line.settimeout(_ANSWER_WITHIN)
        try:
            socket.send_fds(line, [text], descriptors)
            if not line.recv(1):
                raise ConnectionResetError("process 1 of the capsule does not take another branch")
        except OSError:
            line.close()
            raise
    line.setblocking(True)
    return line


def _put(
    change: Change, path: str, points: Sequence[tuple[str, Path]], inside: Callable[[str], Path]
) -> None:
    """Lay a change into the upper layer of a mounted overlay that nobody uses yet.

    What lies below it is the host's, where the service goes on, which may be hostile: so no symbolic link is followed, else what
    it leads to would be removed and made anew on the host itself.
    """
    fitting = [(point, upper) for point, upper in points if path.startswith(point.rstrip("/") + "/")]
    if not fitting:
        return
    point, upper = max(fitting, key=lambda one: len(one[0]))
    parent, _, name = path.removeprefix(point.rstrip("/") + "/").rpartition("/")
    with contextlib.ExitStack() as stack:
        seen = _directory(inside(point), parent, stack)
        if seen is None:
            return
        facts = os.stat(seen)
        times = facts.st_atime_ns, facts.st_mtime_ns
        os.utime(seen, ns=times)  # so that the upper layer has the directory
        _remove(f"{seen}/{name}")
        place = _directory(upper, parent, stack) if change.is_absent else seen
        # What was removed from a lower layer has left a whiteout.
        if place is not None and not (change.is_absent and os.path.lexists(f"{place}/{name}")):
            lay_change(change, Path(place) / name)
            os.utime(place, ns=times)
        os.utime(seen, ns=times)  # the branch has not changed it


def _directory(top: Path, below: str, stack: contextlib.ExitStack) -> str | None:
    """Another path of a directory, by a descriptor that ``stack`` closes; None where it is none, or a link is on the way."""
    root = os.open(top, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    stack.callback(os.close, root)
    try:
        found = look_without_links(root, below)
    except OSError:
        return None
    stack.callback(os.close, found)
    return f"/proc/self/fd/{found}" if stat.S_ISDIR(os.fstat(found).st_mode) else None


def _remove(path: str) -> None:
    """Whatever is there; where a directory is, all of it, without going through links."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)  # noqa: PTH108 - by a descriptor of its directory
