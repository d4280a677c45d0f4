"""Data under way in a commit: what waited in pipes and sockets, unread, or written and not yet there."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message

from relive.images import criu_images_pb2 as pb
from relive.images.image_file import followed_entries

__all__ = ["Queues", "read_queues"]

_HEADER, _LENGTH = 8, struct.Struct("<I")
Entry = TypeVar("Entry", bound=Message)


@dataclass(frozen=True, slots=True)
class Queues:
    """Bytes: ``pipes`` by the pipe's id, ``packets`` by the socket's file id, ``tcp`` (unread, unsent) by the socket's inode."""

    pipes: Mapping[int, int]
    packets: Mapping[int, int]
    tcp: Mapping[int, tuple[int, int]]


def read_queues(small: Mapping[str, bytes]) -> Queues:
    """From the small images of a commit; raises ObjectCorrupt where one is damaged."""
    pipes: Counter[int] = Counter()
    for name in ("pipes-data.img", "fifo-data.img"):
        for pipe, _ in followed_entries(name, small.get(name, b""), pb.PipeDataEntry, lambda one: one.bytes):
            pipes[pipe.pipe_id] += pipe.bytes
    packets: Counter[int] = Counter()
    queued = small.get("sk-queues.img", b"")
    for packet, _ in followed_entries("sk-queues.img", queued, pb.SkPacketEntry, lambda one: one.length):
        packets[packet.id_for] += packet.length
    tcp = {}
    for name in small:
        if name.startswith("tcp-stream-") and name.endswith(".img"):
            found = followed_entries(
                name, small[name], pb.TcpStreamEntry, lambda one: one.inq_len + one.outq_len
            )
            first, _ = next(found, (None, b""))
            inode = name.removeprefix("tcp-stream-").removesuffix(".img")
            if first is not None and len(inode) <= 16 and all(digit in "0123456789abcdef" for digit in inode):
                tcp[int(inode or "0", 16)] = first.inq_len, first.outq_len
    return Queues(pipes, packets, tcp)
