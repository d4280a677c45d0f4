"""What the processes beside each service import, and that what a commit took is given back."""

from __future__ import annotations

import subprocess
import sys

import pytest

from relive.kernel.heap import FEW_ARENAS, trim_memory

_HEAVY = {"rich", "twisted", "typer", "fastapi", "streamlit", "numpy", "opentelemetry", "httpx", "obstore"}


@pytest.mark.parametrize(
    ("module", "never"),
    [
        ("relive.agent.__main__", _HEAVY),
        ("relive.watching.__main__", _HEAVY),
        ("relive.proxies.ingress.proxy", _HEAVY | {"pydantic", "structlog", "cryptography"}),
        ("relive.signals.tracer", _HEAVY | {"pydantic", "structlog", "cryptography", "asyncio"}),
    ],
)
def test_nothing_is_imported_that_is_not_needed(module: str, never: set[str]):
    code = f"import {module}, sys; print(*(name for name, found in sys.modules.items() if found))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert never & set(done.stdout.split()) == set()


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
