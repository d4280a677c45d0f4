"""Reading a bolt database (go.etcd.io/bbolt), in which podman before 4.8 keeps its state. Nothing is ever written.

A file of pages of 4096 bytes mostly; all numbers are little-endian. A page: u64 its number, u16 flags, u16 count, u32 overflow,
elements. Pages 0 and 1 are meta pages, of which the one with the greater transaction counts: u32 magic, u32 version, u32 page
size, u32 flags, u64 root page, u64 sequence, u64 free list, u64 page count, u64 transaction, u64 FNV-1a of all that. Elements of
a branch: u32 position, u32 key size, u64 page; of a leaf: u32 flags (1: a bucket), u32 position, u32 key size, u32 value
size; positions count from the element. The value of a bucket: u64 root page, u64 sequence, and where the root page is 0 a page of
its own.
"""

from __future__ import annotations

import fcntl
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BoltInvalid", "Bucket", "read_bolt"]

_MAGIC, _VERSION = 0xED0CDAED, 2
_PAGE = struct.Struct("<QHHI")
_META = struct.Struct("<IIIIQQQQQQ")
_BRANCH_ELEMENT = struct.Struct("<IIQ")
_LEAF_ELEMENT = struct.Struct("<IIII")
_BUCKET = struct.Struct("<QQ")
_BRANCH, _LEAF, _IS_BUCKET = 1, 2, 1
_FNV_START, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
_DEEPEST = 32  # a tree of more levels than that goes round in a circle
_SIZE_MOST = 1 << 30  # [bytes]


class BoltInvalid(ValueError):
    """The bytes are no bolt database, or a damaged one."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A named set of keys, each with a value or another bucket."""

    _data: bytes
    _size: int
    _root: int
    _inline: bytes | None = None

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None where there is none, or a bucket stands in its place."""
        return next((value for name, flags, value in self._items() if name == key and not flags), None)

    def bucket(self, key: bytes) -> Bucket | None:
        """The bucket of a key; None where there is none."""
        for name, flags, value in self._items():
            if name == key and flags & _IS_BUCKET:
                root, _ = _unpack(_BUCKET, value, 0)
                return Bucket(self._data, self._size, root, None if root else value[_BUCKET.size :])
        return None

    def values(self) -> dict[bytes, bytes]:
        """All keys that are no buckets."""
        return {name: value for name, flags, value in self._items() if not flags}

    def _items(self) -> Iterator[tuple[bytes, int, bytes]]:
        """(key, flags, value) of each."""
        if self._inline is not None:
            yield from _leaf(self._inline, 0)
        else:
            yield from self._below(self._root, 0)

    def _below(self, page: int, depth: int) -> Iterator[tuple[bytes, int, bytes]]:
        start = page * self._size
        _, flags, count, _ = _unpack(_PAGE, self._data, start)
        if depth > _DEEPEST:
            raise BoltInvalid("its pages go round in a circle")
        if flags & _LEAF:
            yield from _leaf(self._data, start)
        elif flags & _BRANCH:
            for number in range(count):
                element = start + _PAGE.size + number * _BRANCH_ELEMENT.size
                yield from self._below(_unpack(_BRANCH_ELEMENT, self._data, element)[2], depth + 1)
        else:
            raise BoltInvalid(f"page {page} is neither branch nor leaf")


def read_bolt(path: Path) -> Bucket:
    """The root bucket, as it is now.

    Whoever writes holds the file locked alone (flock), so this waits for the end of a transaction.

    Raises:
        BoltInvalid: it is no such database.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        data = file.read(_SIZE_MOST)
    return _root(data)


def _root(data: bytes) -> Bucket:
    size = _unpack(_META, data, _PAGE.size)[2]
    # A crash in the middle of writing one leaves the other.
    metas = [meta for meta in (_meta(data, start) for start in (0, size)) if meta is not None]
    if not metas:
        raise BoltInvalid("it has no meta page")
    newest = max(metas, key=lambda meta: meta[8])
    return Bucket(data, newest[2], newest[4])


def _meta(data: bytes, start: int) -> tuple[int, ...] | None:
    meta = _unpack(_META, data, start + _PAGE.size)
    body = data[start + _PAGE.size : start + _PAGE.size + _META.size - 8]
    return meta if meta[:2] == (_MAGIC, _VERSION) and meta[9] == _fnv(body) else None


def _fnv(data: bytes) -> int:
    found = _FNV_START
    for byte in data:
        found = (found ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return found


def _leaf(data: bytes, start: int) -> Iterator[tuple[bytes, int, bytes]]:
    _, _, count, _ = _unpack(_PAGE, data, start)
    for number in range(count):
        element = start + _PAGE.size + number * _LEAF_ELEMENT.size
        flags, position, key, value = _unpack(_LEAF_ELEMENT, data, element)
        begin = element + position
        if begin + key + value > len(data):
            raise BoltInvalid("it is cut off")
        yield data[begin : begin + key], flags, data[begin + key : begin + key + value]


def _unpack(layout: struct.Struct, data: bytes, offset: int) -> tuple[int, ...]:
    try:
        return layout.unpack_from(data, offset)
    except struct.error:
        raise BoltInvalid("it is cut off") from None
