"""Does what it is told by lines on standard input, and says when it is done. For tests of commits on top of others.

``count`` says a number that grows by one each time.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import resource
import select
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path

kept: list[object] = []
libc = ctypes.CDLL(None, use_errno=True)
libc.sbrk.restype = ctypes.c_void_p
libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
GUARD_INSTALL = 102
SO_PEEK_OFF = 42
USERFAULTFD, USER_MODE_ONLY, UFFDIO_API = 323, 1, 0xC018AA3F


def userfaultfd() -> None:
    found = libc.syscall(USERFAULTFD, USER_MODE_ONLY)
    if libc.ioctl(found, UFFDIO_API, (ctypes.c_uint64 * 3)(0xAA, 0, 0)):
        raise OSError(ctypes.get_errno(), "UFFDIO_API")


def thread() -> None:
    begun = threading.Event()

    def run() -> None:
        begun.set()
        threading.Event().wait()

    threading.Thread(target=run, daemon=True).start()
    begun.wait()


def private(size: int = 1 << 20) -> mmap.mmap:
    area = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, size, mmap.PAGESIZE):
        area[at] = 1 + at // mmap.PAGESIZE % 255
    kept.append(area)
    return area


def file_behind_memory() -> None:
    """Memory that is written, and right behind it a file that is mapped privately and written, too."""
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    page, own = mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE
    start = libc.mmap(None, 2 * page, own, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    file = os.open(__file__, os.O_RDONLY)
    if libc.mmap(start + page, page, own, mmap.MAP_PRIVATE | 0x10, file, 0) != start + page:  # MAP_FIXED
        raise OSError(ctypes.get_errno(), "mmap")
    os.close(file)
    ctypes.memset(start, 7, 2 * page)


def advise(area: mmap.mmap, at: int, size: int, advice: int) -> None:
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    if libc.madvise(ctypes.c_void_p(start + at), size, advice):
        raise OSError(ctypes.get_errno(), "madvise")


def regions() -> None:
    """More pieces of memory than the kernel tells of at a time."""
    area = private(1500 * 2 * mmap.PAGESIZE)
    for at in range(1500):
        advise(area, at * 2 * mmap.PAGESIZE, mmap.PAGESIZE, mmap.MADV_DONTNEED)


def alternate_stack() -> None:
    room = ctypes.create_string_buffer(65536)
    kept.append(room)
    libc.sigaltstack((ctypes.c_uint64 * 3)(ctypes.addressof(room), 0, 65536), None)


def connected() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    kept.extend((listener, socket.create_connection(listener.getsockname()), listener.accept()))


def accept() -> None:
    """One more connection, as servers take them: it does not block, and epoll watches it."""
    taken, _ = listener.accept()
    taken.setblocking(False)
    epoll.register(taken, select.EPOLLIN)
    accepted.append(taken)


def hang_up_when_stopped() -> None:
    """From now on connections are closed right after it was stopped: the C library's wait for events ends then (EINTR)."""
    waits = select.epoll()
    kept.append(waits)

    def run() -> None:
        room = ctypes.create_string_buffer(12)
        while libc.epoll_wait(waits.fileno(), room, 1, -1) < 0:
            while accepted:
                accepted.pop().close()

    threading.Thread(target=run, daemon=True).start()


def watch_for_clients() -> None:
    with contextlib.suppress(FileExistsError):  # it does already
        epoll.register(listener, select.EPOLLIN)


def take_5000() -> None:
    taken = 0
    while taken < 5000:
        select.select([accepted[-1]], [], [])
        taken += len(accepted[-1].recv(5000 - taken))


def pipe_with_data() -> None:
    _, writing = os.pipe()
    os.write(writing, b"left")


def ended_pair() -> None:
    """A stream whose other end is gone: it is readable for ever, and nothing is in it."""
    one, other = socket.socketpair()
    other.close()
    kept.append(one)


def replace_descriptor() -> None:
    os.dup2(os.open(sys.argv[1] + ".other", os.O_WRONLY | os.O_APPEND | os.O_CREAT), kept_file.fileno())


def write() -> None:
    kept_file.write(b"line\n")
    kept_file.flush()


def handle_otherwise() -> None:
    libc.signal(signal.SIGUSR1, ctypes.cast(libc.abs, ctypes.c_void_p))


def watch_much() -> None:
    """More in one epoll than fits into 64 KB of its fdinfo."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    watched = os.eventfd(0)
    for _ in range(1500):
        epoll.register(os.dup(watched), select.EPOLLIN)


DOES = {
    "nothing": lambda: None,
    "objects": lambda: kept.append([str(number) * 9 for number in range(60000)]),
    "map": private,
    "unmap": lambda: private().close(),
    "large": lambda: private(8 << 20),
    "give large back": lambda: kept[0].madvise(
        mmap.MADV_DONTNEED
    ),  # with its page tables, from Linux 6.14 on
    "give back": lambda: private().madvise(mmap.MADV_DONTNEED),
    "free": lambda: private().madvise(mmap.MADV_FREE),
    "huge pages": lambda: private(8 << 20).madvise(mmap.MADV_HUGEPAGE),
    "move": lambda: private().resize(3 << 20),
    "regions": regions,
    "write": write,
    "mask": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2}),
    "break": lambda: libc.sbrk(100),
    "execute": lambda: os.execv(sys.executable, [sys.executable, *sys.argv]),
    "thread": thread,
    "guard": lambda: advise(private(), 0, 2 * mmap.PAGESIZE, GUARD_INSTALL),
    "file behind memory": file_behind_memory,
    "not to children": lambda: private().madvise(mmap.MADV_DONTFORK),
    "empty in children": lambda: private().madvise(18),  # MADV_WIPEONFORK
    "ended pair": ended_pair,
    "much": lambda: private(8 << 20),
    "shared": lambda: kept.append(mmap.mmap(-1, 1 << 16)),
    "memory file": lambda: os.memfd_create("trap"),
    "descriptor": lambda: os.open("/dev/null", os.O_RDONLY),
    "replace descriptor": replace_descriptor,
    "unlinked": lambda: kept.append(tempfile.TemporaryFile()),  # noqa: SIM115  it stays open
    "count continues": lambda: signal.signal(signal.SIGCONT, lambda *_: continued.append(1)),
    "continued": lambda: str(len(continued)).encode(),
    "handle": lambda: signal.signal(signal.SIGUSR1, lambda *_: None),
    "handle otherwise": handle_otherwise,
    "timer": lambda: signal.setitimer(signal.ITIMER_REAL, 3600),
    "alternate stack": alternate_stack,
    "directory": lambda: os.chdir("/usr"),
    "flags of a file": lambda: os.set_blocking(kept_file.fileno(), False),
    "mode of files": lambda: os.umask(0o77),
    "name": lambda: libc.prctl(15, b"other", 0, 0, 0),
    "subreaper": lambda: libc.prctl(36, 1, 0, 0, 0),
    "death signal": lambda: libc.prctl(1, 10, 0, 0, 0),
    "not dumpable": lambda: libc.prctl(4, 0, 0, 0, 0),
    "limit": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (512, 1024)),
    "listen": lambda: kept.append(socket.create_server(("127.0.0.1", 0))),
    "socket option": lambda: listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    "connect": connected,
    "accept": accept,
    "hang up": lambda: accepted.pop(0).close(),
    "watch for clients": watch_for_clients,
    "hang up when stopped": hang_up_when_stopped,
    "answer": lambda: accepted[-1].send(b"answer"),
    "echo": lambda: accepted[-1].send(accepted[-1].recv(100)),
    "take 5000": take_5000,
    "wait for it": lambda: accepted[-1].setblocking(True),
    "no delay": lambda: accepted[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    "peek from": lambda: accepted[-1].setsockopt(socket.SOL_SOCKET, SO_PEEK_OFF, 0),
    "peek": lambda: accepted[-1].recv(100, socket.MSG_PEEK),
    "data in a pipe": pipe_with_data,
    "userfaultfd": userfaultfd,
    "watch much": watch_much,
}

accepted: list[socket.socket] = []
continued: list[int] = []
counted = 0
kept_file = Path(sys.argv[1]).open("ab")  # noqa: SIM115  it stays open
listener = socket.create_server(("127.0.0.1", 0))
epoll = select.epoll()
print("ready", flush=True)
for line in sys.stdin:
    word = line.strip()
    if word == "count":
        counted += 1
        print(counted, flush=True)
    elif word == "port":
        print(listener.getsockname()[1], flush=True)
    else:
        found = DOES[word]()
        print(found.decode() if isinstance(found, bytes) else "done", flush=True)
