"""A parent and a child that have a System V segment of 56 bytes attached, and do what they are told by lines on standard input.

Each word is done by the child, then by the parent, which answers how often both have written.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Callable

PRIVATE, CREATE, REMOVE = 0, 0o1600, 0
SIZE, PAGE = 56, 4096
MUCH = 64 << 20  # as much as is copied at a time; with the segment it is more

libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmat.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
libc.shmdt.argtypes = (ctypes.c_void_p,)


def made(size: int) -> int:
    number = int(libc.shmget(PRIVATE, size, CREATE))
    assert number >= 0, os.strerror(ctypes.get_errno())
    return number


def attached(number: int) -> int:
    address = libc.shmat(number, None, 0)
    assert address not in (None, ctypes.c_void_p(-1).value), os.strerror(ctypes.get_errno())
    return int(address)


segment = made(SIZE)
address = attached(segment)
counts = [0]


def write(name: int) -> None:
    """Also behind the segment's end, in its last page."""
    counts[0] += 1
    for place in (name, 40 + name, SIZE + name, PAGE - 1 - name):
        ctypes.memset(address + place, counts[0] % 256, 1)


def another(name: int) -> None:
    if name == 0:
        attached(made(2 * PAGE))


def many(name: int) -> None:
    """More than /proc/sysvipc/shm tells in one read(2)."""
    if name == 0:
        for _ in range(40):
            attached(made(PAGE))


def much(name: int) -> None:
    if name == 0:
        ctypes.memset(attached(made(MUCH)), 1, MUCH)


def nobody_s(name: int) -> None:
    if name == 0:
        made(PAGE)


def leave(name: int) -> None:
    if name == 1:
        assert libc.shmdt(address) == 0


def remove(name: int) -> None:
    if name == 0:
        assert libc.shmctl(segment, REMOVE, None) == 0


def semaphore(name: int) -> None:
    if name == 0:
        assert libc.semget(PRIVATE, 1, CREATE) >= 0


WORDS: dict[str, Callable[[int], None]] = {
    "nothing": lambda _: None,
    "write": write,
    "another": another,
    "many": many,
    "much": much,
    "nobody's": nobody_s,
    "leave": leave,
    "remove": remove,
    "semaphore": semaphore,
}


def work(mine: socket.socket) -> None:
    while word := mine.recv(100):
        WORDS[word.decode()](1)
        mine.send(b"%d" % counts[0])


def main() -> None:
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        work(theirs)
        os._exit(0)
    theirs.close()
    print("ready", flush=True)
    for line in sys.stdin:
        ours.send(line.strip().encode())
        told = int(ours.recv(100))
        WORDS[line.strip()](0)
        print(told + counts[0], flush=True)


main()
