"""A file system that has nothing but inodes of chosen numbers (`numbering` says what for).

It is an ext2 of the ext4 driver, read-only and in memory: a superblock, the descriptors of the block groups, an empty root
directory, and one block of an inode table for each chosen inode. All else is a hole, so some 40 KB are used whatever the
numbers are. It would not please fsck, and need not: the inodes have no names, and are found by file handle only.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterator
from pathlib import Path

from relive.kernel.loop_devices import read_only_device
from relive.kernel.mounts import MountFlag, mount

__all__ = ["HIGHEST_NUMBER", "LOWEST_NUMBER", "inode_blocks", "mount_inodes"]

_BLOCK, _INODE, _DESCRIPTOR = 4096, 256, 32  # [bytes]
_PER_GROUP = 8 * _BLOCK  # inodes; the most that a bitmap of one block can tell of
_TABLE = _PER_GROUP * _INODE // _BLOCK  # [blocks]
_SMALLEST_GROUP = 256  # [blocks]
_FILE_TYPES, _FLEXIBLE_GROUPS = 0x2, 0x200  # the latter: tables may lie anywhere
_ROOT = 2

LOWEST_NUMBER = 11  # those before are the file system's own
HIGHEST_NUMBER = (1 << 32) - _PER_GROUP  # the count of all is a number of 32 bits, too


def mount_inodes(point: Path, numbers: Collection[int]) -> bytes:
    """Mount it in the caller's mount namespace, with whose end it is gone; returns its UUID.

    Args:
        numbers: from LOWEST_NUMBER to HIGHEST_NUMBER.

    Raises:
        OSError: there is no loop device, or no ext4.
    """
    uuid = os.urandom(16)
    file = os.memfd_create("relive-inodes", os.MFD_CLOEXEC)
    try:
        size, blocks = _laid_out(numbers, uuid)
        os.ftruncate(file, size)
        for offset, data in blocks:
            os.pwrite(file, data, offset)
        flags = MountFlag.READ_ONLY | MountFlag.NO_SUID | MountFlag.NO_DEVICES | MountFlag.NO_EXEC
        with read_only_device(file) as device:
            # Bitmaps are shared, which the driver takes for damage unless it is told not to look.
            mount(str(device), point, "ext4", flags, "noblock_validity")
    finally:
        os.close(file)
    return uuid


def inode_blocks(numbers: Collection[int], uuid: bytes) -> tuple[int, list[tuple[int, bytes]]]:
    """The bytes of the whole, and what is no hole of it as (offset, bytes)."""
    size, blocks = _laid_out(numbers, uuid)
    return size, list(blocks)


def _laid_out(numbers: Collection[int], uuid: bytes) -> tuple[int, Iterator[tuple[int, bytes]]]:
    groups = (max(numbers, default=_ROOT) - 1) // _PER_GROUP + 1
    bitmap = 1 + -(-groups * _DESCRIPTOR // _BLOCK)  # after the superblock's and those of the descriptors
    directory, first_table = bitmap + 1, bitmap + 2
    used = sorted({0, *((number - 1) // _PER_GROUP for number in numbers)})
    # The first table is that of all groups of which nothing is used.
    tables = {group: first_table + _TABLE * (index + 1) for index, group in enumerate(used)}
    needed = first_table + _TABLE * (len(used) + 1)
    per_group = max(_SMALLEST_GROUP, -(-needed // groups) + 7 & ~7)

    def blocks() -> Iterator[tuple[int, bytes]]:
        yield 1024, _superblock(groups, per_group, uuid)
        descriptors = bytearray(struct.pack("<3I20x", bitmap, bitmap, first_table) * groups)
        for group, table in tables.items():
            struct.pack_into("<3I", descriptors, group * _DESCRIPTOR, bitmap, bitmap, table)
        yield _BLOCK, bytes(descriptors)
        yield directory * _BLOCK, _empty_directory()
        yield _place_of(_ROOT, tables), _inode(0o40755, links=2, block=directory)
        for number in numbers:
            yield _place_of(number, tables), _inode(0o100600, links=1)

    return groups * per_group * _BLOCK, blocks()


def _place_of(number: int, tables: dict[int, int]) -> int:
    group, index = divmod(number - 1, _PER_GROUP)
    return tables[group] * _BLOCK + index * _INODE


def _superblock(groups: int, per_group: int, uuid: bytes) -> bytes:
    """struct ext4_super_block."""
    block = bytearray(1024)
    struct.pack_into("<2I", block, 0, groups * _PER_GROUP, groups * per_group)
    struct.pack_into("<5I", block, 24, 2, 2, per_group, per_group, _PER_GROUP)  # 2: blocks of 1024 << 2
    struct.pack_into("<5H", block, 52, 0, 0xFFFF, 0xEF53, 1, 1)  # magic; clean; go on where there is an error
    struct.pack_into("<I", block, 76, 1)  # revision
    struct.pack_into("<IH", block, 84, LOWEST_NUMBER, _INODE)
    struct.pack_into("<I", block, 96, _FILE_TYPES | _FLEXIBLE_GROUPS)
    block[104:120] = uuid
    return bytes(block)


def _inode(mode: int, *, links: int, block: int = 0) -> bytes:
    """struct ext4_inode of an empty file, or of a directory of one block."""
    size, sectors = (_BLOCK, _BLOCK // 512) if block else (0, 0)
    return struct.pack("<HHI16xHHI8xI", mode, 0, size, 0, links, sectors, block)


def _empty_directory() -> bytes:
    own = struct.pack("<IHBB4s", _ROOT, 12, 1, 2, b".")
    return own + struct.pack("<IHBB4s", _ROOT, _BLOCK - len(own), 2, 2, b"..")
