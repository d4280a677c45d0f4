"""What the processes beside each service import, and that what a commit took is given back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from relive.kernel.heap import FEW_ARENAS, trim_memory
from relive.store.pages.last import map_pages, unmap_pages

_HEAVY = {"rich", "twisted", "typer", "fastapi", "streamlit", "numpy", "opentelemetry", "httpx", "obstore"}


@pytest.mark.parametrize(
    ("module", "never"),
    [
        ("relive.agent.__main__", _HEAVY),
        ("relive.agent.containers.__main__", _HEAVY),
        ("relive.record.proxy", _HEAVY | {"pydantic", "structlog", "cryptography"}),
        ("relive.watch.tracer", _HEAVY | {"pydantic", "structlog", "cryptography", "asyncio"}),
    ],
)
def test_nothing_is_imported_that_is_not_needed(module: str, never: set[str]):
    code = f"import {module}, sys; print(*(name for name, found in sys.modules.items() if found))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert never & set(done.stdout.split()) == set()


def mapped_kib(path: Path) -> int:
    """Of this process's memory, what it has of a file."""
    found, is_it = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            is_it = str(path) in line
        elif is_it and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found


def test_pages_that_wait_for_the_next_commit_are_no_memory_of_the_agent(tmp_path: Path):
    path = tmp_path / "pages"
    content = np.arange(1 << 20, dtype=np.uint64)
    path.write_bytes(content.tobytes())
    with path.open("rb") as file:
        pages = map_pages(file.fileno())
    assert int(pages.sum()) == int(content.sum())
    assert mapped_kib(path) == 8192
    unmap_pages(pages)
    assert mapped_kib(path) == 0
    assert int(pages.sum()) == int(content.sum())
    unmap_pages(np.empty((0, 512), np.uint64))  # of an empty file


def test_freed_memory_goes_back():
    """In a process of its own, whose heap is not this one's: small pieces that are freed stay with glibc until it is told."""
    code = """
from pathlib import Path
from relive.kernel.heap import trim_memory
def anonymous():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
pieces = [libc.malloc(60000) for _ in range(1000)]
for piece in pieces:
    ctypes.memset(piece, 1, 60000)
for piece in pieces[:-1]:
    libc.free(ctypes.c_void_p(piece))
before = anonymous()
trim_memory()
print(before - anonymous())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 50_000
    trim_memory()
    assert FEW_ARENAS["MALLOC_ARENA_MAX"] == "2"
