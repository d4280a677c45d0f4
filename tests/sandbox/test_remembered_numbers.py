"""Where memory holds the numbers of a file, and what is written there."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
from pathlib import Path

import pytest

from relive.errors import ObjectCorrupt
from relive.images import criu_images_pb2 as pb
from relive.images.file_numbers import FileNumbers
from relive.sandbox.remembered_numbers import Remembered, correct_numbers, find_remembered

PAGE = 4096
FILE = FileNumbers(device=64512, inode=1_234_567)
PAIR = struct.pack("<2Q", *FILE)


def lay_out(images: Path, pid: int, runs: list[tuple[int, bytes]]) -> None:
    """Memory of a process: what is at each address, whole pages."""
    entries = [
        pb.PagemapEntry(vaddr=address, compat_nr_pages=len(data) // PAGE, nr_pages=len(data) // PAGE, flags=4)
        for address, data in runs
    ]
    bodies = [entry.SerializeToString() for entry in (pb.PagemapHead(pages_id=pid), *entries)]
    parts = [struct.pack("<2I", 0x54564319, 0), *(struct.pack("<I", len(body)) + body for body in bodies)]
    (images / f"pagemap-{pid}.img").write_bytes(b"".join(parts))
    (images / f"pages-{pid}.img").write_bytes(b"".join(data for _, data in runs))


def with_pair(pages: int, *offsets: int) -> bytes:
    data = bytearray(pages * PAGE)
    for offset in offsets:
        data[offset : offset + len(PAIR)] = PAIR
    return bytes(data)


def test_a_pair_is_found_wherever_it_is(tmp_path: Path) -> None:
    far = 0x7F00_0000_0000
    lay_out(tmp_path, 2, [(0x10000, with_pair(1, 0)), (far, with_pair(600, 16, PAGE - 8, 600 * PAGE - 16))])
    lay_out(tmp_path, 3, [(0x20000, with_pair(1, 40))])
    lay_out(tmp_path, 4, [])
    found = find_remembered(tmp_path, {"/a.db": FILE})
    assert {(one.pid, one.address) for one in found} == {
        (2, 0x10000),
        (2, far + 16),
        (2, far + PAGE - 8),  # its second word is in the next page
        (2, far + 600 * PAGE - 16),
        (3, 0x20000 + 40),
    }
    assert {(one.path, one.numbers) for one in found} == {("/a.db", FILE)}


def test_what_only_looks_like_one_is_not_found(tmp_path: Path) -> None:
    first, second = bytearray(PAGE), bytearray(PAGE)
    first[-8:], second[:8] = PAIR[:8], PAIR[8:]  # side by side in the file only
    second[100:116] = PAIR  # not where a word is
    second[200:208], second[304:312] = PAIR[:8], PAIR[8:]  # one without the other
    lay_out(tmp_path, 2, [(0x10000, bytes(first)), (0x30000, bytes(second))])
    assert find_remembered(tmp_path, {"/a.db": FILE}) == []


@pytest.mark.parametrize(
    "numbers", [(0, 0), (0, 1 << 20), (27, 12), (255, 65535), (64512, 0), (1 << 64, 12), (64512, 1 << 64)]
)
def test_numbers_that_say_nothing_are_not_looked_for(tmp_path: Path, numbers: tuple[int, int]) -> None:
    """Memory is full of small ones: of a file in memory, say."""
    lay_out(tmp_path, 2, [(0x10000, struct.pack("<2Q", *(number % (1 << 64) for number in numbers)) * 256)])
    assert find_remembered(tmp_path, {"/a.db": FileNumbers(*numbers)}) == []


def test_memory_full_of_pairs_is_refused(tmp_path: Path) -> None:
    lay_out(tmp_path, 2, [(0x10000, PAIR * (17 * PAGE // len(PAIR)))])
    with pytest.raises(ObjectCorrupt, match="full of"):
        find_remembered(tmp_path, {"/a.db": FILE})


@pytest.mark.parametrize(
    ("file", "data"), [("pages-2.img", b"short"), ("pages-2.img", None), ("pagemap-1x.img", b"")]
)
def test_images_that_do_not_fit_together_are_refused(tmp_path: Path, file: str, data: bytes | None) -> None:
    lay_out(tmp_path, 2, [(0x10000, bytes(PAGE))])
    if data is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(data)
    with pytest.raises(ObjectCorrupt):
        find_remembered(tmp_path, {"/a.db": FILE})


def test_what_a_process_has_open_is_corrected(tmp_path: Path) -> None:
    opened, closed = tmp_path / "open.db", tmp_path / "closed.db"
    closed.touch()
    other = b"x" * len(PAIR)
    memory = ctypes.create_string_buffer(PAIR * 2 + other, 3 * len(PAIR))
    begin = ctypes.addressof(memory)
    with subprocess.Popen(["true"]) as ended:
        pass
    with opened.open("wb") as file:
        facts = os.fstat(file.fileno())
        correct_numbers(
            [ended.pid, os.getpid()],
            [
                Remembered(os.getpid(), begin + number * len(PAIR), str(path), FILE)
                for number, path in enumerate([opened, closed, opened])
            ],
        )
    assert memory.raw == struct.pack("<2Q", facts.st_dev, facts.st_ino) + PAIR + other


def test_nobody_is_looked_at_where_nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "open", None)
    correct_numbers([os.getpid()], [])
