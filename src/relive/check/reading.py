"""A process tree as /proc, sock_diag and file systems show it. Nothing is stopped, signalled or attached to.

All of it may be stale at once: what a service opens, maps and connects later is not there, and what ended meanwhile is left out.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from relive.check.datafiles import large_files
from relive.check.snapshot import HeldDescriptor, Internet, Limits, Memory, Outsider, Process, Snapshot
from relive.config import Settings
from relive.errors import PermissionMissing, ProcessGone, TargetUndumpable
from relive.kernel import procfs
from relive.kernel.kcmp import is_epoll_target
from relive.kernel.mounts import read_mounts
from relive.kernel.namespaces import in_network_of
from relive.kernel.unixdiag import UnixSocket, unix_sockets
from relive.model.commit import TargetKind

__all__ = ["read_tree"]

_SOCKET = re.compile(r"^socket:\[\d+\]$")
_WATCHED = re.compile(r"^tfd:\s+(?P<number>\d+).*?ino:(?P<inode>[0-9a-f]+)", re.MULTILINE)
_EPOLL = "anon_inode:[eventpoll]"
_ABOUT = ("anon_inode:", "pidfd:")  # descriptors of whose fdinfo more than the first lines matter
_SYS_RESOURCE = 24
_TCP_LISTEN, _TCP_ESTABLISHED = "0A", "01"
_MOST_ABOUT = 1 << 20  # [characters] of one fdinfo: an epoll may watch a hundred thousand


def read_tree(root: int, kind: TargetKind, settings: Settings, *, watched: bool = False) -> Snapshot:
    """What is to be seen of a tree now; ``watched``: Relive's own failure watch is its tracer, which steps aside for a commit.

    Raises:
        PermissionMissing: the caller may not look at it.
        ProcessGone: there is no such process, or it ended meanwhile.
        TargetUndumpable: it has no state of its own: a kernel thread, a zombie, process 1, or what this runs below.
    """
    if os.geteuid() != 0:
        raise PermissionMissing(
            "checking a process needs root",
            cause=f"this is uid {os.geteuid()}, which may not see what others have open",
            remedy="run it with sudo",
        )
    _check_has_state(root)
    pids = procfs.tree_of(root)
    processes = tuple(one for pid in pids if (one := _read_process(pid)) is not None)
    stats = (procfs.read_stat(pid) for pid in pids)
    ended = frozenset(facts.pid for facts in stats if facts is not None and facts.has_ended)
    if not processes or processes[0].pid != root:
        raise _gone(root)
    unix: dict[int, UnixSocket] = {}
    connections: dict[int, Internet] = {}
    unread: dict[int, int] = {}
    networks = {one.spaces.get("net", 0): one.pid for one in processes}
    for pid in networks.values():
        with contextlib.suppress(OSError):
            unix.update(in_network_of(pid, unix_sockets))
        connections.update(_connections(pid))
        unread.update(_unread(pid))
    seen = Snapshot(kind=kind, processes=processes, unix=unix)
    try:
        mounts = {one.identifier: one for one in read_mounts(_seeing_all_mounts(processes[0]))}
    except OSError:
        raise _gone(root) from None
    return Snapshot(
        kind=kind,
        processes=processes,
        ended=ended,
        unix=unix,
        connections=connections,
        unread=unread,
        owners=_owners(seen),
        mounts=mounts,
        data=tuple(large_files(root, _written_places(seen), mounts, settings.base_file_limit)),
        limits=replace(_limits(settings), watched=watched),
    )


def _seeing_all_mounts(root: Process) -> int | str:
    """Whose mountinfo to read: that of a process in a chroot shows only what lies below."""
    return "self" if root.spaces.get("mnt", 0) == _spaces(Path("/proc/self")).get("mnt", 0) else root.pid


def _check_has_state(pid: int) -> None:
    facts = procfs.read_stat(pid)
    if facts is None:
        raise _gone(pid)
    if facts.kernel_thread or facts.has_ended or pid == 1 or os.getpid() in procfs.tree_of(pid):
        what = (
            "a kernel thread"
            if facts.kernel_thread
            else "a process that has ended"
            if facts.has_ended
            else "this system's first process, or this command runs below it"
        )
        raise TargetUndumpable(
            f"{pid} ({facts.comm}) cannot be committed",
            cause=f"it is {what}",
            remedy="name the service itself",
        )


def _gone(pid: int) -> ProcessGone:
    return ProcessGone(
        f"there is no process {pid}", remedy="`ps -e` lists processes, `relive ps` what Relive runs"
    )


def _read_process(pid: int) -> Process | None:
    """None where it is gone, or has ended and is a zombie, which a commit holds without more."""
    facts = procfs.read_stat(pid)
    if facts is None or facts.has_ended:
        return None
    directory = Path("/proc") / str(pid)
    try:
        status = _fields((directory / "status").read_bytes().decode(errors="replace"))
        spaces = _spaces(directory)
        most = _most_descriptors((directory / "limits").read_text())
    except OSError:
        return None
    numbers, sessions = status.get("NSpid", "0").split(), status.get("NSsid", "1").split()
    return Process(
        pid=pid,
        name=facts.comm,
        state=facts.state,
        threads=int(status.get("Threads", "1")),
        session=facts.session,
        inner_session=int(sessions[-1]) if len(numbers) > 1 else 1,
        inner_pid=int(numbers[-1]),
        user=_three(status.get("Uid", "")),
        group=_three(status.get("Gid", "")),
        tracer=_tracer(pid),
        spaces=spaces,
        descriptors=_with_closed(pid, tuple(_descriptors(directory))),
        bound=tuple(_bound(directory)),
        mappings=tuple(_notable(procfs.read_maps(pid))),
        memory=_memory(directory, status),
        most_descriptors=most,
    )


def _fields(text: str) -> dict[str, str]:
    """Of a file with lines as ``Name: value``."""
    pairs = (line.partition(":") for line in text.split("\n"))
    return {name: value.strip() for name, colon, value in pairs if colon}


def _three(text: str) -> tuple[int, int, int]:
    real, effective, saved, *_ = (int(word) for word in text.split())
    return real, effective, saved


def _tracer(pid: int) -> int:
    for thread in procfs.threads_of(pid):
        with contextlib.suppress(OSError, ValueError):
            text = Path(f"/proc/{pid}/task/{thread}/status").read_bytes().decode(errors="replace")
            if tracer := int(_fields(text).get("TracerPid", "0")):
                return tracer
    return 0


def _spaces(directory: Path) -> dict[str, int]:
    found = {}
    for name in os.listdir(directory / "ns"):
        with contextlib.suppress(OSError):
            found[name] = os.stat(directory / "ns" / name).st_ino
    return found


def _most_descriptors(limits: str) -> int:
    for line in limits.splitlines():
        if line.startswith("Max open files"):
            word = line.split()[3]
            return int(word) if word.isdecimal() else 1 << 30
    return 1 << 30


def _descriptors(directory: Path) -> Iterable[HeldDescriptor]:
    with contextlib.suppress(OSError):
        for name in os.listdir(directory / "fd"):
            with contextlib.suppress(OSError):
                yield _descriptor(directory, name)


def _descriptor(directory: Path, name: str) -> HeldDescriptor:
    link = directory / "fd" / name
    target, facts = os.readlink(link), os.stat(link)
    with (directory / "fdinfo" / name).open(errors="replace") as file:
        text = file.read(_MOST_ABOUT)
    first = _fields("\n".join(text.split("\n", 8)[:8]))
    protocol = ""
    if _SOCKET.match(target):
        with contextlib.suppress(OSError):  # the kernel's name of its protocol
            protocol = os.getxattr(link, "system.sockprotoname").rstrip(b"\0").decode(errors="replace")
    return HeldDescriptor(
        number=int(name),
        target=target,
        mode=facts.st_mode,
        inode=facts.st_ino,
        device=facts.st_dev,
        special=facts.st_rdev,
        size=facts.st_size,
        links=facts.st_nlink,
        flags=int(first.get("flags", "0"), 8),
        mount=int(first.get("mnt_id", "-1")),
        about=text if target.startswith(_ABOUT) else "",
        protocol=protocol,
        homeless=_is_homeless(directory, target, facts),
    )


def _is_homeless(directory: Path, target: str, facts: os.stat_result) -> bool:
    if not (
        target.startswith("/")
        and target.endswith(" (deleted)")
        and stat.S_ISREG(facts.st_mode)
        and facts.st_nlink
    ):
        return False
    return not Path(f"{directory}/root{Path(target).parent}").exists()


def _with_closed(pid: int, found: tuple[HeldDescriptor, ...]) -> tuple[HeldDescriptor, ...]:
    """With what each epoll among them waits for in vain."""
    return tuple(
        replace(one, closed=tuple(_closed(pid, one, found))) if one.target.startswith(_EPOLL) else one
        for one in found
    )


def _closed(pid: int, epoll: HeldDescriptor, found: tuple[HeldDescriptor, ...]) -> Iterator[int]:
    for match in _WATCHED.finditer(epoll.about):
        number, inode = int(match["number"]), int(match["inode"], 16)
        # Most have the number under which they were watched; some another, of those with the same inode.
        likely = sorted((one.number for one in found if one.inode == inode), key=lambda one: one != number)
        try:
            if not any(is_epoll_target(pid, one, epoll.number, number) for one in likely):
                yield number
        except OSError:
            continue  # closed or removed in this moment


def _bound(directory: Path) -> Iterable[HeldDescriptor]:
    """Its program, working directory and root: opened with O_PATH, which reaches the name and not what lies there."""
    for name in ("exe", "cwd", "root"):
        with contextlib.suppress(OSError):
            target = os.readlink(directory / name)
            opened = os.open(directory / name, os.O_PATH | os.O_CLOEXEC)
            try:
                facts = os.stat(opened)
                own = _fields(Path(f"/proc/self/fdinfo/{opened}").read_text())
            finally:
                os.close(opened)
            yield HeldDescriptor(
                number=-1,
                target=target,
                mode=facts.st_mode,
                inode=facts.st_ino,
                device=facts.st_dev,
                links=facts.st_nlink,
                mount=int(own.get("mnt_id", "-1")),
            )


_NOTABLE = (
    *("/dev/", "/SYSV", "/memfd:", "/[aio]", "/anon_hugepage", "/secretmem", "/dmabuf"),
    *("anon_inode:", "[uprobes]"),
)


def _notable(mappings: Iterable[procfs.Mapping]) -> Iterable[procfs.Mapping]:
    """Those that are neither of plain files nor of the process alone."""
    for one in mappings:
        if one.path.startswith(_NOTABLE):
            yield one


def _memory(directory: Path, status: dict[str, str]) -> Memory:
    rollup: dict[str, str] = {}
    with contextlib.suppress(OSError):  # gone, or without memory of its own
        rollup = _fields((directory / "smaps_rollup").read_text())

    def size(fields: dict[str, str], name: str) -> int:
        return int(fields.get(name, "0 kB").split()[0]) << 10

    private = size(rollup, "Anonymous") + size(rollup, "SwapPss")
    return Memory(
        private=private,
        shared=size(rollup, "Pss_Shmem"),
        backed=max(0, size(rollup, "Rss") - size(rollup, "Anonymous") - size(rollup, "Pss_Shmem")),
        locked=size(status, "VmLck"),
        huge=size(status, "HugetlbPages"),
    )


def _connections(pid: int) -> dict[int, Internet]:
    """TCP sockets of its network namespace that listen or are connected, by inode (proc_pid_net(5))."""
    found: dict[int, Internet] = {}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] in (_TCP_LISTEN, _TCP_ESTABLISHED):
                    found[int(words[9])] = Internet(
                        _address(words[1]), _address(words[2]), words[3] == _TCP_LISTEN
                    )
    return found


def _address(text: str) -> tuple[str, int]:
    """``0100007F:1F90``: 32-bit words as this machine has them, and a port."""
    digits, _, port = text.rpartition(":")
    data = b"".join(int(digits[at : at + 8], 16).to_bytes(4, "little") for at in range(0, len(digits), 8))
    address = ipaddress.ip_address(data)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address), int(port, 16)


def _unread(pid: int) -> dict[int, int]:
    """Bytes that wait in netlink sockets, by inode."""
    found: dict[int, int] = {}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/net/netlink").read_text().splitlines()[1:]:
            words = line.split()
            if waiting := int(words[4]):
                found[int(words[9])] = waiting
    return found


def _owners(seen: Snapshot) -> dict[int, Outsider]:
    """Who has the other ends of unix sockets that are not in the tree; all processes are asked only if there are any."""
    inside = seen.sockets
    wanted = {
        f"socket:[{one.peer}]": one.peer
        for inode in inside
        if (one := seen.unix.get(inode)) is not None and one.peer and one.peer not in inside
    }
    found: dict[int, Outsider] = {}
    for name in os.listdir("/proc") if wanted else ():
        if not name.isdecimal() or int(name) in seen.pids:
            continue
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{name}/fd"):
                with contextlib.suppress(OSError):
                    inode = wanted.get(os.readlink(f"/proc/{name}/fd/{number}"))
                    if inode is not None:
                        facts = procfs.read_stat(int(name))
                        found[inode] = Outsider(int(name), facts.comm if facts is not None else "?")
    return found


def _written_places(seen: Snapshot) -> list[str]:
    """Directories with files that the tree has open for writing, as its root sees them."""
    found = {
        str(Path(held.target).parent): None
        for _, held in seen.opened()
        if held.has_path and held.is_writable and stat.S_ISREG(held.mode) and held.links
    }
    return list(found)


def _limits(settings: Settings) -> Limits:
    held = int(procfs.status_field(os.getpid(), "CapEff") or "0", 16)
    scope = 0
    with contextlib.suppress(OSError):
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    return Limits(
        ghost=min(settings.ghost_limit, 0xFFFFFFFF),
        open_files=settings.open_file_limit,
        base_file=settings.base_file_limit,
        pre_copy_from=settings.pre_copy_from,
        reads_limits=bool(held >> _SYS_RESOURCE & 1),
        ptrace_scope=scope,
        load=os.getloadavg()[0] / (os.cpu_count() or 1),
        spaces=_spaces(Path("/proc/self")),
    )
