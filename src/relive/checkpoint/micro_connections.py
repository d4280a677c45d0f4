"""The TCP connections of a commit on top of another: their images are made of what was seen, after the pattern of the base's.

A connection of the base goes on where it stands now; one that is gone is left out. One that is new is written as one of the base
that is like it in all that CRIU saves, with its own ends and numbers, and whether it blocks. Where the base has none like it,
a full commit is needed. What an epoll instance watches follows. Nothing here reads or writes a file.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from relive.checkpoint.micro_record import (
    FullCommitNeeded,
    MicroRecord,
    NotNow,
    RecordedConnection,
    RecordedStream,
    Seen,
    WatchedDescriptor,
)
from relive.images import criu_images_pb2 as pb

__all__ = ["BaseConnections", "FollowedConnections", "OpenDescriptors", "stream_name"]

_ESTABLISHED, _LISTENS = 1, 10
_BROKEN = 0x2 | 0x8 | 0x10 | 0x2000  # POLLPRI, POLLERR, POLLHUP, POLLRDHUP
_V4, _V6 = struct.Struct("<HH4s"), struct.Struct("<HHI16sI")
_HAS_TIMESTAMPS, _HAS_WINDOW_SCALE = 1, 4  # TCPI_OPT_*
_WORD = 1 << 32
_CLOSES = 1  # FD_CLOEXEC
_NOTHING: frozenset[WatchedDescriptor] = frozenset()


def stream_name(inode: int) -> str:
    """Of the image of a connection's state."""
    return f"tcp-stream-{inode:x}.img"


class OpenDescriptors(NamedTuple):
    """Of one process; ``entries``: all of its ``fdinfo``."""

    seen: Seen
    entries: Sequence[pb.FdinfoEntry]


@dataclass(frozen=True, slots=True)
class FollowedConnections:
    """What the images of a commit hold of descriptors.

    Attributes:
        files: all of ``files.img``. descriptors: all of ``fdinfo``, of each process.
        streams: by the name of an image, what it holds and the bytes behind that; patterns: the base's image that it is like.
    """

    files: list[pb.FileEntry]
    descriptors: list[list[pb.FdinfoEntry]]
    streams: dict[str, tuple[pb.TcpStreamEntry, bytes]]
    patterns: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Pattern:
    connection: RecordedConnection
    file: pb.FileEntry
    stream: pb.TcpStreamEntry


class BaseConnections:
    """Those that CRIU has saved.

    Args:
        opened: of each process, as seen while CRIU held it.
        streams: by name.

    Raises:
        FullCommitNeeded: what CRIU has saved is not what was seen, or cannot be followed.
    """

    def __init__(
        self,
        opened: Sequence[OpenDescriptors],
        files: Sequence[pb.FileEntry],
        streams: Mapping[str, pb.TcpStreamEntry],
    ) -> None:
        self._files, self._opened = files, opened
        connections = _all_of([one.seen for one in opened])
        self._patterns: dict[int, _Pattern] = {}
        saved = {one.isk.ino: one for one in files if one.HasField("isk") and _is_connection(one.isk)}
        known = {one.inode: one for one in connections}
        if saved.keys() != known.keys() or {stream_name(inode) for inode in saved} != streams.keys():
            raise FullCommitNeeded("CRIU has saved other connections than were seen")
        for inode, file in saved.items():
            one = known[inode]
            if _ends(one) != _saved_ends(file.isk):
                raise FullCommitNeeded(f"CRIU has saved other ends of {one.words}")
            self._patterns[inode] = _Pattern(one, file, streams[stream_name(inode)])

    def follow(self, records: Sequence[MicroRecord], files: Sequence[pb.FileEntry]) -> FollowedConnections:
        """What the images of a commit hold.

        Args:
            records: of each process.
            files: the base's, in which the positions of regular files are those of now already.

        Raises:
            FullCommitNeeded: a connection, or who watches it, cannot be followed.
        """
        connections = _all_of([record.seen for record in records])
        streams = {inode: stream for record in records for inode, stream in record.streams.items()}
        ids, made = self._identities(connections), []
        followed: dict[str, tuple[pb.TcpStreamEntry, bytes]] = {}
        patterns: dict[str, str] = {}
        for inode, one in {one.inode: one for one in connections}.items():
            pattern, stream = self._pattern_of(one), streams.get(inode)
            if stream is None or stream.state != _ESTABLISHED:
                raise FullCommitNeeded(f"{one.words} is not connected any more")
            made.append(_file(pattern, one, stream, ids[inode]))
            followed[stream_name(inode)] = _stream(pattern.stream, stream), stream.received + stream.sent
            patterns[stream_name(inode)] = stream_name(pattern.connection.inode)
        _check_inner(connections, streams)
        kept = [one for one in files if not (one.HasField("isk") and one.isk.ino in self._patterns)]
        descriptors = []
        for opened, record in zip(self._opened, records, strict=True):
            self._follow_watched(opened, record.seen, kept)
            descriptors.append(self._follow_descriptors(opened, record.seen, ids))
        return FollowedConnections([*kept, *made], descriptors, followed, patterns)

    def _identities(self, connections: Iterable[RecordedConnection]) -> dict[int, int]:
        """The ids of their files: the base's, and new ones."""
        ids = {inode: pattern.file.id for inode, pattern in self._patterns.items()}
        last = max((one.id for one in self._files), default=0)
        for one in connections:
            if one.inode not in ids:
                last += 1
                ids[one.inode] = last
        return ids

    def _pattern_of(self, one: RecordedConnection) -> _Pattern:
        own = self._patterns.get(one.inode)
        if own is not None:
            if _ends(own.connection) == _ends(one) and _are_alike(own.connection, one):
                return own
            raise FullCommitNeeded(f"the options of {one.words} have changed: {_change(own.connection, one)}")
        _check_scope(one)
        for pattern in self._patterns.values():
            if _are_alike(pattern.connection, one):
                return pattern
        raise FullCommitNeeded(f"{one.words} is unlike those of the base")

    def _follow_descriptors(
        self, opened: OpenDescriptors, seen: Seen, ids: Mapping[int, int]
    ) -> list[pb.FdinfoEntry]:
        own = {pattern.file.id for pattern in self._patterns.values()}
        kept = [one for one in opened.entries if one.id not in own]
        if not self._patterns:
            return kept
        like = next(one for other in self._opened for one in other.entries if one.id in own)
        for one in seen.connections:
            entry = pb.FdinfoEntry()
            entry.CopyFrom(like)
            entry.id, entry.fd, entry.flags = ids[one.inode], one.descriptor, _CLOSES if one.closes else 0
            kept.append(entry)
        return sorted(kept, key=lambda one: one.fd)

    def _follow_watched(self, opened: OpenDescriptors, seen: Seen, files: Iterable[pb.FileEntry]) -> None:
        base = opened.seen
        before = {one.descriptor: one.inode for one in base.connections}
        now = {one.descriptor: one.inode for one in seen.connections}
        by_id = {one.id: one for one in files if one.HasField("epfd")}
        for number in base.watched.keys() | seen.watched.keys():
            watched, watched_before = seen.watched.get(number, _NOTHING), base.watched.get(number, _NOTHING)
            others = {one for one in watched if now.get(one.descriptor) != one.inode}
            if others != {one for one in watched_before if before.get(one.descriptor) != one.inode}:
                raise FullCommitNeeded(f"what descriptor {number} watches has changed")
            if watched != watched_before:
                file = next((by_id.get(one.id) for one in opened.entries if one.fd == number), None)
                if file is None:
                    raise FullCommitNeeded(f"descriptor {number} is not in the base")
                if self._is_shared(file.id):
                    raise FullCommitNeeded(f"descriptor {number} watches connections for two processes")
                _write_watched(file.epfd, watched_before, watched - others, others)

    def _is_shared(self, number: int) -> bool:
        return sum(any(one.id == number for one in opened.entries) for opened in self._opened) > 1


def _write_watched(
    target: pb.EventpollEntry,
    before: Iterable[WatchedDescriptor],
    connections: Iterable[WatchedDescriptor],
    others: Iterable[WatchedDescriptor],
) -> None:
    saved = {(one.tfd, one.inode): one for one in target.tfd}
    devices = {
        one.device: saved[one.descriptor, one.inode].dev
        for one in before
        if (one.descriptor, one.inode) in saved
    }
    rows = []
    for one in others:
        if (one.descriptor, one.inode) not in saved:
            raise FullCommitNeeded(f"CRIU has not saved who watches descriptor {one.descriptor}")
        rows.append(saved[one.descriptor, one.inode])
    for one in connections:
        if one.device not in devices:
            raise FullCommitNeeded(f"it is not known who watches descriptor {one.descriptor}")
        rows.append(
            pb.EventpollTarget(
                id=target.id,
                tfd=one.descriptor,
                events=one.events,
                data=one.data,
                dev=devices[one.device],
                inode=one.inode,
                pos=one.position,
            )
        )
    rows.sort(key=lambda row: row.tfd)
    copies = [pb.EventpollTarget.FromString(row.SerializeToString()) for row in rows]
    del target.tfd[:]
    target.tfd.extend(copies)


def _is_connection(entry: pb.InetSkEntry) -> bool:
    return entry.proto == socket.IPPROTO_TCP and entry.dst_port != 0 and entry.state != _LISTENS


def _all_of(seen: Sequence[Seen]) -> list[RecordedConnection]:
    """Those of all processes, each of which belongs to one only, and goes on."""
    found = [connection for one in seen for connection in one.connections]
    owners = [{connection.inode for connection in one.connections} for one in seen]
    if len(set().union(*owners)) != sum(map(len, owners)):
        raise FullCommitNeeded("two of its processes share a connection")
    _check_alive(found)
    return found


def _check_alive(connections: Iterable[RecordedConnection]) -> None:
    for one in connections:
        if one.state != _ESTABLISHED or one.ready & _BROKEN:
            raise NotNow(f"descriptor {one.descriptor} is a connection that ends")
        if one.peek != -1:
            raise FullCommitNeeded(f"descriptor {one.descriptor} has an offset for peeking")


def _are_alike(one: RecordedConnection, other: RecordedConnection) -> bool:
    return one.like == other.like and not (one.flags ^ other.flags) & ~os.O_NONBLOCK


def _change(before: RecordedConnection, now: RecordedConnection) -> str:
    """Ends, flags and options that differ, as ``native/micro/socket_options.c`` calls them."""
    was, is_ = (
        {f"flags={one.flags:o}", f"name={one.name.hex()}", f"peer={one.peer.hex()}", *one.like.split()}
        for one in (before, now)
    )
    return ", ".join(sorted(is_ - was) or sorted(was - is_))


def _check_scope(one: RecordedConnection) -> None:
    for name in (one.name, one.peer):
        if len(name) >= _V6.size and _V6.unpack_from(name)[4]:
            raise FullCommitNeeded(f"descriptor {one.descriptor} is bound to an interface")


def _end(name: bytes) -> tuple[int, list[int]]:
    """(port, words of the address as in CRIU's image)"""
    family = int.from_bytes(name[:2], "little")
    if family == socket.AF_INET:
        _, port, address = _V4.unpack_from(name)
    elif family == socket.AF_INET6:
        _, port, _, address, _ = _V6.unpack_from(name)
    else:
        raise FullCommitNeeded(f"a connection is of family {family}")
    return socket.ntohs(port), list(struct.unpack(f"<{len(address) // 4}I", address))


def _ends(one: RecordedConnection) -> tuple[tuple[int, list[int]], tuple[int, list[int]]]:
    return _end(one.name), _end(one.peer)


def _saved_ends(entry: pb.InetSkEntry) -> tuple[tuple[int, list[int]], tuple[int, list[int]]]:
    return (entry.src_port, list(entry.src_addr)), (entry.dst_port, list(entry.dst_addr))


def _file(pattern: _Pattern, one: RecordedConnection, stream: RecordedStream, number: int) -> pb.FileEntry:
    made = pb.FileEntry()
    made.CopyFrom(pattern.file)
    entry = made.isk
    made.id = entry.id = number
    entry.ino = one.inode
    entry.flags = (entry.flags & ~os.O_NONBLOCK) | (one.flags & os.O_NONBLOCK)
    (entry.src_port, source), (entry.dst_port, destination) = _ends(one)
    entry.src_addr[:], entry.dst_addr[:] = source, destination
    entry.opts.so_sndbuf, entry.opts.so_rcvbuf = one.send_buffer, one.receive_buffer
    entry.opts.reuseaddr = stream.reuse
    return made


def _stream(pattern: pb.TcpStreamEntry, now: RecordedStream) -> pb.TcpStreamEntry:
    made = pb.TcpStreamEntry()
    made.CopyFrom(pattern)
    for name in ("inq_len", "inq_seq", "outq_len", "outq_seq", "opt_mask", "mss_clamp"):
        setattr(made, name, getattr(now, name))
    for name in ("snd_wl1", "snd_wnd", "max_window", "rcv_wnd", "rcv_wup"):
        setattr(made, name, getattr(now, name))
    made.unsq_len = 0  # else it would have been refused
    scales = (now.snd_wscale, now.rcv_wscale) if now.opt_mask & _HAS_WINDOW_SCALE else (0, 0)
    made.snd_wscale, made.rcv_wscale = scales
    if now.opt_mask & _HAS_TIMESTAMPS:
        made.timestamp = now.timestamp
    else:
        made.ClearField("timestamp")
    return made


def _check_inner(connections: Iterable[RecordedConnection], streams: Mapping[int, RecordedStream]) -> None:
    """Of a connection with both ends here one is read before the other: what is acknowledged has to have come."""
    by_name = {(one.name, one.peer): streams[one.inode] for one in connections}
    for (name, peer), sender in by_name.items():
        receiver = by_name.get((peer, name))
        if receiver is not None:
            unacknowledged = (sender.outq_seq - receiver.inq_seq) % _WORD
            if unacknowledged > sender.outq_len:
                raise FullCommitNeeded("bytes were under way between two of its own descriptors")
