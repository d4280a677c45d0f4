"""What each descriptor of a process is, from CRIU's images of open files."""

from __future__ import annotations

import ipaddress
import os
import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from relive.images import criu_images_pb2 as pb
from relive.inspection.address_space import MappedFiles
from relive.inspection.queues import Queues
from relive.inspection.state import Descriptor

__all__ = ["CommittedFiles"]

_STATES = {
    **{1: "established", 2: "syn-sent", 3: "syn-received", 4: "fin-wait-1", 5: "fin-wait-2", 6: "time-wait"},
    **{7: "closed", 8: "close-wait", 9: "last-ack", 10: "listening", 11: "closing"},
}
_TYPES = {1: "stream", 2: "datagram", 3: "raw", 5: "seqpacket"}
_PROTOCOLS = {6: "tcp", 17: "udp", 1: "icmp", 58: "icmp6", 136: "udplite"}
_ACCESS = ("read", "write", "read-write", "")
_APPEND = os.O_APPEND
# fd_types of CRIU's fdinfo.proto, for those of which nothing more is told.
_KINDS = {8: "inotify", 9: "signalfd", 10: "packet socket", 12: "fanotify", 13: "netlink socket"}
_KINDS |= {14: "namespace", 15: "tun", 16: "external"}
_LISTENING = 10

Owner = tuple[int, int]  # (pid, descriptor)


@dataclass(slots=True)
class CommittedFiles:
    """All open files of a commit, and who has them.

    Attributes:
        files: the entries of files.img; mapped: what is known of them by their ids.
        tables: (pid, its descriptors) of each process.
    """

    files: Sequence[pb.FileEntry]
    mapped: MappedFiles
    queues: Queues
    tables: Sequence[tuple[int, Sequence[pb.FdinfoEntry]]]
    _by_id: dict[int, pb.FileEntry] = field(init=False)
    _owners: dict[int, list[Owner]] = field(init=False)
    _unix: dict[int, int] = field(init=False)
    _pipes: dict[int, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self._by_id = {one.id: one for one in self.files}
        self._owners, self._pipes = defaultdict(list), defaultdict(list)
        for pid, table in self.tables:
            for entry in table:
                self._owners[entry.id].append((pid, entry.fd))
        self._unix = {one.usk.ino: one.id for one in self.files if one.HasField("usk")}
        for one in self.files:
            if one.HasField("pipe"):
                self._pipes[one.pipe.pipe_id].append(one.id)

    def of_process(self, pid: int, table: Iterable[pb.FdinfoEntry]) -> list[Descriptor]:
        """In the order of their numbers."""
        fds = sorted(table, key=lambda one: one.fd)
        return [self._described(pid, one) for one in fds]

    def _described(self, pid: int, entry: pb.FdinfoEntry) -> Descriptor:
        file = self._by_id.get(entry.id)
        described = self._of_file(file) if file is not None else Descriptor(fd=0, kind="unknown", name="")
        kind = _KINDS.get(entry.type, "unknown") if described.kind == "unknown" else described.kind
        others = [f"{who}:{fd}" for who, fd in self._owners[entry.id] if who != pid]
        return described.model_copy(update={"fd": entry.fd, "kind": kind, "shared_with": others})

    def _of_file(self, file: pb.FileEntry) -> Descriptor:
        if file.HasField("reg"):
            reg = file.reg
            return Descriptor(
                fd=0,
                kind="file",
                name=self.mapped.names.get(file.id, ""),
                access=_access(reg.flags),
                offset=reg.pos,
                size=reg.size if reg.HasField("size") else None,
            )
        if file.HasField("memfd"):
            memfd = file.memfd
            return Descriptor(
                fd=0,
                kind="memfd",
                name=self.mapped.names.get(file.id, ""),
                access=_access(memfd.flags),
                offset=memfd.pos,
            )
        if file.HasField("isk"):
            return self._internet(file.isk)
        if file.HasField("usk"):
            return self._local(file)
        if file.HasField("pipe"):
            return self._pipe(file)
        if file.HasField("fifo"):
            return Descriptor(fd=0, kind="fifo", name="", unread=self.queues.pipes.get(file.fifo.pipe_id, 0))
        if file.HasField("epfd"):
            return Descriptor(fd=0, kind="epoll", name="", watches=sorted(one.tfd for one in file.epfd.tfd))
        if file.HasField("efd"):
            return Descriptor(fd=0, kind="eventfd", name="", state=f"counter {file.efd.counter}")
        if file.HasField("tfd"):
            return Descriptor(fd=0, kind="timerfd", name="", state=_timer(file.tfd))
        return Descriptor(fd=0, kind="terminal" if file.HasField("tty") else "unknown", name="")

    def _internet(self, sock: pb.InetSkEntry) -> Descriptor:
        protocol = _PROTOCOLS.get(sock.proto, f"protocol {sock.proto}")
        unread, unsent = self.queues.tcp.get(sock.ino, (None, None))
        if protocol != "tcp":
            unread = self.queues.packets.get(sock.id)
        peer = _address(list(sock.dst_addr), sock.dst_port) if sock.dst_port else None
        return Descriptor(
            fd=0,
            kind=f"{protocol} socket",
            name=_address(list(sock.src_addr), sock.src_port),
            state=_STATES.get(sock.state) if protocol == "tcp" else None,
            peer=peer,
            unread=unread,
            unsent=unsent,
        )

    def _local(self, file: pb.FileEntry) -> Descriptor:
        sock = file.usk
        other = self._unix.get(sock.peer) if sock.peer else None
        peer = self._ends([other]) if other is not None else None
        if sock.peer and other is None:
            peer = "outside"
        return Descriptor(
            fd=0,
            kind=f"unix {_TYPES.get(sock.type, '')} socket".replace("  ", " "),
            name=_unix_name(sock.name),
            state=_STATES.get(sock.state) if sock.state == _LISTENING or peer is not None else "unconnected",
            peer=peer,
            unread=self.queues.packets.get(file.id, 0),
        )

    def _pipe(self, file: pb.FileEntry) -> Descriptor:
        pipe = file.pipe
        others = [one for one in self._pipes[pipe.pipe_id] if one != file.id]
        return Descriptor(
            fd=0,
            kind="pipe",
            name=f"pipe:[{pipe.pipe_id}]",
            access=_access(pipe.flags),
            peer=self._ends(others) if others else "outside",
            unread=self.queues.pipes.get(pipe.pipe_id, 0),
        )

    def _ends(self, files: Iterable[int]) -> str:
        owners = [f"{pid}:{fd}" for one in files for pid, fd in self._owners[one]]
        return ", ".join(owners) or "nobody"


def _access(flags: int) -> str:
    word = _ACCESS[flags & os.O_ACCMODE]
    return f"{word}, append" if flags & _APPEND else word


def _address(words: list[int], port: int) -> str:
    if len(words) == 1:
        return f"{ipaddress.IPv4Address(struct.pack('<I', words[0]))}:{port}"
    if len(words) == 4:
        return f"[{ipaddress.IPv6Address(struct.pack('<4I', *words))}]:{port}"
    return f"*:{port}"


def _unix_name(name: bytes) -> str:
    text = name.rstrip(b"\0") if name[:1] != b"\0" else b"@" + name[1:]
    return text.decode("utf-8", "backslashreplace")


def _timer(timer: pb.TimerfdEntry) -> str:
    if not timer.vsec and not timer.vnsec:
        return "not set"
    left, interval = timer.vsec + timer.vnsec / 1e9, timer.isec + timer.insec / 1e9
    return f"expires in {left:g} s" + (f", then every {interval:g} s" if interval else "")
