"""What no honest dump says: refused before CRIU is asked to restore it.

A commit may come from elsewhere, and CRIU, which has root's rights, opens and makes what its images name. So names that lead to
what is the machine's, device nodes and namespaces that a branch does not have are looked for here. What an image may say, but a
branch is not to have, is taken away in ``rights`` and ``sandbox_filters``; what the restored processes really hold is proved in
``sandbox.confinement``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from relive.errors import ObjectCorrupt
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries, read_first

__all__ = [
    "is_of_the_machine",
    "refuse_hostile_images",
    "refuse_hostile_processes",
    "threads_of",
    "untrusted",
]

_PROCESSES_MOST, _THREADS_MOST, _NUMBER_MOST = 1 << 16, 1 << 18, 1 << 22  # the last: PID_MAX_LIMIT
# Links of /proc that lead on to what another process has, and memory: no process has them open under these names.
_MAGIC = re.compile(r"/*proc/+[^/]+/+(task/+[^/]+/+)?(fd|cwd|root|exe|map_files|ns|mem|pagemap)(/|$)")
_HIDDEN = re.compile(r"/*proc/+(kcore|kmsg|keys|kallsyms|kpage\w+|timer_list|sched_debug|sysrq-trigger)$")
_KERNELS = re.compile(r"/*(proc|sys)/")
# What a process may set of itself, and that checks who does.
_OWN = re.compile(
    r"/proc/([0-9]+|self|thread-self)/(task/[0-9]+/)?(comm|coredump_filter|oom_score_adj|timerslack_ns)"
)
# Of mount, user and PID namespaces other than those that the branch is given, and of what networks of their own would hold: CRIU
# would make them, by programs that it finds in the branch. A network itself is the branch's, see ``shared_namespaces``.
_NAMESPACES = (
    *("mountpoints-", "userns-", "pidns-", "netdev-", "ifaddr-", "route-", "route6-", "rule-"),
    *("iptables-", "ip6tables-", "nftables-", "tmpfs-", "binfmt-misc-", "autofs-"),
)
_GHOST = "ghost-file-"
_KINDS_OF_GHOSTS = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO, stat.S_IFSOCK)


def untrusted(what: str, cause: str) -> ObjectCorrupt:
    """The error of a commit that says what no dump says."""
    return ObjectCorrupt(f"the commit {what}", cause=cause, remedy="do not trust this commit")


def refuse_hostile_processes(processes: Sequence[pb.PstreeEntry]) -> None:
    """Raises ObjectCorrupt where the list of processes is none that a dump makes."""
    threads = sum(len(one.threads) for one in processes)
    if len(processes) > _PROCESSES_MOST or threads > _THREADS_MOST:
        raise untrusted(
            f"names {len(processes)} processes with {threads} threads",
            "no service that was restored has so many",
        )
    for one in processes:
        # Not those of its threads: of a dead process CRIU writes any there, and reads none of them.
        if not 0 < one.pid < _NUMBER_MOST:
            raise untrusted(f"names a process {one.pid}", "that is a number that no kernel gives")


def threads_of(process: pb.PstreeEntry) -> list[int]:
    """The threads of a process of which CRIU reads an image: its first one always, whether it is named or not; it comes first."""
    return [process.pid, *(number for number in process.threads if number != process.pid)]


def refuse_hostile_images(images: Path, *, is_container: bool) -> None:
    """Raises ObjectCorrupt where images laid out in a directory name what is the machine's, or are damaged.

    Args:
        is_container: its namespaces are its own, see ``mounts`` and ``shared_namespaces``.
    """
    # Not by patterns: to compile one takes a process as long as to read an image, and a branch waits for it.
    names = [name for name in os.listdir(images) if name.endswith(".img")]
    if not is_container:
        found = [name for name in names if name.startswith(_NAMESPACES)]
        if found:
            raise untrusted(
                f"holds the image {found[0]}", "a branch has one mount namespace and one network, its own"
            )
    if (images / "files.img").exists():
        for entry in read_entries(images / "files.img", pb.FileEntry):
            _check_file(entry)
    for name in names:
        if not name.startswith(_GHOST):
            continue
        ghost = read_first(images / name, pb.GhostFileEntry)
        if stat.S_IFMT(ghost.mode) not in _KINDS_OF_GHOSTS:
            raise untrusted(f"makes a device node ({name})", f"its mode is {ghost.mode:#o}")


def _check_file(entry: pb.FileEntry) -> None:
    if entry.HasField("reg"):
        name = entry.reg.name
        if ".." in name.split("/") or "\0" in name:
            raise untrusted(f"has {name!r} open", "no kernel names an open file so")
        if is_of_the_machine(name, writable=bool(entry.reg.flags & os.O_ACCMODE)):
            raise untrusted(f"has {name!r} open", "it leads to what is the machine's or another process's")
    if entry.HasField("usk"):
        name = os.fsdecode(entry.usk.name)
        if not name.startswith("\0") and _KERNELS.match(name):
            raise untrusted(f"has a socket {name!r}", "no socket can be there")


def is_of_the_machine(name: str, *, writable: bool) -> bool:
    """A process that has this path open could act on the machine, or on a process that is none of the branch's."""
    if _MAGIC.match(name) or _HIDDEN.match(name):
        return True
    return writable and _KERNELS.match(name) is not None and _OWN.fullmatch(name) is None
