"""Keeping a branch: a commit of what it is now, whose parent is the commit that it came from.

Its memory, threads and sockets are dumped as those of any target. Its files are the parent's with what the branch has changed
(``checkpoint.branch_layers``). Where it stands in the recording is where the parent stands: what was recorded after that
is what can be sent to it. So it has the parent's times, too, by which the host's files of then, dependencies' answers and
requests are found.
"""

from __future__ import annotations

import os
from pathlib import Path

from relive.checkpoint.branch_layers import fold_layers
from relive.checkpoint.criu import CriuTools
from relive.checkpoint.dump import capture
from relive.checkpoint.file_layers import LayerScanner, LayerSource
from relive.checkpoint.target import Target
from relive.checkpoint.watchdog import Watchdog
from relive.config import Settings
from relive.errors import TargetUndumpable
from relive.kernel import procfs
from relive.kernel.namespaces import Namespace, namespace_id
from relive.model.commit import LayerKind, Manifest, Trigger
from relive.sandbox.branch import Branch
from relive.sandbox.rootfs import layer_points
from relive.store import Store, StoredCommit

__all__ = ["commit_branch"]

# In memory a branch has these for itself; what it has of Relive there is another branch's own.
_IN_MEMORY = {"/run": frozenset({"relive", "criu.kdat"}), "/dev/shm": frozenset({"relive"})}


def commit_branch(settings: Settings, store: Store, branch: Branch) -> StoredCommit:
    """Commit a living branch, which runs on.

    Raises:
        TargetUndumpable: it is of a container, lacks memory still, or something runs in it that is not the service's.
        RefUnknown, ObjectMissing, ObjectCorrupt: the commit that it came from is gone or damaged.
        CommitFailed, DiskFull, StoreError: it was not committed; it runs on, and the store is as it was.
    """
    _refuse_what_cannot_be_kept(branch)
    parent = store.manifest(branch.facts.commit)
    target = _target_of(settings, branch, parent)
    with Watchdog(CriuTools(settings.tools_path).watchdog) as watchdog:
        taken = capture(
            target, Trigger.BRANCH, settings=settings, store=store, watchdog=watchdog, name=settings.mark
        )
    try:
        # Whoever came meanwhile may have changed files while they were read.
        _refuse_strangers(branch)
    except BaseException:
        taken.discard()
        raise
    given = [entry.path for entry in os.scandir("/run") if entry.is_dir(follow_symlinks=False)]
    taken.layers = fold_layers(parent.layers, taken.layers, given)
    taken.cursor, taken.host_name = parent.cursor, parent.host.name
    taken.taken_wall_ns, taken.taken_monotonic_ns = parent.taken_wall_ns, parent.taken_monotonic_ns
    return taken.store(store, [branch.facts.commit])


def _target_of(settings: Settings, branch: Branch, parent: Manifest) -> Target:
    """The branch's service, called as the one that was committed."""
    return Target(
        kind=parent.target.kind,
        name=parent.target.name,
        life=parent.target.life,
        root=branch.facts.root,
        inside=True,
        command=list(parent.target.command),
        sources=_sources(settings, branch),
        is_branch=True,
    )


def _sources(settings: Settings, branch: Branch) -> list[LayerSource]:
    root = Path(f"/proc/{branch.facts.init}/root")
    own = [os.path.realpath(path) for path in (settings.home, settings.tools_path)]
    found = []
    for point, upper in layer_points(branch.directory / "layers").items():
        top = point.rstrip("/") + "/"
        skip = frozenset(path.removeprefix(top) for path in own if path.startswith(top))
        scanner = LayerScanner(upper, merged=root / point.lstrip("/"))
        found.append(LayerSource(point, LayerKind.OVERLAY, scanner, skip))
    for point, skip in _IN_MEMORY.items():
        found.append(LayerSource(point, LayerKind.TMPFS, LayerScanner(root / point.lstrip("/")), skip))
    return found


def _refuse_what_cannot_be_kept(branch: Branch) -> None:
    facts, memory = branch.facts, branch.memory
    if facts.is_container:
        raise _cannot(
            branch,
            "it is a container's, whose files lie over its image",
            "change it again in each branch of its commit; those of capsules and processes can be kept",
        )
    if memory is not None and not memory.is_complete:
        raise _cannot(
            branch,
            f"{memory.percent} % of its memory is there",
            "commit it again when `relive ps` does not name a percentage any more, or restore without --lazy",
        )
    if not procfs.is_same_process(facts.root, facts.root_started):
        raise _cannot(
            branch, "its service's first process has ended", "restore its commit again, and keep that sooner"
        )
    if not layer_points(branch.directory / "layers"):
        raise _cannot(branch, "an older Relive made it", "restore its commit again, and keep that")
    _refuse_strangers(branch)


def _refuse_strangers(branch: Branch) -> None:
    """What runs beside the service is in no commit, and could change files while they are read."""
    own = namespace_id(branch.facts.root, Namespace.PID)
    service = {branch.facts.init, *procfs.tree_of(branch.facts.root)}
    strangers = [pid for pid in _processes() if pid not in service and _is_in(pid, own)]
    if strangers:
        told = ", ".join(f"{procfs.name_of(pid)} ({procfs.innermost_pid(pid)})" for pid in strangers[:5])
        raise _cannot(
            branch,
            f"beside its service there run {told}",
            "end them first: commands of `relive exec`, debuggers, and daemons that left the service's process tree",
        )


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _is_in(pid: int, namespace: int) -> bool:
    try:
        return namespace_id(pid, Namespace.PID) == namespace and procfs.exists(pid)
    except OSError:
        return False


def _cannot(branch: Branch, cause: str, remedy: str) -> TargetUndumpable:
    return TargetUndumpable(f"the branch {branch.facts.id} cannot be kept", cause=cause, remedy=remedy)
