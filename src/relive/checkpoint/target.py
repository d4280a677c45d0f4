"""Targets: what can be committed, found and checked before anything is stopped."""

from __future__ import annotations

import os
import platform
import re
import socket
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from relive.checkpoint.file_layers import LayerSource
from relive.checkpoint.open_paths import open_link_targets
from relive.checkpoint.tracked_files import FollowedFiles
from relive.errors import PermissionMissing, ProcessGone, TargetUndumpable
from relive.kernel import procfs
from relive.kernel.cpu import instruction_sets
from relive.kernel.namespaces import Namespace, namespace_id
from relive.model.commit import ContainerFacts, FileEntry, HostFacts, TargetKind

__all__ = [
    "Contained",
    "StoppedBy",
    "Target",
    "check_dumpable",
    "host_facts",
    "process_target",
    "terminals_of",
]

# admin-guide/devices.rst of the kernel
_TTY, _PTMX = os.makedev(5, 0), os.makedev(5, 2)
_PTS_MAJOR, _PTS_EACH = 136, 256  # the first of eight major numbers, and how many terminals each has
_HUNG_UP = " (deleted)"  # behind the name of a terminal whose other side nobody has open any more: CRIU brings it back as it is
_TTY_INDEX = re.compile(r"^tty-index:\s*(?P<index>[0-9]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Contained:
    """What a container needs beside what any process tree does.

    Attributes:
        root: its root file system, as the host sees it.
        external: CRIU's options for what is bound into it from outside.
        members: of its checkpoint archive, by path: what only its engine understands; bytes, a file that is moved into the
            store, or the entry of one that is there.
        lower: directories of the image's layers, the uppermost first.
    """

    facts: ContainerFacts
    root: str
    external: list[str]
    members: dict[str, bytes | Path | FileEntry]
    lower: tuple[Path, ...]


@dataclass(slots=True)
class Target:
    """Something that can be committed.

    Attributes:
        root: host pid of the tree's root.
        inside: CRIU has to enter the root's mount and PID namespaces.
        sources: directories that are committed with it.
        extra_files: further files and directories committed with a plain process.
        contained: of a container only.
        followed: what is known of the files that it changes on the host; None where it does not write to the host, or is not
            followed. Its sources are then this one's.
        is_branch: what it has mapped lies under two overlays. And it may be an enemy, which exchanges
            directories for links while they are read, so that is done while it stands still only.
    """

    kind: TargetKind
    name: str
    life: str | None
    root: int
    inside: bool
    command: list[str]
    sources: list[LayerSource] = field(default_factory=list)
    extra_files: list[Path] = field(default_factory=list)
    contained: Contained | None = None
    followed: FollowedFiles | None = None
    is_branch: bool = False

    @property
    def holds_files(self) -> bool:
        """Its commits hold what it has written, not only what it has open."""
        return bool(self.sources) or self.followed is not None


@dataclass(frozen=True, slots=True)
class StoppedBy:
    """A process of a target stands before its death while the commit is taken; pids as the host sees them.

    Attributes:
        signal: a fatal one that is withheld; None: it exits.
    """

    signal: int | None
    pid: int
    thread: int


def process_target(pid: int, extra_files: Iterable[Path] = ()) -> Target:
    """Any running process tree, by the pid of its root.

    Raises:
        ProcessGone: there is no such process.
        TargetUndumpable: it is a kernel thread, a zombie, process 1, or Relive itself.
    """
    _check_has_state(pid)
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
        kinds = (Namespace.MOUNT, Namespace.PID)
        inside = any(namespace_id(pid, kind) != namespace_id("self", kind) for kind in kinds)
    except OSError:
        raise _gone(pid) from None
    return Target(TargetKind.PROCESS, f"pid:{pid}", None, pid, inside, command, extra_files=list(extra_files))


def check_dumpable(pid: int) -> None:
    """Find what would make a dump fail, while nothing is stopped yet.

    Raises:
        PermissionMissing: the caller is not root.
        ProcessGone: there is no such process.
        TargetUndumpable: it can never be dumped, or a debugger holds one of its threads.
    """
    _check_has_state(pid)
    for member in procfs.tree_of(pid):
        _check_untraced(member)
        _check_without_rings(member)


def _check_has_state(pid: int) -> None:
    """That it is a process of its own, whoever traces it now. Raises as ``check_dumpable``."""
    if os.geteuid() != 0:
        raise PermissionMissing(
            "committing a process needs root", cause=f"this is uid {os.geteuid()}", remedy="run it with sudo"
        )
    facts = procfs.read_stat(pid)
    if facts is None:
        raise _gone(pid)
    if facts.kernel_thread:
        raise TargetUndumpable(
            f"{pid} ({facts.comm}) is a kernel thread",
            cause="it has no memory of its own",
            remedy="name a user process",
        )
    if facts.has_ended:
        raise TargetUndumpable(
            f"{pid} ({facts.comm}) has ended already",
            cause="only its exit status is left (a zombie)",
            remedy="name a living process",
        )
    if pid == 1 or os.getpid() in procfs.tree_of(pid):
        raise TargetUndumpable(
            f"{pid} ({facts.comm}) cannot be committed",
            cause="it is this system's first process, or this command runs below it",
            remedy="name the service itself",
        )


def _check_untraced(pid: int) -> None:
    for thread in procfs.threads_of(pid):
        try:
            text = Path(f"/proc/{pid}/task/{thread}/status").read_text()
        except OSError:
            continue
        tracer = int(text.partition("TracerPid:")[2].split(maxsplit=1)[0] or 0)
        if tracer:
            facts = procfs.read_stat(tracer)
            name = facts.comm if facts is not None else "?"
            raise TargetUndumpable(
                f"process {pid} cannot be committed",
                cause=f"{name} (pid {tracer}) is attached to it as a debugger",
                remedy=f"detach {name} and commit again",
            )


def _check_without_rings(pid: int) -> None:
    """CRIU stumbles over an io_uring with words that fit other causes too, and only with the target stopped."""
    if any(target == "anon_inode:[io_uring]" for target in open_link_targets(pid)):
        raise TargetUndumpable(
            f"process {pid} cannot be committed: it uses io_uring",
            cause="CRIU cannot save an anon_inode:[io_uring]",
            remedy="start it with `relive run`, which hides io_uring so that the service falls back to epoll",
        )


def _gone(pid: int) -> ProcessGone:
    return ProcessGone(
        f"there is no process {pid}", remedy="`ps -e` lists processes, `relive ps` what Relive runs"
    )


def host_facts(criu: str, name: str | None = None) -> HostFacts:
    """This machine, under another name where one is given."""
    return HostFacts(
        name=name or socket.gethostname(),
        kernel=platform.release(),
        criu=criu,
        machine=platform.machine(),
        cpu=instruction_sets(),
    )


def terminals_of(root: int) -> list[str]:
    """CRIU's keys (``tty[RDEV:DEV]``, hexadecimal) of terminals that the tree has open, and whose other side is outside of it."""
    keys: set[str] = set()
    found = [one for pid in procfs.tree_of(root) for one in _character_devices(pid)]
    own = {_own_side(pid, descriptor) for pid, descriptor, facts, _ in found if facts.st_rdev == _PTMX}
    for pid, _, facts, target in found:
        if not target.startswith(("/dev/pts/", "/dev/tty", "/dev/console")) or target.endswith(_HUNG_UP):
            continue
        # /dev/tty is the terminal of the process's session, whichever that is.
        device = procfs.terminal_of(pid) if facts.st_rdev == _TTY else facts.st_rdev
        if device not in own:
            keys.add(f"tty[{facts.st_rdev:x}:{facts.st_dev:x}]")
    return sorted(keys)


def _character_devices(pid: int) -> Iterator[tuple[int, str, os.stat_result, str]]:
    """(pid, descriptor, its facts, its name) of each that a process has open."""
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for descriptor in descriptors:
        path = f"/proc/{pid}/fd/{descriptor}"
        try:
            facts, target = os.stat(path), os.readlink(path)
        except OSError:
            continue
        if stat.S_ISCHR(facts.st_mode):
            yield pid, descriptor, facts, target


def _own_side(pid: int, descriptor: str) -> int | None:
    """The device of the terminal that belongs to a master side (pty(7)); None where the kernel does not tell."""
    try:
        match = _TTY_INDEX.search(Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text())
    except OSError:
        return None
    if match is None:
        return None
    index = int(match["index"])
    return os.makedev(_PTS_MAJOR + index // _PTS_EACH, index % _PTS_EACH)
