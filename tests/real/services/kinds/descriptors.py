"""Descriptors without a name."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import select
import signal
import struct
import time
from pathlib import Path

from holding import RUN, TOP, WITHIN, Kind, check, in_child, kind, libc, readable


@kind
def eventfd() -> Kind:
    number = os.eventfd(7)
    yield
    assert os.eventfd_read(number) == 7
    os.eventfd_write(number, 2)
    assert os.eventfd_read(number) == 2


@kind
def timerfd() -> Kind:
    number = check(libc.timerfd_create(time.CLOCK_MONOTONIC, 0))
    check(libc.timerfd_settime(number, 0, struct.pack("4q", 0, 10_000_000, 0, 10_000_000), None))
    far = check(libc.timerfd_create(time.CLOCK_MONOTONIC, 0))
    check(libc.timerfd_settime(far, 0, struct.pack("4q", 0, 0, 3600, 0), None))
    yield
    assert readable(number) and struct.unpack("Q", os.read(number, 8))[0] > 0
    left = ctypes.create_string_buffer(32)
    check(libc.timerfd_gettime(far, left))
    assert 3500 < struct.unpack("4q", left.raw)[2] < 3600


@in_child
def signalfd() -> Kind:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    mask = struct.pack("Q", 1 << (signal.SIGUSR1 - 1))
    number = check(libc.signalfd(-1, mask, 0))
    os.kill(os.getpid(), signal.SIGUSR1)
    yield
    assert readable(number) and struct.unpack_from("I", os.read(number, 128))[0] == signal.SIGUSR1


@kind
def pair_of_a_terminal() -> Kind:
    """Both sides: what is written to one is read at the other, not by somebody outside."""
    ours, terminal = os.openpty()
    others = os.openpty()
    yield
    os.write(terminal, b"line\n")
    assert readable(ours) and os.read(ours, 16) == b"line\r\n"
    os.write(others[0], b"typed\n")
    assert readable(others[1]) and os.read(others[1], 16) == b"typed\n"


@kind
def terminal_hung_up() -> Kind:
    """Its other side was closed, so that it reads its end and takes no more."""
    ours, terminal = os.openpty()
    os.close(ours)
    yield
    assert os.read(terminal, 9) == b""
    refused = 0
    try:
        os.write(terminal, b"line")
    except OSError as error:
        refused = error.errno
    assert refused == errno.EIO


@kind
def namespace_held() -> Kind:
    number = os.open("/proc/self/ns/net", os.O_RDONLY)
    yield
    assert os.readlink(f"/proc/self/fd/{number}") == os.readlink("/proc/self/ns/net")


@kind
def epoll() -> Kind:
    reading, writing = os.pipe()
    poll = select.epoll()
    poll.register(reading, select.EPOLLIN | select.EPOLLET)
    os.write(writing, b"x")
    yield
    assert (reading, select.EPOLLIN) in poll.poll(WITHIN)
    assert os.read(reading, 2) == b"x" and poll.poll(0) == []
    os.write(writing, b"y")
    assert poll.poll(WITHIN)


@kind
def inotify_on_a_directory() -> Kind:
    watched = TOP / "watched"
    watched.mkdir()
    yield from _inotify(watched, watched / "new")


@kind
def inotify_on_a_file_of_the_host() -> Kind:
    yield from _inotify(TOP / "of-the-host", TOP / "of-the-host")


@kind
def inotify_in_run() -> Kind:
    watched = RUN / "watched"
    watched.mkdir(parents=True)
    yield from _inotify(watched, watched / "new")


def _inotify(watched: Path, touched: Path) -> Kind:
    number = check(libc.inotify_init1(0))
    check(libc.inotify_add_watch(number, bytes(watched), 0x00000002 | 0x00000100))  # IN_MODIFY | IN_CREATE
    yield
    touched.write_text("something else\n")
    assert readable(number)
    assert len(os.read(number, 4096)) >= 16


@kind
def memfd() -> Kind:
    number = os.memfd_create("kinds", os.MFD_ALLOW_SEALING)
    os.write(number, b"kept")
    fcntl.fcntl(number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    area = mmap.mmap(number, 4)
    yield
    assert os.pread(number, 10, 0) == b"kept" and area[:] == b"kept"
    assert fcntl.fcntl(number, fcntl.F_GET_SEALS) == fcntl.F_SEAL_SHRINK
    os.pwrite(number, b"K", 0)
    assert area[:1] == b"K"


@kind
def pipe_with_data() -> Kind:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 18)
    os.write(writing, b"x" * 100_000)
    yield
    assert fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ) == 1 << 18
    assert len(os.read(reading, 200_000)) == 100_000


@kind
def pipe_with_data_and_without_writers() -> Kind:
    reading, writing = os.pipe()
    os.write(writing, b"data")
    os.close(writing)
    yield
    assert os.read(reading, 9) == b"data" and os.read(reading, 9) == b""


@kind
def pidfd() -> Kind:
    pid = os.fork()
    if pid == 0:
        signal.pause()
    number = os.pidfd_open(pid)
    yield
    signal.pidfd_send_signal(number, signal.SIGTERM)
    assert readable(number)
    assert os.waitpid(pid, 0)[1] == signal.SIGTERM


@kind
def many_descriptors() -> Kind:
    numbers = [os.open("/dev/null", os.O_RDONLY) for _ in range(300)]
    shared = os.dup(numbers[0])
    yield
    assert all(os.fstat(number).st_rdev == os.makedev(1, 3) for number in [*numbers, shared])
    for number in [*numbers, shared]:
        os.close(number)
