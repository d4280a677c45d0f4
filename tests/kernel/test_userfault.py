"""userfaultfd on memory of our own, seen by a thread that waits for it."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
import threading
from collections.abc import Iterator

import pytest

from relive.errors import HostIncapable
from relive.kernel import libc, userfault
from relive.kernel.userfault import Copied, FaultEventKind, UserFault, check_userfault, notes_writes

PAGES = 8
_API, _REGISTER = 0xC018AA3F, 0xC020AA00
_REMOVE_EVENTS = 1 << 3


@pytest.fixture
def memory() -> Iterator[mmap.mmap]:
    found = mmap.mmap(-1, PAGES * 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    yield found
    found.close()


def first_page(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory)) >> 12


@pytest.fixture
def fault(memory: mmap.mmap) -> Iterator[UserFault]:
    descriptor = libc.syscall(323, os.O_CLOEXEC | os.O_NONBLOCK)
    asked = ctypes.create_string_buffer(struct.pack("3Q", 0xAA, _REMOVE_EVENTS, 0))
    libc.call("ioctl", descriptor, ctypes.c_ulong(_API), asked)
    order = ctypes.create_string_buffer(struct.pack("4Q", first_page(memory) << 12, PAGES * 4096, 1, 0))
    libc.call("ioctl", descriptor, ctypes.c_ulong(_REGISTER), order)
    found = UserFault(descriptor)
    yield found
    found.close()


def content(pages: int) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(b"".join(bytes([65 + page]) * 4096 for page in range(pages)))


def test_this_host_has_what_lazy_restore_needs():
    check_userfault()


def test_this_host_notes_writes() -> None:
    assert notes_writes()


@pytest.mark.parametrize("features", [1 << 63, 1 << 15 | 1 << 63])
def test_a_kernel_that_knows_none_of_it_says_so(monkeypatch: pytest.MonkeyPatch, features: int) -> None:
    """It refuses features that it does not know with EINVAL."""
    monkeypatch.setattr(userfault, "_NOTES_WRITES", features)
    assert not notes_writes()


def test_a_host_without_it_is_told(monkeypatch):
    def refused(*_: object) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(userfault.libc, "syscall", refused)
    with pytest.raises(HostIncapable) as told:
        check_userfault()
    assert "--lazy" in (told.value.remedy or "")


def test_a_thread_that_waits_gets_its_page(memory, fault):
    seen = []
    reading, writing = os.pipe()

    def touch() -> None:
        # The kernel reads the memory, while the interpreter goes on; reading it in Python would hold its lock.
        libc.call("write", writing, ctypes.c_void_p((first_page(memory) + 2) << 12), ctypes.c_size_t(1))
        seen.append(os.read(reading, 1))

    thread = threading.Thread(target=touch)
    thread.start()
    events = []
    while not events:
        events = fault.events()
    assert [(one.kind, one.first) for one in events] == [(FaultEventKind.FAULT, first_page(memory) + 2)]
    pages = content(PAGES)
    copied = fault.copy(first_page(memory) + 2, ctypes.addressof(pages) + 2 * 4096, 3)
    assert copied == Copied(3, 0)
    thread.join()
    assert seen == [b"C"]
    assert memory[3 * 4096 : 3 * 4096 + 1] == b"D"
    os.close(reading)
    os.close(writing)


def test_what_is_there_is_not_overwritten(memory, fault):
    pages, first = content(PAGES), first_page(memory)
    assert fault.copy(first + 1, ctypes.addressof(pages), 1) == Copied(1, 0)
    assert fault.copy(first + 1, ctypes.addressof(pages) + 4096, 1) == Copied(0, errno.EEXIST)
    assert fault.copy(first, ctypes.addressof(pages) + 4096, 2) == Copied(1, errno.EAGAIN)  # up to it
    assert fault.zero(first + 1) == errno.EEXIST
    assert fault.zero(first + 2) == 0
    assert memory[4096:4097] == b"A" and memory[2 * 4096 : 2 * 4096 + 1] == b"\0"


def test_memory_that_is_not_watched_is_refused(memory, fault):
    pages = content(1)
    assert fault.copy(first_page(memory) + PAGES + 1000, ctypes.addressof(pages), 1).refusal == errno.ENOENT
    fault.wake(first_page(memory), PAGES)


def test_nothing_has_happened(fault):
    assert fault.events() == []
