"""The images of device and inode numbers: what is written comes back, and nothing else is believed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relive.errors import ObjectCorrupt
from relive.images import criu_images_pb2 as pb
from relive.images.file_numbers import (
    DEVICE_NUMBERS,
    INODE_NUMBERS,
    FileNumbers,
    parse_numbers,
    write_file_numbers,
    written_files,
)


def opened(name: str, flags: int) -> pb.FileEntry:
    regular = pb.RegFileEntry(id=1, flags=flags, pos=0, name=name)
    return pb.FileEntry(id=1, reg=regular)


def test_only_what_is_open_for_both_is_numbered() -> None:
    ways = {
        "read": os.O_RDONLY,
        "log": os.O_WRONLY | os.O_APPEND,
        "both": os.O_RDWR,
        "more": os.O_RDWR | os.O_CLOEXEC,
    }
    files = [opened(f"/d/{name}", flags) for name, flags in ways.items()]
    assert written_files([*files, opened("nameless", os.O_RDWR)]) == {"/d/both", "/d/more"}


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    numbers = {"/a": (64512, 12), "/no utf-8 \udcff": (0, 1 << 63), '/"\n': (1 << 63, 0)}
    write_file_numbers(tmp_path, {path: FileNumbers(*both) for path, both in numbers.items()})
    devices, inodes = (
        parse_numbers(image, (tmp_path / image).read_bytes()) for image in (DEVICE_NUMBERS, INODE_NUMBERS)
    )
    assert {path: (devices[path], inode) for path, inode in inodes.items()} == numbers


def test_a_commit_without_such_files_has_no_image(tmp_path: Path) -> None:
    write_file_numbers(tmp_path, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 200_000,
        b'{"a": 1}',
        b'{"/a": -1}',
        b'{"/a": "1"}',
        b'{"/a": true}',
        b'{"/a": 1.5}',
        b'{"/\\u0000": 1}',
    ],
)
def test_what_no_commit_of_ours_says_is_refused(data: bytes) -> None:
    with pytest.raises(ObjectCorrupt):
        parse_numbers(INODE_NUMBERS, data)
