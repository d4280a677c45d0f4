"""Data under way in a commit: what waited in pipes and sockets, unread, or written and not yet there."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message

from relive.errors import ObjectCorrupt
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import decode

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
        for pipe in _entries(small, name, pb.PipeDataEntry, lambda one: one.bytes):
            pipes[pipe.pipe_id] += pipe.bytes
    packets: Counter[int] = Counter()
    for packet in _entries(small, "sk-queues.img", pb.SkPacketEntry, lambda one: one.length):
        packets[packet.id_for] += packet.length
    tcp = {}
    for name in small:
        if name.startswith("tcp-stream-") and name.endswith(".img"):
            first = next(
                _entries(small, name, pb.TcpStreamEntry, lambda one: one.inq_len + one.outq_len), None
            )
            inode = name.removeprefix("tcp-stream-").removesuffix(".img")
            if first is not None and len(inode) <= 16 and all(digit in "0123456789abcdef" for digit in inode):
                tcp[int(inode or "0", 16)] = first.inq_len, first.outq_len
    return Queues(pipes, packets, tcp)


def _entries(small: Mapping[str, bytes], name: str, kind: type[Entry], payload: object) -> Iterator[Entry]:
    """The messages of an image of which each is followed by its payload."""
    assert callable(payload)
    data = small.get(name, b"")
    offset = _HEADER
    while offset < len(data):
        if offset + _LENGTH.size > len(data):
            raise _cut(name)
        (length,) = _LENGTH.unpack_from(data, offset)
        offset += _LENGTH.size
        if offset + length > len(data):
            raise _cut(name)
        entry = decode(name, data[offset : offset + length], kind)
        offset += length + payload(entry)
        if offset > len(data):
            raise _cut(name)
        yield entry


def _cut(name: str) -> ObjectCorrupt:
    return ObjectCorrupt(
        f"image {name} is damaged",
        cause="it is cut off",
        remedy="look at another commit; this one cannot be trusted",
    )
