"""Files: those open now, where they lie, and large ones beside those that the service writes."""

from __future__ import annotations

import stat
from collections.abc import Iterator

from relive.check.finding import Finding
from relive.check.rules.making import IN_A_CAPSULE, blocks, left_out, note_finding
from relive.check.snapshot import HeldDescriptor, Process, Snapshot
from relive.model.commit import TargetKind
from relive.model.quantities import size

__all__ = ["SHARES_BLOCKS", "SYSTEM", "copied_files", "files"]

SHARES_BLOCKS = frozenset({"btrfs", "xfs", "bcachefs", "ocfs2"})  # copies of files cost next to nothing there
SYSTEM = ("/usr/", "/lib", "/bin/", "/sbin/", "/etc/", "/proc/", "/dev/", "/sys/", "/memfd:", "/SYSV")
_REMOTE = ("nfs", "cifs", "smb", "9p", "ceph", "fuse", "afs", "gluster", "lustre", "virtiofs")
# Its root file system, and what is in memory, which CRIU saves.
_OWN_OF_CONTAINERS = frozenset({"overlay", "tmpfs", "devtmpfs", "devpts", "mqueue", "proc", "sysfs"})
_DELETED = " (deleted)"


def files(seen: Snapshot) -> Iterator[Finding]:
    """Of open files, of what programs and directories lie on, of data directories."""
    reported: set[tuple[int, str]] = set()
    for process, held in seen.opened():
        yield from _place(seen, process, held, reported)
        yield from _deleted(seen, process, held)
    for process in seen.processes:
        for bound in process.bound:
            yield from _place(seen, process, bound, reported)
    yield from _remote(seen)
    if seen.kind is TargetKind.PROCESS:
        yield from _of_plain_process(seen)
    elif seen.kind is TargetKind.CONTAINER:
        yield from _of_volumes(seen)
    yield from _large(seen)


def _place(
    seen: Snapshot, process: Process, held: HeldDescriptor, reported: set[tuple[int, str]]
) -> Iterator[Finding]:
    """CRIU names an open file by its mount, which has to be one that the tree's root sees."""
    if (
        not held.has_path
        or held.mount < 0
        or held.mount in seen.mounts
        or (process.pid, held.target) in reported
    ):
        return
    if stat.S_ISCHR(held.mode) and held.target.startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
        return  # CRIU is told that it is outside
    if process.spaces.get("mnt", 0) != seen.root.spaces.get("mnt", 0):
        return  # that itself is a finding
    if _is_below_a_root(seen):
        return  # in a mount namespace of its own, of which only a part can be seen
    reported.add((process.pid, held.target))
    yield blocks(
        "outside-mount",
        process,
        held.subject,
        "it lies on a mount that the service does not see: it was opened in another mount namespace, "
        "or on a file system that is mounted nowhere",
        f"{IN_A_CAPSULE}, which gives it files of its own, or have what starts it open it after it has entered the namespace",
    )


def _is_below_a_root(seen: Snapshot) -> bool:
    """The tree's root is in a chroot, in another mount namespace than Relive's, whose other mounts nobody here can list."""
    changed = any(one.target != "/" for one in seen.root.bound[2:])
    return changed and seen.root.spaces.get("mnt", 0) != seen.limits.spaces.get("mnt", 0)


def _deleted(seen: Snapshot, process: Process, held: HeldDescriptor) -> Iterator[Finding]:
    if not (held.has_path and held.target.endswith(_DELETED) and stat.S_ISREG(held.mode)):
        return
    if held.homeless and seen.kind is TargetKind.PROCESS:
        yield blocks(
            "link-remap",
            process,
            held.subject,
            "it is deleted, still has another name, and its directory is gone, where a branch would have to put it",
            "close that file, or keep its directory",
        )
    if held.links == 0 and held.size > seen.limits.ghost:
        yield blocks(
            "ghost-too-large",
            process,
            held.subject,
            f"it is deleted, and still open with {size(held.size)}: more than {size(seen.limits.ghost)}",
            "raise `ghost_limit` in relive.toml (bytes)",
        )


def _remote(seen: Snapshot) -> Iterator[Finding]:
    reported: set[str] = set()
    for process, held in seen.opened():
        mount = seen.mounts.get(held.mount)
        if (
            mount is None
            or not held.has_path
            or not mount.kind.startswith(_REMOTE)
            or mount.point in reported
        ):
            continue
        reported.add(mount.point)
        yield left_out(
            "remote-files",
            process,
            f"{mount.point} ({mount.kind})",
            "its files are shared with other machines or made by a program: a branch sees them as they are then",
            "keep what must be as it was on a file system of this host",
        )


def _of_volumes(seen: Snapshot) -> Iterator[Finding]:
    """Where a container writes to what is mounted from outside of its root file system."""
    reported: set[str] = set()
    for process, held in seen.opened():
        mount = seen.mounts.get(held.mount)
        if mount is None or not (stat.S_ISREG(held.mode) and held.has_path and held.is_writable):
            continue
        if mount.kind in _OWN_OF_CONTAINERS or mount.point in (held.target, *reported):
            continue
        reported.add(mount.point)
        yield left_out(
            "volume-files",
            process,
            f"{mount.point} ({mount.kind})",
            "of a volume or directory of the host a commit holds the files that are open in that moment; a branch sees the "
            "others as they are then",
            "`relive commit --with-volumes` holds all of it, for a container that is not watched",
        )


def copied_files(seen: Snapshot) -> list[HeldDescriptor]:
    """Open files whose content a commit of a plain process copies, each once; ``checkpoint.open_files`` does it."""
    found: dict[tuple[int, int], HeldDescriptor] = {}
    for _, held in seen.opened():
        if not (stat.S_ISREG(held.mode) and held.has_path) or held.target.endswith(_DELETED):
            continue
        if held.is_writable or not held.target.startswith(SYSTEM):
            found.setdefault((held.device, held.inode), held)
    return list(found.values())


def _of_plain_process(seen: Snapshot) -> Iterator[Finding]:
    copied = copied_files(seen)
    total = sum(one.size for one in copied)
    if total > seen.limits.open_files:
        largest = max(copied, key=lambda one: one.size)
        yield left_out(
            "open-files-too-large",
            None,
            f"{len(copied)} open files with {size(total)}, the largest {largest.target} ({size(largest.size)})",
            f"a commit of a plain process copies at most {size(seen.limits.open_files)}; a branch sees the rest as it is then",
            "raise `open_file_limit` in relive.toml (bytes)",
        )
    yield note_finding(
        "files-of-plain-process",
        None,
        f"{len(copied)} open files with {size(total)}",
        "a commit of a plain process holds the files that are open in that moment, not those it has written and closed",
        f"name them with --files, or {IN_A_CAPSULE}",
    )


def _large(seen: Snapshot) -> Iterator[Finding]:
    for one in seen.data:
        if one.size > seen.limits.base_file and one.file_system not in SHARES_BLOCKS:
            yield note_finding(
                "large-file",
                None,
                f"{one.path} ({size(one.size)})",
                f"{one.file_system} cannot share blocks between files: the service would wait for a copy of it, "
                "so that none is made in a capsule before it changes; a commit may not hold it as it was",
                "put it on btrfs or xfs, or raise `base_file_limit` in relive.toml (bytes)",
            )
