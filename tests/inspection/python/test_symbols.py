import ctypes
import mmap
import os
import struct
from pathlib import Path

import pytest

from relive.inspection.python.symbols import dynamic_symbols, interpreter_functions


def test_functions_lie_where_the_linker_put_them():
    """In this very process, whose linker can be asked."""
    names = ["PyGILState_Ensure", "PyEval_EvalCode"]
    found = interpreter_functions(os.getpid(), names)
    assert found == {
        name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in names
    }


def test_a_function_that_is_not_there_makes_it_no_interpreter():
    assert interpreter_functions(os.getpid(), ["PyNothing_OfTheKind"]) is None
    assert interpreter_functions(1 << 22, ["PyGILState_Ensure"]) is None


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF\x01" + bytes(200), b"#!/bin/sh\n" * 20])
def test_what_is_no_elf_file_has_no_symbols(data):
    assert dynamic_symbols(data, ["a"]) is None


def test_a_damaged_file_raises_nothing():
    with Path("/bin/ls").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        whole = bytes(data)
    assert dynamic_symbols(whole, ["nothing"]) is not None
    for at in range(16, 64):
        broken = whole[:at] + b"\xff" + whole[at + 1 :]
        dynamic_symbols(broken, ["malloc"])
    header = struct.pack("<Q", len(whole) + 10)
    dynamic_symbols(whole[:40] + header + whole[48:], ["malloc"])
