"""Where the rings of a container's Python processes lie on the host: ``RELIVE_HOME/rings/NAME``, one directory for each container.

Beside it lies ``NAME.env``, the variables that the container was given.

In it a file system in memory is mounted, since the rings' pages must never wait for a disk. The directory below stays after a
reboot, when that is gone: the container must start all the same. Its rings then lie on the disk until it is created again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path

from relive.config import Settings
from relive.errors import HostIncapable
from relive.kernel.mounts import MountFlag, mount, unmount

__all__ = ["make_place", "remove_place"]

_SIZE = "50%"  # of the host's memory, at most; it takes what the rings take


def make_place(settings: Settings) -> Path:
    """Make one. Every user in the container may make files in it; on the host nobody but the caller (root) reaches it.

    Raises:
        HostIncapable: it cannot be mounted, or RELIVE_HOME cannot be written.
    """
    top = settings.home / "rings"
    place = top / secrets.token_hex(6)
    try:
        settings.home.mkdir(parents=True, exist_ok=True)
        top.mkdir(mode=0o700, exist_ok=True)
        top.chmod(0o700)
        place.mkdir()
        place.chmod(0o1777)
        mount("relive", place, "tmpfs", MountFlag.NO_SUID | MountFlag.NO_DEVICES, f"mode=1777,size={_SIZE}")
    except OSError as error:
        with contextlib.suppress(OSError):
            place.rmdir()
        raise HostIncapable(
            f"there is no place for the rings of a container: {place} cannot be made",
            cause=error.strerror or str(error),
            remedy="run it as root, with RELIVE_HOME on a file system that can be written",
        ) from error
    return place


def remove_place(settings: Settings, place: Path) -> None:
    """Remove it, once its container is gone; a directory that is not one of ours is let be."""
    if place.parent != settings.home / "rings":
        return
    while os.path.ismount(place):
        unmount(place)
    shutil.rmtree(place, ignore_errors=True)
    place.with_suffix(".env").unlink(missing_ok=True)
