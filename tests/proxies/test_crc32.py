"""Checksums are the same on processors that lack the instructions of this one."""

from __future__ import annotations

import ctypes
import random
import subprocess
import zlib
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
DRIVER = """
#include "crc32.h"
unsigned prepared(void) { crc32_prepare(); return crc32_can_fold | crc32_can_fold_wide << 1; }
unsigned sum(unsigned may, const void *p, unsigned long n)
{
    crc32_can_fold = may & 1, crc32_can_fold_wide = may >> 1;
    return ~crc32_more(CRC32_BEGIN, p, n);
}
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    directory = tmp_path_factory.mktemp("crc32")
    (directory / "driver.c").write_text(DRIVER)
    command = ["gcc", "-std=gnu11", "-O2", "-shared", "-fPIC", f"-I{NATIVE}", "driver.c", "-o", "driver.so"]
    subprocess.run(command, cwd=directory, check=True)
    made = ctypes.CDLL(str(directory / "driver.so"))
    made.sum.argtypes, made.sum.restype = [ctypes.c_uint, ctypes.c_char_p, ctypes.c_ulong], ctypes.c_uint
    return made


@pytest.mark.parametrize("may", [0, 1, 3], ids=["tables", "folding", "wide folding"])
def test_each_way_sums_as_zlib(driver: ctypes.CDLL, may: int) -> None:
    if may & ~driver.prepared():
        pytest.skip("this processor lacks the instructions")
    data = random.Random(7).randbytes(1 << 14)
    for size in [*range(300), *range(1000, 1100), 2047, 2048, 4095, 1 << 14]:
        assert driver.sum(may, data[:size], size) == zlib.crc32(data[:size]), size
