"""The disk under ``$RELIVE_HOME``: room, and whether copies of files can share their blocks."""

from __future__ import annotations

import errno
import fcntl
import os

from relive.doctor.finding import Obstacle, ProbeResult, limited, works
from relive.doctor.probe import ProbeContext
from relive.doctor.scratch import file_system_of

__all__ = ["disk", "reflink"]

_LEAST = 256 << 20  # [bytes] below it the first commits of a middling service already fill the disk
_AMPLE = 2 << 30  # [bytes]
_LEAST_FILES = 1000
_WRITTEN = 1 << 20  # [bytes]
_FICLONE = 0x40049409
_REMEDY = "free space there, set RELIVE_HOME to a larger disk, or keep fewer commits (`keep` in relive.toml)"


def disk(context: ProbeContext) -> ProbeResult:
    """Write a megabyte through to the disk, and look how much room is left."""
    path = context.directory / "written"
    with path.open("wb") as file:
        file.write(os.urandom(_WRITTEN))
        file.flush()
        os.fsync(file.fileno())
    path.unlink()
    facts = os.statvfs(context.above)
    free = facts.f_bavail * facts.f_frsize
    found = f"{_size(free)} free at {context.above} ({file_system_of(context.above).kind})"
    if facts.f_files and facts.f_favail < _LEAST_FILES:
        raise Obstacle(
            f"{facts.f_favail} files free",
            cause=f"{context.above} has hardly any inodes left",
            remedy=_REMEDY,
        )
    if free < _LEAST:
        raise Obstacle(found, cause=f"commits need at least {_size(_LEAST)}", remedy=_REMEDY)
    if free < _AMPLE:
        return limited(
            found, cause=f"less than {_size(_AMPLE)}: commits of large services may not fit", remedy=_REMEDY
        )
    return works(found)


def reflink(context: ProbeContext) -> ProbeResult:
    """Clone a file."""
    kind = file_system_of(context.directory).kind
    (context.directory / "source").write_bytes(bytes(1 << 16))
    with (
        (context.directory / "source").open("rb") as source,
        (context.directory / "clone").open("wb") as clone,
    ):
        try:
            fcntl.ioctl(clone, _FICLONE, source.fileno())
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.EXDEV):
                raise
            return limited(
                f"none on {kind}",
                cause=f"{kind} cannot share blocks between files, so the files of a commit are really copied",
                remedy="none is needed; where services write large files, put RELIVE_HOME on btrfs or xfs (reflink=1)",
            )
    return works(f"{kind} shares blocks between copies")


def _size(count: float) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"
