"""CRIU image files: a magic number, then length-prefixed protobuf messages (criu.org/Images).

Byte layout, all numbers little-endian: u32 common magic (0x54564319, service files 0x55105940), u32 magic of the file's
type, then any number of (u32 length, message). Some kinds (tcp-stream, pipe data) have payload between or after messages;
of these only the first message can be read here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from relive.errors import ObjectCorrupt
from relive.images import criu_images_pb2 as pb
from relive.images.image_directory import ImagePath
from relive.kernel.atomic_write import Durability, replace_file

__all__ = [
    "decode",
    "first_message",
    "followed_entries",
    "image_like",
    "image_of",
    "messages",
    "read_entries",
    "read_first",
    "read_inventory",
    "write_entries",
    "write_inventory",
]

_COMMON_MAGICS = (0x54564319, 0x55105940)
_HEADER = struct.Struct("<II")
_LENGTH = struct.Struct("<I")
_INVENTORY, _INVENTORY_MAGIC = "inventory.img", 0x58313116

Entry = TypeVar("Entry", bound=Message)


def messages(name: str, data: bytes) -> list[bytes]:
    """The messages of an image without payload, undecoded; raises ObjectCorrupt where the bytes are no CRIU image."""
    return list(_bodies(name, data))


def first_message(name: str, data: bytes) -> bytes:
    """The first of ``messages``, whatever follows it; raises ObjectCorrupt, also where there is none."""
    for body in _bodies(name, data):
        return body
    raise _corrupt(name, "it holds nothing")


def _bodies(name: str, data: bytes) -> Iterator[bytes]:
    _check_magic(name, data)
    offset = _HEADER.size
    while offset < len(data):
        body, offset = _read_body(name, data, offset)
        yield body


def read_entries(path: ImagePath, kind: type[Entry]) -> list[Entry]:
    """All messages of an image file without payload.

    Raises:
        FileNotFoundError: there is no such image, which for many kinds means "none of these".
        ObjectCorrupt: the bytes are no CRIU image of such messages.
    """
    return [decode(path.name, body, kind) for body in _bodies(path.name, path.read_bytes())]


def read_first(path: ImagePath, kind: type[Entry]) -> Entry:
    """The first message of an image file, whatever follows it.

    Raises:
        FileNotFoundError, ObjectCorrupt: as ``read_entries``; an image without a message is damaged too.
    """
    return decode(path.name, first_message(path.name, path.read_bytes()), kind)


def followed_entries(
    name: str, data: bytes, kind: type[Entry], payload: Callable[[Entry], int]
) -> Iterator[tuple[Entry, bytes]]:
    """The messages of an image each of which has bytes behind it, and these; ``payload`` tells how many.

    Raises:
        ObjectCorrupt: the image is cut off, or holds no such messages.
    """
    offset = _HEADER.size
    while offset < len(data):
        body, offset = _read_body(name, data, offset)
        entry = decode(name, body, kind)
        end = offset + payload(entry)
        if end > len(data):
            raise _corrupt(name, f"cut off at byte {offset}")
        yield entry, data[offset:end]
        offset = end


def _check_magic(name: str, data: bytes) -> None:
    if len(data) < _HEADER.size or _HEADER.unpack_from(data)[0] not in _COMMON_MAGICS:
        raise _corrupt(name, "the magic number is not CRIU's")


def _read_body(name: str, data: bytes, offset: int) -> tuple[bytes, int]:
    """The message at an offset, undecoded, and the offset behind it."""
    if offset + _LENGTH.size > len(data):
        raise _corrupt(name, f"cut off at byte {offset}")
    (length,) = _LENGTH.unpack_from(data, offset)
    offset += _LENGTH.size
    end = offset + length
    if end > len(data):
        raise _corrupt(name, f"cut off at byte {offset}")
    return data[offset:end], end


def decode(name: str, body: bytes, kind: type[Entry]) -> Entry:
    """One message of the image ``name``; raises ObjectCorrupt where it is none of that kind."""
    try:
        entry = kind.FromString(body)
    except DecodeError as error:
        raise _corrupt(name, f"no {kind.DESCRIPTOR.name}: {error}") from error
    if not entry.IsInitialized():  # parsing lets it pass, writing would not
        raise _corrupt(name, f"no {kind.DESCRIPTOR.name}: it lacks a required field")
    return entry


def write_entries(path: Path, entries: Iterable[Message]) -> None:
    """Replace the messages of an existing image file, keeping its magic numbers."""
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
    # A new file, since the old one may be shared with the store by a hard link.
    replace_file(path, image_like(header, entries), durability=Durability.NONE)


def image_like(other: bytes, entries: Iterable[Message]) -> bytes:
    """An image of these messages, with the magic numbers of another one."""
    return image_of(other, (entry.SerializeToString() for entry in entries))


def image_of(other: bytes, bodies: Iterable[bytes]) -> bytes:
    """As ``image_like``, of messages that are encoded."""
    parts = [other[: _HEADER.size]]
    for body in bodies:
        parts += (_LENGTH.pack(len(body)), body)
    return b"".join(parts)


def read_inventory(images: Path) -> pb.InventoryEntry:
    """``inventory.img``, which alone has one magic number only; raises as ``read_entries``."""
    path = images / _INVENTORY
    data = path.read_bytes()
    if len(data) < _HEADER.size:
        raise _corrupt(path.name, "it is cut off")
    magic, length = _HEADER.unpack_from(data)
    if magic != _INVENTORY_MAGIC:
        raise _corrupt(path.name, "the magic number is not CRIU's")
    if _HEADER.size + length != len(data):
        raise _corrupt(path.name, "it is cut off")
    return decode(path.name, data[_HEADER.size :], pb.InventoryEntry)


def write_inventory(images: Path, entry: pb.InventoryEntry) -> None:
    """Replace ``inventory.img``."""
    body = entry.SerializeToString()
    data = _HEADER.pack(_INVENTORY_MAGIC, len(body)) + body
    replace_file(images / _INVENTORY, data, durability=Durability.NONE)


def _corrupt(name: str, cause: str) -> ObjectCorrupt:
    return ObjectCorrupt(
        f"image {name} is damaged",
        cause=cause,
        remedy="restore another commit; this one cannot be trusted",
    )
