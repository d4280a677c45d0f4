"""A parent with two workers, which do what they are told by lines on standard input. For tests of commits of trees.

They share a socket, memory, an open file without a name and one with a name, whose position is theirs in common. Each word is
done by both workers, then by the parent, which says how often all have counted together.
"""

from __future__ import annotations

import mmap
import os
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

PAGE, PAGES = 4096, 200

listener = socket.create_server(("127.0.0.1", 0))
beating, _name = tempfile.mkstemp()
Path(_name).unlink()
log = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
held = bytearray(PAGES * PAGE)
shared = mmap.mmap(-1, PAGES * PAGE)
kept: list[object] = []
counts = [0]


def count(name: int) -> None:
    """Changes memory, also the heap, and what is shared."""
    counts[0] += 1
    counted = counts[0]
    held[(counted * 7 + name) % PAGES * PAGE] = counted % 256
    kept.append(bytes([counted % 256]) * (PAGE * name))
    shared[(counted * 3 + name) % PAGES * PAGE + name] = counted % 256
    os.write(log, b"%d\n" % name)
    os.utime(beating, (counted, counted))


def fork(name: int) -> None:
    if name == 0 and os.fork() == 0:
        os.read(os.pipe()[0], 1)


def end(name: int) -> None:
    if name == 1:
        os._exit(0)


def execute(name: int) -> None:
    if name == 1:
        os.execv(sys.executable, [sys.executable, "-c", "import sys; sys.stdin.read()"])


def open_anew(name: int) -> None:
    """The same file under the same number, which is another open file from now on."""
    if name == 1:
        made = os.open(sys.argv[1], os.O_RDWR)
        os.lseek(made, os.lseek(log, 0, os.SEEK_CUR), os.SEEK_SET)
        os.dup2(made, log, inheritable=False)
        os.close(made)


def pipe(name: int) -> None:
    if name == 2:
        kept.append(os.pipe())


WORDS: dict[str, Callable[[int], None]] = {
    "count": count,
    "fork": fork,
    "end": end,
    "execute": execute,
    "open anew": open_anew,
    "pipe": pipe,
}


def work(name: int, mine: socket.socket) -> None:
    while word := mine.recv(100):
        WORDS[word.decode()](name)
        mine.send(b"%d" % counts[0])


def main() -> None:
    workers = []
    for name in (1, 2):
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            ours.close()
            for other in workers:
                other.close()
            work(name, theirs)
            os._exit(0)
        theirs.close()
        workers.append(ours)
    print("ready", flush=True)
    for line in sys.stdin:
        word = line.strip()
        total = 0
        if word == "reap":  # the first worker was killed
            os.wait()
            workers.pop(0)
            word = "count"
        for worker in workers:
            worker.send(word.encode())
            total += int(worker.recv(100) or 0)
        if word == "end":
            os.wait()
        WORDS[word](0)
        print(total + counts[0], flush=True)


main()
