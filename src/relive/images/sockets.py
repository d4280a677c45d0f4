"""Sockets and other ends to the outside, as CRIU's images of a commit hold them."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

from relive.errors import ObjectCorrupt
from relive.images import criu_images_pb2 as pb
from relive.images.image_directory import ImageDirectory
from relive.images.image_file import read_entries, read_first
from relive.model.commit import Connection, Outlet

__all__ = [
    "TcpConnection",
    "bound_addresses",
    "bound_devices",
    "inner_pairs",
    "read_connections",
    "read_crossed",
    "read_files",
    "read_listening",
    "read_outlets",
    "read_outside_names",
    "summarise",
]

_TCP = socket.IPPROTO_TCP
_ESTABLISHED, _LISTEN = 1, 10
# FIN_WAIT1, FIN_WAIT2, TIME_WAIT, CLOSE_WAIT, LAST_ACK, CLOSING.
_CLOSING_STATES = frozenset({4, 5, 6, 8, 9, 11})
_UNIX_EXTERNAL = 1  # USK_EXTERN in uflags: a socket of a process outside
# USK_CALLBACK: of a connection to the outside that our plugin let pass (native/journal_plugin.c).
_UNIX_CALLBACK = 4
_ACCESS_MODE, _WRITE_ONLY = 3, 1


@dataclass(frozen=True, slots=True)
class TcpConnection:
    """An established connection with what is needed to forge its other end.

    Attributes:
        stream: sequence numbers and options; see ``tcp-stream.proto`` of CRIU.
    """

    family: int
    local: tuple[str, int]
    peer: tuple[str, int]
    state: int
    stream: pb.TcpStreamEntry


def read_files(images: ImageDirectory) -> list[pb.FileEntry]:
    """All entries of ``files.img``."""
    return read_entries(images / "files.img", pb.FileEntry)


def _address(words: list[int], family: int) -> str:
    if (family, len(words)) == (socket.AF_INET, 1):
        return str(ipaddress.IPv4Address(struct.pack("<I", words[0])))
    if (family, len(words)) == (socket.AF_INET6, 4):
        return str(ipaddress.IPv6Address(struct.pack("<4I", *words)))
    raise ObjectCorrupt(
        "image files.img is damaged",
        cause=f"a socket of family {family} has an address of {len(words)} words",
        remedy="restore another commit; this one cannot be trusted",
    )


def read_connections(images: ImageDirectory, files: list[pb.FileEntry]) -> list[TcpConnection]:
    """TCP connections to the outside that were open, also those half closed, whose state CRIU saved.

    A connection with both ends in the commit is not among them: CRIU brings both back.
    """
    found = _read_ends(images, files)
    names = _names(found)
    return [one for one in found if _name(one)[::-1] not in names]


def read_crossed(images: ImageDirectory, port: int) -> list[tuple[tuple[str, int], str, int, int]]:
    """(client's end, service's address, and two TCP sequence numbers) of connections to a port of the target.

    All bytes of the client before the first number had come to the target, and are in the images where it had not read them. All of
    the target's before the second one had been written by it, and are in the images where they had not been sent.
    """
    found = []
    for one in _read_ends(images, read_files(images)):
        if one.local[1] == port:
            own, client = _name(one)
            found.append((client, own[0], int(one.stream.inq_seq), int(one.stream.outq_seq)))
    return found


def inner_pairs(images: ImageDirectory, files: list[pb.FileEntry]) -> set[tuple[int, int]]:
    """Ports of both ends of the TCP connections within the target on which something was under way: bytes or an end."""
    found = _read_ends(images, files)
    names = _names(found)
    busy = (one for one in found if one.state != _ESTABLISHED or one.stream.outq_len > 0)
    return {(one.local[1], one.peer[1]) for one in busy if _name(one)[::-1] in names}


def _read_ends(images: ImageDirectory, files: list[pb.FileEntry]) -> list[TcpConnection]:
    found: list[TcpConnection] = []
    for entry in files:
        if not entry.HasField("isk"):
            continue
        sock = entry.isk
        if sock.proto != _TCP or sock.state not in _CLOSING_STATES | {_ESTABLISHED}:
            continue
        stream = images / f"tcp-stream-{sock.ino:x}.img"
        if not stream.exists():
            continue
        found.append(
            TcpConnection(
                family=sock.family,
                local=(_address(list(sock.src_addr), sock.family), sock.src_port),
                peer=(_address(list(sock.dst_addr), sock.family), sock.dst_port),
                state=sock.state,
                stream=read_first(stream, pb.TcpStreamEntry),  # unsent and unread bytes follow it
            )
        )
    return found


_End = tuple[str, int]


def _name(one: TcpConnection) -> tuple[_End, _End]:
    return _unmapped(one.local), _unmapped(one.peer)


def _names(found: list[TcpConnection]) -> set[tuple[_End, _End]]:
    return {_name(one) for one in found}


def _unmapped(end: tuple[str, int]) -> tuple[str, int]:
    return _plain(end[0]), end[1]


@lru_cache(maxsize=256)  # of one commit after another they are mostly the same
def _plain(text: str) -> str:
    """An IPv4 address that an IPv6 socket uses (RFC 4291, 2.5.5.2) as such: the other end need not be of that family."""
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def read_listening(files: list[pb.FileEntry]) -> list[tuple[str, int]]:
    """(address, port) of every TCP socket that listens."""
    return sorted(
        {
            (_address(list(entry.isk.src_addr), entry.isk.family), entry.isk.src_port)
            for entry in files
            if entry.HasField("isk") and entry.isk.proto == _TCP and entry.isk.state == _LISTEN
        }
    )


def bound_addresses(files: list[pb.FileEntry]) -> set[str]:
    """All own addresses that sockets of the target are bound to."""
    return {
        _address(list(entry.isk.src_addr), entry.isk.family)
        for entry in files
        if entry.HasField("isk") and len(entry.isk.src_addr) > 0
    }


def bound_devices(files: list[pb.FileEntry]) -> set[bytes]:
    """Names of the network devices that sockets are bound to (SO_BINDTODEVICE), or that their link-local address is one of."""
    sockets = [entry.isk for entry in files if entry.HasField("isk")]
    names = {name for one in sockets for name in (one.opts.so_bound_dev, one.ifname)}
    return {name.rstrip(b"\0") for name in names} - {b"", b"lo"}


def summarise(connections: list[TcpConnection], listening: list[tuple[str, int]]) -> list[Connection]:
    """The connections as the manifest shows them."""
    ports = {port for _, port in listening}
    return [Connection(local=one.local, peer=one.peer, inward=one.local[1] in ports) for one in connections]


def read_outlets(files: list[pb.FileEntry]) -> list[Outlet]:
    """Pipes with only one end inside, and connections to systemd's journal, which only listens."""
    ends: dict[int, set[int]] = defaultdict(set)
    for entry in files:
        if entry.HasField("pipe"):
            ends[entry.pipe.pipe_id].add(entry.pipe.flags & _ACCESS_MODE)
    outlets = [
        Outlet(key=f"pipe:[{pipe_id}]", writable=_WRITE_ONLY in modes)
        for pipe_id, modes in sorted(ends.items())
        if len(modes) == 1 and 2 not in modes
    ]
    journals = [
        Outlet(key=f"socket:[{entry.usk.ino}]", writable=True)
        for entry in files
        if entry.HasField("usk") and entry.usk.uflags & _UNIX_CALLBACK
    ]
    return outlets + sorted(journals, key=lambda one: one.key)


def read_outside_names(files: list[pb.FileEntry]) -> list[bytes]:
    """Names of unix datagram sockets outside to which the target is connected, such as a system log's.

    A path, or for an abstract name a zero byte and the name.
    """
    return sorted(
        {
            entry.usk.name if entry.usk.name[:1] == b"\0" else entry.usk.name.rstrip(b"\0")
            for entry in files
            if entry.HasField("usk") and entry.usk.uflags & _UNIX_EXTERNAL and entry.usk.name
        }
    )
