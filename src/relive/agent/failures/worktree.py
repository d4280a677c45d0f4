"""Whether tracked files differ from what git's index has of them (gitformat-index(5)), without git.

Sizes and times are compared, as git does it, and where only the time differs the content. All of it is bounded. Not looked at:
files that git does not track, submodules, and whether the index is what was committed, but that its tree is valid.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["has_changes"]

_MOST_INDEX = 16 << 20  # [bytes]
_MOST_FILES = 20_000
_MOST_READ = 32 << 20  # [bytes] of all files whose time differs
_FIXED = 40  # [bytes] of an entry before its object's name
_MAGIC = b"DIRC"
_ASSUMED, _STAGE, _EXTENDED, _LENGTH = 0x8000, 0x3000, 0x4000, 0x0FFF
_SKIPPED = 0x4000  # of the extended flags: not checked out


@dataclass(frozen=True, slots=True)
class _Entry:
    """``mtime`` is (seconds, nanoseconds), both of 32 bits as is ``size``; ``name`` of the object in hex."""

    path: bytes
    mode: int
    mtime: tuple[int, int]
    size: int
    name: str
    is_looked_at: bool
    is_conflict: bool


class _Unknown(Exception):
    """It is too much, or not to be understood."""


def has_changes(root: Path, commit: str) -> bool | None:
    """True: a tracked file below ``root`` was changed; None: that cannot be told.

    Args:
        root: of the work tree; written by others, so nothing in it is trusted.
        commit: in hex; its length tells which hash names objects.
    """
    try:
        raw, racy = _index(root)
        entries, is_valid = _read(raw, len(commit) // 2)
        left = _MOST_READ
        for entry in entries:
            if entry.is_conflict:
                return True
            if entry.is_looked_at:
                changed, read = _is_changed(root, entry, racy, left, len(commit))
                left -= read
                if changed:
                    return True
    except (OSError, ValueError, IndexError, _Unknown):
        return None
    return False if is_valid else None


def _index(root: Path) -> tuple[bytes, int]:
    """The index, and the time in seconds from which on a file may have changed without a sign of it."""
    git = root / ".git"
    if git.is_file():
        text = git.read_bytes()[:4096].decode()
        git = root / text.removeprefix("gitdir:").strip()
    raw, facts = _regular(os.fspath(git / "index"), _MOST_INDEX)
    return raw, int(facts.st_mtime)


def _regular(path: str, most: int) -> tuple[bytes, os.stat_result]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > most:
            raise _Unknown
        return file.read(most), facts


def _read(raw: bytes, width: int) -> tuple[list[_Entry], bool]:
    """The entries, and whether the tree of the index is valid: nothing was staged since it was made."""
    version, count = (int.from_bytes(raw[at : at + 4], "big") for at in (4, 8))
    if raw[:4] != _MAGIC or version not in (2, 3, 4) or count > _MOST_FILES:
        raise _Unknown
    entries, at, before = [], 12, b""
    for _ in range(count):
        entry, at = _entry(raw, at, width, version, before)
        before = entry.path
        entries.append(entry)
    return entries, all(tree[tree.index(b"\0") + 1 :][:2] != b"-1" for tree in _trees(raw, at, width))


def _entry(raw: bytes, at: int, width: int, version: int, before: bytes) -> tuple[_Entry, int]:
    numbers = [int.from_bytes(raw[at + 4 * one : at + 4 * one + 4], "big") for one in range(10)]
    name = raw[at + _FIXED : at + _FIXED + width].hex()
    place = at + _FIXED + width
    flags = int.from_bytes(raw[place : place + 2], "big")
    place += 2
    more = 0
    if flags & _EXTENDED:
        more = int.from_bytes(raw[place : place + 2], "big")
        place += 2
    if version == 4:
        cut, place = _varint(raw, place)
        end = raw.index(b"\0", place)
        path = before[: len(before) - cut] + raw[place:end]
        place = end + 1
    else:
        length = flags & _LENGTH
        end = place + length if length < _LENGTH else raw.index(b"\0", place)
        path = raw[place:end]
        place = at + (end - at + 8) // 8 * 8
    is_looked_at = not flags & _ASSUMED and not more & _SKIPPED and stat.S_IFMT(numbers[6]) != 0o160000
    entry = _Entry(
        path, numbers[6], (numbers[2], numbers[3]), numbers[9], name, is_looked_at, bool(flags & _STAGE)
    )
    return entry, place


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """As offsets in packs are written."""
    value = raw[at] & 0x7F
    while raw[at] & 0x80:
        at += 1
        value = (value + 1 << 7) | (raw[at] & 0x7F)
    return value, at + 1


def _trees(raw: bytes, at: int, width: int) -> Iterator[bytes]:
    """The extension TREE, where there is one: it begins with the root: an empty path, the number of its entries or -1."""
    while at + 8 <= len(raw) - width:
        size = int.from_bytes(raw[at + 4 : at + 8], "big")
        if raw[at : at + 4] == b"TREE":
            yield raw[at + 8 : at + 8 + size]
        at += 8 + size


def _is_changed(root: Path, entry: _Entry, racy: int, left: int, digits: int) -> tuple[bool, int]:
    """Whether it was, and how many bytes were read for that."""
    path = b"/".join((os.fsencode(root), entry.path))
    try:
        facts = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True, 0
    if stat.S_IFMT(facts.st_mode) != stat.S_IFMT(entry.mode) or facts.st_size & 0xFFFFFFFF != entry.size:
        return True, 0
    if stat.S_ISREG(facts.st_mode) and (facts.st_mode ^ entry.mode) & 0o100:
        return True, 0
    seconds, nanoseconds = divmod(facts.st_mtime_ns, 1_000_000_000)
    same = entry.mtime[0] == seconds & 0xFFFFFFFF and entry.mtime[1] in (0, nanoseconds)
    if same and seconds < racy:
        return False, 0
    if stat.S_ISLNK(facts.st_mode):
        data = os.readlink(path)
    else:
        data, _ = _regular(os.fsdecode(path), left)
    made = hashlib.sha1 if digits == 40 else hashlib.sha256
    if made(b"blob %d\0" % len(data) + data).hexdigest() == entry.name:
        return False, len(data)
    if (root / ".gitattributes").exists():  # what git has may be made of it by a filter
        raise _Unknown
    return True, len(data)
