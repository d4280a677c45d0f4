"""Overlays as capsules and branches need them, with their upper layer on the file system of ``$RELIVE_HOME``."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from relive.doctor.finding import Obstacle, ProbeResult, in_words, works
from relive.doctor.probe import ProbeContext
from relive.doctor.scratch import file_system_of
from relive.kernel.mounts import make_private, mount_overlay, unmount
from relive.kernel.namespaces import Namespace, unshare
from relive.sandbox.rootfs import CoveredPoint, RootBuilder

__all__ = ["overlay"]

_OPAQUE = "trusted.overlay.opaque"


def overlay(context: ProbeContext) -> ProbeResult:
    """In a mount namespace of its own: write, delete and replace through one; then a branch's root of three layers."""
    unshare(Namespace.MOUNT)
    make_private()
    kind = file_system_of(context.directory).kind
    try:
        _layers(context.directory / "plain")
        _branch_root(context)
    except OSError as error:
        raise _explain(error, kind) from None
    return works(f"on {kind}; whiteouts, opaque directories, a branch's root over /")


def _explain(error: OSError, kind: str) -> Obstacle:
    if error.errno == errno.ENODEV:
        return Obstacle(
            "none",
            cause="this kernel has no overlayfs",
            remedy="run `modprobe overlay`, or use a kernel that has it",
        )
    if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
        return Obstacle(
            f"not on {kind}",
            cause=f"RELIVE_HOME lies on {kind}, which cannot hold the upper layer of an overlay ({in_words(error)})",
            remedy="set RELIVE_HOME to a directory on ext4, xfs, btrfs or tmpfs",
        )
    raise error


def _layers(place: Path) -> None:
    lower, upper, work, point = (place / name for name in ("lower", "upper", "work", "point"))
    for directory in (lower / "replaced", upper, work, point):
        directory.mkdir(parents=True)
    for name in ("deleted", "kept", "replaced/old"):
        (lower / name).write_text("below")
    mount_overlay(point, lower=[lower], upper=upper, work=work)
    (point / "kept").write_text("above")
    (point / "deleted").unlink()
    (point / "replaced" / "old").unlink()
    (point / "replaced").rmdir()
    (point / "replaced").mkdir()
    unmount(point)
    facts = (upper / "deleted").lstat()
    _expect(
        stat.S_ISCHR(facts.st_mode) and facts.st_rdev == 0,
        "a deleted file left no whiteout in the upper layer",
    )
    _expect(os.getxattr(upper / "replaced", _OPAQUE) == b"y", "a replaced directory was not marked opaque")
    _expect((upper / "kept").read_text() == "above", "a written file did not reach the upper layer")
    _expect((lower / "kept").read_text() == "below", "a written file reached the lower layer")


def _branch_root(context: ProbeContext) -> None:
    committed = context.directory / "committed"
    committed.mkdir()
    (committed / "relive-doctor").write_text("of the commit")
    builder = RootBuilder(context.directory, home=context.directory, tools=context.settings.tools_path)
    builder.cover(CoveredPoint("/", "00"), [committed])
    ours = builder.inside("/relive-doctor")
    _expect(ours.read_text() == "of the commit", "a committed file is not seen over the host's")
    _expect(builder.inside("/proc").is_dir(), "the host's files are not seen below the commit's")
    ours.write_text("of the branch")
    _expect(
        (committed / "relive-doctor").read_text() == "of the commit", "a branch's write reached the commit"
    )


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Obstacle(
            "wrong", cause=otherwise, remedy="set RELIVE_HOME to a directory on ext4, xfs, btrfs or tmpfs"
        )
