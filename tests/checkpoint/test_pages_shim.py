"""The library with which CRIU reads pages by several threads: what it answers is what preadv(2) does."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
from pathlib import Path

import pytest

from relive.checkpoint.criu import CriuTools
from relive.config import load_settings

PAGE = 4096


class _Part(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pages-1.img"
    path.write_bytes(random.Random(7).randbytes(4200 * PAGE))
    return path


def _read(file: Path, runs: list[tuple[int, int]], offset: int) -> tuple[int, bytes]:
    """What the call answers, and what is in memory then: ``runs`` are (page in memory, pages)."""
    shim = ctypes.CDLL(str(CriuTools(load_settings().tools_path).pages_shim), use_errno=True)
    shim.preadv64.restype = ctypes.c_ssize_t
    shim.preadv64.argtypes = [ctypes.c_int, ctypes.POINTER(_Part), ctypes.c_int, ctypes.c_long]
    memory = mmap.mmap(-1, 6000 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    parts = (_Part * len(runs))(*[(begin + first * PAGE, count * PAGE) for first, count in runs])
    descriptor = os.open(file, os.O_RDONLY)
    try:
        return shim.preadv64(descriptor, parts, len(runs), offset), memory[:]
    finally:
        os.close(descriptor)


def test_runs_of_any_length_get_their_bytes_and_nothing_else_is_touched(file: Path) -> None:
    """Also where the shares of two threads meet within a run, and at a page that is no multiple of a piece."""
    runs = [(0, 1), (2, 1333), (1400, 64), (1500, 2701)]
    got, memory = _read(file, runs, PAGE)
    content, wanted, at = file.read_bytes(), bytearray(len(memory)), PAGE
    for first, count in runs:
        wanted[first * PAGE : (first + count) * PAGE] = content[at : at + count * PAGE]
        at += count * PAGE
    assert got == sum(count for _, count in runs) * PAGE
    assert memory == bytes(wanted)


def test_a_file_that_is_too_short_is_answered_as_the_kernel_does(file: Path) -> None:
    got, memory = _read(file, [(0, 4300)], 0)
    assert got == file.stat().st_size
    assert memory[:got] == file.read_bytes()
