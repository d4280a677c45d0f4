"""Snapshots for tests of rules: a tree of one process, with what a test adds."""

from __future__ import annotations

import stat
from dataclasses import replace
from typing import Any

from relive.check.finding import Finding, Severity
from relive.check.rules import findings_of
from relive.check.snapshot import HeldDescriptor, Limits, Process, Snapshot
from relive.kernel.mounts import Mount
from relive.model.commit import TargetKind

__all__ = ["FILE", "ROOT", "SOCKET", "SPACES", "blocking", "file", "found", "tree"]

SPACES = dict.fromkeys(("mnt", "net", "ipc", "uts", "pid", "user", "time", "time_for_children", "cgroup"), 1)
FILE, SOCKET = stat.S_IFREG | 0o644, stat.S_IFSOCK | 0o777
ROOT = Mount(identifier=1, device="8:1", root="/", point="/", kind="ext4", source="/dev/sda1", options="rw")


def process(pid: int = 10, **fields: Any) -> Process:
    """One that nothing stands against."""
    return replace(Process(pid=pid, name="service", session=10, spaces=dict(SPACES)), **fields)


def tree(
    *descriptors: HeldDescriptor,
    kind: TargetKind = TargetKind.PROCESS,
    children: tuple[Process, ...] = (),
    root: dict[str, Any] | None = None,
    **fields: Any,
) -> Snapshot:
    """A root with these descriptors, and its children."""
    first = process(descriptors=descriptors, **(root or {}))
    fields.setdefault("limits", Limits(spaces=dict(SPACES)))
    fields.setdefault("mounts", {1: ROOT})
    return Snapshot(kind=kind, processes=(first, *children), **fields)


def file(path: str, **fields: Any) -> HeldDescriptor:
    """An open file on the root's file system."""
    return replace(HeldDescriptor(number=3, target=path, mode=FILE, inode=7, device=8, mount=1), **fields)


def found(seen: Snapshot, severity: Severity | None = None) -> list[Finding]:
    """All findings but the one that every plain process has."""
    return [
        one
        for one in findings_of(seen)
        if one.code != "files-of-plain-process" and severity in (None, one.severity)
    ]


def blocking(seen: Snapshot) -> set[str]:
    """Codes of what blocks."""
    return {one.code for one in found(seen, Severity.BLOCKS)}
