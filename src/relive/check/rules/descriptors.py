"""What processes hold open besides files and sockets: rings, devices, other processes, objects of the kernel without a name."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

from relive.check.finding import Finding
from relive.check.rules.making import IN_A_CAPSULE, blocks, note_finding
from relive.check.rules.memory import GPU
from relive.check.snapshot import HeldDescriptor, Process, Snapshot
from relive.model.commit import TargetKind

__all__ = ["descriptors"]

_SAVED = frozenset({"eventfd", "eventpoll", "inotify", "fanotify", "signalfd", "timerfd", "pidfd"})
_NAMELESS = re.compile(r"^anon_inode:\[?(?P<kind>[^\]]+)")
_OF_PROCESS = re.compile(r"^Pid:\s+(-?\d+)", re.MULTILINE)
# linux/major.h and the kernel's Documentation/admin-guide/devices.txt. A branch has nodes of these only.
_MEMORY, _VIRTUAL_TTY, _TTY, _FIRST_PTS, _LAST_PTS = 1, 4, 5, 136, 143
_IN_A_BRANCH = frozenset({3, 5, 7, 8, 9})  # null, zero, full, random, urandom
_TUN = os.makedev(10, 200)
_SPACES = re.compile(r"^(?:mnt|net|pid|ipc|uts|user|time|cgroup)(?:_for_children)?:\[\d+\]$")
_REASONS = {
    "perf_event": "a counter of perf",
    "bpf-map": "a map of BPF",
    "bpf-prog": "a program of BPF",
    "bpf_link": "a program of BPF that is attached",
    "userfaultfd": "it handles page faults itself (userfaultfd)",
    "seccomp notify": "it answers system calls of others (seccomp user notification)",
    "kvm-vm": "a virtual machine",
    "kvm-vcpu:0": "a virtual machine",
}


def descriptors(seen: Snapshot) -> Iterator[Finding]:
    """Of each descriptor once."""
    for process, held in seen.opened():
        if held.target.startswith("anon_inode:") or held.target.startswith("pidfd:"):
            yield from _nameless(seen, process, held)
        elif stat.S_ISCHR(held.mode) or stat.S_ISBLK(held.mode):
            yield from _device(process, held)
        elif stat.S_ISFIFO(held.mode) and held.target.startswith("pipe:"):
            yield from _pipe(seen, process, held)
        elif _SPACES.match(held.target):
            yield from _namespace(seen, process, held)


def _nameless(seen: Snapshot, process: Process, held: HeldDescriptor) -> Iterator[Finding]:
    match = _NAMELESS.match(held.target)
    kind = match["kind"] if match else "pidfd"
    if kind == "io_uring":
        yield blocks(
            "io-uring",
            process,
            held.subject,
            "CRIU cannot save a ring of io_uring",
            f"{IN_A_CAPSULE}, which hides io_uring so that uvloop, libuv and others fall back to epoll",
        )
    elif kind not in _SAVED:
        yield blocks(
            "unsupported-file",
            process,
            held.subject,
            f"{_REASONS.get(kind, 'an object of the kernel')}, which CRIU cannot save",
            "turn the feature off that uses it, or give it to a process of its own that is not committed",
        )
    elif kind == "pidfd":
        match = _OF_PROCESS.search(held.about)
        other = int(match[1]) if match else -1
        if other > 0 and other not in seen.pids:
            yield blocks(
                "pidfd-outside",
                process,
                held.subject,
                f"it stands for process {other}, which is not in this tree",
                "commit a tree that holds both processes",
            )
    elif kind == "eventpoll":
        yield from _epoll(process, held)
    elif kind in ("inotify", "fanotify") and held.about.count(f"{kind} "):
        yield note_finding(
            "watched-file",
            process,
            held.subject,
            "what it watches is saved, events that it has not read yet are not",
        )


def _epoll(process: Process, held: HeldDescriptor) -> Iterator[Finding]:
    for number in held.closed:
        yield blocks(
            "epoll-closed",
            process,
            held.subject,
            f"it waits for descriptor {number}, which it has closed while another process still has it open",
            "have it removed from the epoll before it is closed; when the other process closes it, commits work again",
        )


def _device(process: Process, held: HeldDescriptor) -> Iterator[Finding]:
    major, minor = os.major(held.special), os.minor(held.special)
    if held.target.startswith(GPU):
        yield blocks(
            "gpu",
            process,
            held.subject,
            "the state of a GPU is in the device",
            "let the process that talks to the GPU be one of its own, which is not committed",
        )
    elif stat.S_ISBLK(held.mode):
        yield blocks(
            "unsupported-file",
            process,
            held.subject,
            "it is a disk",
            "close it, or let a file system be on it",
        )
    elif held.special == _TUN:
        yield blocks(
            "unsupported-file",
            process,
            held.subject,
            "a network device of the host's hangs on it",
            "give the process a network namespace of its own",
        )
    elif major in (_VIRTUAL_TTY, _TTY) or _FIRST_PTS <= major <= _LAST_PTS:
        yield note_finding(
            "terminal",
            process,
            held.subject,
            "a branch has no terminal: what it writes there goes to files of the branch (`relive logs`)",
        )
    elif major != _MEMORY or minor not in _IN_A_BRANCH:
        yield blocks(
            "unsupported-file",
            process,
            held.subject,
            "the state of a device is in the device, and a branch has no such node",
            "close it; a branch has null, zero, full, random, urandom and terminals",
        )


def _pipe(seen: Snapshot, process: Process, held: HeldDescriptor) -> Iterator[Finding]:
    """A pipe with both ends inside has one that reads and one that writes."""
    ends = {one.flags & 3 for _, one in seen.opened() if one.target == held.target}
    if ends == {os.O_WRONLY}:
        yield note_finding(
            "pipe-outside",
            process,
            held.subject,
            "its reader is outside, as of a log: what is written there in a branch goes to a file of the branch",
        )
    elif ends == {os.O_RDONLY}:
        yield note_finding(
            "pipe-outside",
            process,
            held.subject,
            "nobody inside writes into it: in a branch nothing comes",
        )


def _namespace(seen: Snapshot, process: Process, held: HeldDescriptor) -> Iterator[Finding]:
    if seen.kind is TargetKind.PROCESS:
        yield blocks(
            "unsupported-file",
            process,
            held.subject,
            "it holds a namespace open, which a commit of a plain process cannot copy",
            "close it before a commit",
        )
