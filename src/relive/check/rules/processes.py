"""What processes themselves are: traced, in namespaces, of other users, without room for descriptors."""

from __future__ import annotations

from collections.abc import Iterator

from relive.check.finding import Finding
from relive.check.rules.making import blocks, note_finding
from relive.check.snapshot import Process, Snapshot
from relive.model.commit import TargetKind

__all__ = ["processes"]

_FREE_DESCRIPTORS = 4  # that CRIU opens in the target
_NOBODY = 3  # of Yama's ptrace_scope: not even root may attach
# CRIU saves the tree's root in most of them, but no tree in several. Those of mounts and networks it saves and cannot bring back.
_ONE_FOR_ALL = {
    "pid": "PID",
    "ipc": "IPC",
    "uts": "UTS",
    "user": "user",
    "time": "time",
    "mnt": "mount",
    "net": "network",
}


def processes(seen: Snapshot) -> Iterator[Finding]:
    """Of each process, and of the tree."""
    if seen.limits.ptrace_scope >= _NOBODY:
        yield blocks(
            "traced",
            None,
            "/proc/sys/kernel/yama/ptrace_scope",
            "nobody may attach to a process on this host, and CRIU has to for the time of a commit",
            "boot with a lower value; once it is 3 it cannot be changed",
        )
    for process in seen.processes:
        yield from _of_one(seen, process)
    yield from _namespaces(seen)
    inside = seen.pids | seen.ended
    for process in seen.processes[1:]:
        if process.session not in inside and process.session != seen.root.session:
            yield blocks(
                "session-outside",
                process,
                f"session {process.session}",
                "its session is neither that of the tree's root, nor is who began it in the tree: a restore waits for it in vain",
                "let it call setsid(2), or its session's leader live",
            )
    if seen.kind is TargetKind.PROCESS and (root := seen.root).session not in inside:
        yield note_finding(
            "session-outside",
            root,
            f"session {root.session}",
            "its session was begun by a process outside of the tree, such as a shell; a branch begins one of its own",
        )


def _of_one(seen: Snapshot, process: Process) -> Iterator[Finding]:
    if process.tracer and not seen.limits.watched:
        yield blocks(
            "traced",
            process,
            f"tracer {process.tracer}",
            "a debugger is attached to it, and a process has one tracer only",
            "detach gdb, strace, perf or the like before a commit",
        )
    ids = (*process.user, *process.group)
    if not seen.limits.reads_limits and (len(set(process.user)) > 1 or len(set(process.group)) > 1):
        yield blocks(
            "limits-of-other-user",
            process,
            "ids {}/{}/{}, groups {}/{}/{}".format(*ids),
            "its real, effective and saved ids differ, and without CAP_SYS_RESOURCE CRIU may not read its limits",
            "give Relive CAP_SYS_RESOURCE (of a container: --cap-add SYS_RESOURCE)",
        )
    opened = sum(held.number < process.most_descriptors for held in process.descriptors)
    if process.most_descriptors - opened < _FREE_DESCRIPTORS:
        yield blocks(
            "descriptors-full",
            process,
            f"{opened} of {process.most_descriptors} descriptors are open",
            f"CRIU needs {_FREE_DESCRIPTORS} free ones in it",
            "raise its RLIMIT_NOFILE (`ulimit -n`; in a systemd unit LimitNOFILE=)",
        )
    if process.state == "D":
        yield note_finding(
            "uninterruptible",
            process,
            "state D",
            "it waits for a disk or a network just now; a commit has to wait for it too, and is given up after `commit_limit`",
        )
    if process.inner_session == 0 and process.spaces.get("pid", 0) == seen.root.spaces.get("pid", 0):
        yield blocks(
            "session-outside-namespace",
            process,
            "its session",
            "it began outside of its PID namespace (as under `podman exec` or `nsenter`), where CRIU cannot name it",
            "start it with `setsid CMD`, or with `relive run`",
        )


def _namespaces(seen: Snapshot) -> Iterator[Finding]:
    root, own = seen.root, seen.limits.spaces
    if seen.kind is TargetKind.PROCESS and own.get("user", 0) != root.spaces.get("user", 0):
        yield blocks(
            "nested-namespace",
            root,
            "its user namespace",
            "it is not the one that Relive runs in, and CRIU cannot translate its user ids",
            "run Relive where its user namespace was made, or commit it as a container",
        )
    if root.spaces.get("time_for_children", 0) != root.spaces.get("time", 0):
        yield blocks(
            "nested-namespace",
            root,
            "the time namespace of its children",
            "it is not its own, and CRIU saves only one for a tree",
            "start it with `unshare --time --fork`, so that it lives in it itself",
        )
    for process in seen.processes[1:]:
        for kind, name in _ONE_FOR_ALL.items():
            if process.spaces.get(kind, 0) != root.spaces.get(kind, 0):
                yield blocks(
                    "nested-namespace",
                    process,
                    f"its {name} namespace",
                    f"it is another one than that of {root.name} (pid {root.pid}), the tree's root, and a branch can have only one",
                    "commit the inner tree by its own pid, or use the container engine; "
                    "of a systemd unit, PrivateTmp= and the like are no hindrance when set for the whole unit",
                )
