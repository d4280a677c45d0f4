"""What was seen of a process tree: plain values, made by ``reading`` or by a test."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

from relive.kernel.mounts import Mount
from relive.kernel.procfs import Mapping
from relive.kernel.unixdiag import UnixSocket
from relive.model.commit import TargetKind

__all__ = ["DataFile", "HeldDescriptor", "Internet", "Limits", "Memory", "Outsider", "Process", "Snapshot"]


@dataclass(frozen=True, slots=True)
class HeldDescriptor:
    """An open descriptor, or what a process is bound to in another way.

    Attributes:
        number: -1 of a process's program, working directory and root.
        target: as /proc/PID/fd says it.
        flags: of open(2), 0 where they could not be read.
        mount: number of the mount it was opened on, -1 if unknown.
        about: the further lines of its fdinfo.
        protocol: of a socket, as the kernel names it (``TCP``, ``UNIX-STREAM``, ``AF_VSOCK``).
        closed: numbers that an epoll waits for and that no descriptor of the process leads to any more.
        homeless: of a deleted file, its directory is gone too.
    """

    number: int
    target: str
    mode: int
    inode: int = 0
    device: int = 0
    special: int = 0
    size: int = 0
    links: int = 1
    flags: int = 0
    mount: int = -1
    about: str = ""
    protocol: str = ""
    closed: tuple[int, ...] = ()
    homeless: bool = False

    @property
    def subject(self) -> str:
        """What findings call it."""
        return f"descriptor {self.number} ({self.target})" if self.number >= 0 else self.target

    @property
    def is_writable(self) -> bool:
        """It was opened for writing."""
        return self.flags & 3 != 0

    @property
    def is_socket(self) -> bool:
        """It leads to a socket."""
        return stat.S_ISSOCK(self.mode)

    @property
    def has_path(self) -> bool:
        """It lies, or lay, on a file system, and not in the kernel's memory."""
        return self.target.startswith("/") and not self.target.startswith(
            ("/memfd:", "/SYSV", "/[aio]", "/secretmem", "/dev/zero (deleted)", "/anon_hugepage", "/dmabuf")
        )


@dataclass(frozen=True, slots=True)
class Memory:
    """In bytes: what a commit has to save.

    Attributes:
        private: anonymous pages and changed private pages of files, also those swapped out.
        shared: its part of anonymous shared memory and tmpfs that it has mapped.
        backed: pages of files, which are not saved.
    """

    private: int = 0
    shared: int = 0
    backed: int = 0
    locked: int = 0
    huge: int = 0


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the tree.

    Attributes:
        state: as in /proc/PID/stat.
        user, group: real, effective and saved ids.
        tracer: host pid of a debugger, 0 without one.
        session: number of its session on the host; inner_session, inner_pid: of its session and of itself in its own PID
            namespace, the former 0 where that is outside of it.
        spaces: inode number of each namespace by its name in /proc/PID/ns.
        bound: its program, working directory and root directory, as descriptors with the number -1.
        most_descriptors: RLIMIT_NOFILE.
    """

    pid: int
    name: str
    state: str = "S"
    threads: int = 1
    session: int = 0
    inner_session: int = 1
    inner_pid: int = 1
    user: tuple[int, int, int] = (0, 0, 0)
    group: tuple[int, int, int] = (0, 0, 0)
    tracer: int = 0
    spaces: dict[str, int] = field(default_factory=dict)
    descriptors: tuple[HeldDescriptor, ...] = ()
    bound: tuple[HeldDescriptor, ...] = ()
    mappings: tuple[Mapping, ...] = ()
    memory: Memory = field(default_factory=Memory)
    most_descriptors: int = 1024


@dataclass(frozen=True, slots=True)
class Internet:
    """A TCP connection: own and other end, each (address, port)."""

    local: tuple[str, int]
    peer: tuple[str, int]
    listens: bool


@dataclass(frozen=True, slots=True)
class Outsider:
    """A process outside of the tree."""

    pid: int
    name: str


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file in a directory in which the service writes."""

    path: str
    size: int
    file_system: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Of Relive and of this host.

    Attributes:
        base_file: bytes of a file above which a capsule keeps no copy of it before a change, where that would be a real one.
        pre_copy_from: as of ``Settings``.
        reads_limits: the caller has CAP_SYS_RESOURCE.
        spaces: of the caller; see ``Process.spaces``.
        ptrace_scope: of Yama, 0 without it.
        watched: Relive's own failure watch is the tracer of all processes, and steps aside for a commit.
        load: processes that want to run, for each processor.
    """

    ghost: int = 1 << 30
    open_files: int = 1 << 30
    base_file: int = 256 << 20
    pre_copy_from: int | None = None
    reads_limits: bool = True
    ptrace_scope: int = 0
    watched: bool = False
    load: float = 0.0
    spaces: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A process tree, its root first.

    Attributes:
        ended: host pids of zombies among it.
        unix, connections, unread: sockets by inode; the last, bytes that wait in netlink sockets.
        owners: of the other ends of unix sockets, by inode, where they are outside.
        mounts: of the root's mount namespace, by number.
        data: large files beside those that the service writes.
    """

    kind: TargetKind
    processes: tuple[Process, ...]
    ended: frozenset[int] = frozenset()
    unix: dict[int, UnixSocket] = field(default_factory=dict)
    connections: dict[int, Internet] = field(default_factory=dict)
    unread: dict[int, int] = field(default_factory=dict)
    owners: dict[int, Outsider] = field(default_factory=dict)
    mounts: dict[int, Mount] = field(default_factory=dict)
    data: tuple[DataFile, ...] = ()
    limits: Limits = field(default_factory=Limits)

    @property
    def root(self) -> Process:
        """The first process."""
        return self.processes[0]

    @property
    def pids(self) -> frozenset[int]:
        """Host pids of all processes."""
        return frozenset(one.pid for one in self.processes)

    @property
    def sockets(self) -> frozenset[int]:
        """Inodes of all sockets that are open in the tree."""
        return frozenset(held.inode for _, held in self.opened() if held.is_socket)

    def opened(self) -> Iterator[tuple[Process, HeldDescriptor]]:
        """Every descriptor once, with the first process that has it (children share those of their parents)."""
        seen: set[tuple[object, ...]] = set()
        for process in self.processes:
            for held in process.descriptors:
                key = (held.number, held.target, held.inode, held.device)
                if key not in seen:
                    seen.add(key)
                    yield process, held
