"""A file system of chosen inode numbers, as the kernel finds them by handle, and files of an overlay that have them."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

import pytest

from kernel.helpers import in_child, needs_root
from relive.kernel import libc
from relive.kernel.mounts import make_private, mount_overlay
from relive.kernel.namespaces import Namespace, unshare
from relive.sandbox.inode_filesystem import HIGHEST_NUMBER, LOWEST_NUMBER, inode_blocks, mount_inodes
from relive.sandbox.inode_numbers import InodeNumbers, number_files

NUMBERS = {
    "the first": [LOWEST_NUMBER],
    "neighbours, and of two groups": [11, 12, 32768, 32769],
    "far apart": [11, 99_999, 2_473_999, 70_000_000],
    "many": [*range(1_000, 400_000, 1_000)],
}


@needs_root
@pytest.mark.parametrize("numbers", NUMBERS.values(), ids=list(NUMBERS))
def test_each_inode_is_found_by_its_number(tmp_path: Path, numbers: list[int]) -> None:
    def work() -> list[tuple[int, int]]:
        unshare(Namespace.MOUNT)
        make_private()
        mount_inodes(tmp_path, numbers)
        directory = os.open(tmp_path, os.O_RDONLY)
        assert os.listdir(directory) == []
        found = []
        for number in numbers:
            handle = ctypes.create_string_buffer(struct.pack("<IiII", 8, 1, number, 0))
            facts = os.fstat(libc.call("open_by_handle_at", directory, handle, os.O_PATH))
            found.append((facts.st_ino, facts.st_nlink))
        return found

    assert in_child(work) == [(number, 1) for number in numbers]


def test_the_highest_number_needs_hardly_any_memory() -> None:
    size, blocks = inode_blocks([HIGHEST_NUMBER], bytes(range(16)))
    assert sum(len(data) for _, data in blocks) < 5_000_000
    assert all(offset >= 0 and offset + len(data) <= size for offset, data in blocks)


@needs_root
def test_files_of_an_overlay_have_their_numbers(tmp_path: Path) -> None:
    """Each number once; what is no file, and what a link leads to, has none; a number that cannot be had does no harm."""
    lower, upper, work = (tmp_path / name for name in ("lower", "upper", "work"))
    for one in (lower / "d", upper, work, tmp_path / "seen"):
        one.mkdir(parents=True)
    for name in ("a", "d/b", "twice", "too small"):
        (lower / name).write_text(name)
    (lower / "link").symlink_to("a")
    names = {"a": 123_456, "d/b": 99, "twice": 99, "too small": 1, "link": 77, "d": 78, "nothing": 79}

    def numbered() -> tuple[set[str], dict[str, int], str]:
        unshare(Namespace.MOUNT)
        make_private()
        numbers = InodeNumbers.mounted(
            tmp_path / "numbers", {f"/p/{name}": number for name, number in names.items()}
        )
        assert numbers is not None
        layers = [lower, numbers.layer]
        found = number_files("/p", numbers, first=tmp_path / "first", lower=layers, upper=upper, work=work)
        mount_overlay(tmp_path / "seen", lower=layers, upper=upper, work=work)
        with (tmp_path / "seen/a").open("a") as file:
            file.write("!")
            opened = os.fstat(file.fileno()).st_ino
        seen = {name: (tmp_path / "seen" / name).stat().st_ino for name in ("a", "d/b", "twice")}
        return found, seen | {"open": opened}, (tmp_path / "seen/a").read_text()

    found, seen, text = in_child(numbered)
    assert found == {"/p/a", "/p/d/b"}
    assert (seen["a"], seen["open"], seen["d/b"]) == (123_456, 123_456, 99)
    assert seen["twice"] != 99
    assert text == "a!"
    assert (lower / "a").read_text() == "a"
