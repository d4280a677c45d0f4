"""Tells a hash of 4 MB of memory and a file's content; POST / changes both, and makes a thread and descriptors.

POST /NAME makes one change of ``CHANGES``, POST /NAME?SEED the one that this seed draws. GET /number tells the number of a
process that it makes and that has ended by then.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import mmap
import os
import random
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

SIZE, PAGE, CHANGED, CLONE_FS = 4 << 20, 4096, 400, 0x200
ballast = ctypes.create_string_buffer(os.urandom(SIZE), SIZE)
more: list[object] = []
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
waits = threading.Event()
helper = threading.Thread(target=waits.wait, daemon=True)
helper.start()
pair = socket.socketpair()
held = mmap.mmap(-1, 64 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
held.write(os.urandom(64 * PAGE))
in_memory = Path(sys.argv[3])
in_memory.write_bytes(bytes(PAGE))
# Memory of which whole page tables may be given back; pages of a file, of which some are its own.
tables = mmap.mmap(-1, 6 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
tables.write(os.urandom(6 << 20))
with Path(sys.executable).open("rb") as program:
    copied = mmap.mmap(
        program.fileno(), 1 << 20, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
    )
copied[0 : 64 * PAGE : PAGE] = os.urandom(64)
lent = mmap.mmap(-1, 64 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def change_pages() -> None:
    for page in random.sample(range(SIZE // PAGE), CHANGED):
        ctypes.memmove(ctypes.addressof(ballast) + page * PAGE, os.urandom(16), 16)


def give_back(memory: mmap.mmap) -> None:
    """Some of it, also what fills a page table, and look at some of it again."""
    size = len(memory)
    first = random.randrange(size // PAGE) * PAGE
    count = min(size - first, random.choice((1, 40, 1024)) * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc.madvise(ctypes.c_void_p(address + first), ctypes.c_size_t(count), mmap.MADV_DONTNEED)
    sum(memory[first : first + count : random.choice((1, 7)) * PAGE])


def write_pages(memory: mmap.mmap) -> None:
    for page in random.sample(range(len(memory) // PAGE), 20):
        memory[page * PAGE] ^= 255


def start_thread() -> None:
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def churn() -> None:
    """What can be put back: mappings, a heap that grows, memory given back, descriptors, threads, words on stdout."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(held))
    steps = [
        change_pages,
        start_thread,
        lambda: more.append(os.pipe()),
        lambda: more.append(socket.socketpair()),
        lambda: more.append(os.open("/dev/zero", os.O_RDONLY)),
        lambda: more.append(os.open("/etc/passwd", os.O_RDONLY)),
        lambda: more.append(mmap.mmap(-1, random.randrange(1, 600) * PAGE, flags=mmap.MAP_PRIVATE)),
        lambda: more.append([os.urandom(40) for _ in range(random.randrange(20_000))]),
        lambda: more.append(bytearray(random.randrange(1 << 22))),
        lambda: libc.madvise(ctypes.c_void_p(address), 16 * PAGE, mmap.MADV_DONTNEED),
        lambda: give_back(tables),
        lambda: give_back(copied),
        lambda: write_pages(tables),
        lambda: write_pages(copied),
        lambda: libc.mprotect(ctypes.c_void_p(address + 8 * PAGE), 4 * PAGE, mmap.PROT_READ),
        lambda: more and more.pop(random.randrange(len(more))),
        lambda: libc.sbrk(random.randrange(1, 40) * PAGE),
        lambda: print("something was said", flush=True),
    ]
    for _ in range(random.randrange(1, 20)):
        random.choice(steps)()


def write_file() -> None:
    kept.write("changed\n")
    kept.flush()


def make_child() -> None:
    if os.fork() == 0:
        time.sleep(600)


def number_of_child() -> int:
    child = os.fork()
    if child == 0:
        os._exit(0)
    return os.waitpid(child, 0)[0]


def write_by_mapping() -> None:
    """No time of the file tells: its page is read before it is written."""
    with in_memory.open("r+b") as file, mmap.mmap(file.fileno(), PAGE) as mapped:
        mapped[0] = 1 + mapped[0]


CHANGES = {
    "/churn": churn,
    "/pages": change_pages,
    # What cannot be put back in place.
    "/file": write_file,
    "/child": make_child,
    "/action": lambda: signal.siginterrupt(signal.SIGINT, False),
    "/thread": waits.set,
    "/pipe": lambda: pair[0].send(b"x"),
    "/unmapped": lent.close,
    "/mapped": write_by_mapping,
    "/locked": lambda: libc.mlock(ctypes.byref(ballast), PAGE),
    "/directory": lambda: libc.unshare(CLONE_FS),
    "/flags": lambda: os.set_blocking(0, False),
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        kept.seek(0)
        said = {
            "hash": hashlib.sha256(ballast.raw).hexdigest(),
            "file": kept.read(),
            "threads": threading.active_count(),
            "descriptors": len(more),
        }
        if self.path == "/time":
            said = {"time": time.time()}
        elif self.path == "/number":
            said = {"number": number_of_child()}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())

    def do_POST(self) -> None:
        if self.path == "/":
            change_pages()
            write_file()
            more.append(os.pipe())
            start_thread()
        else:
            name, _, seed = self.path.partition("?")
            random.seed(seed or None)
            CHANGES[name]()
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


with Path(sys.argv[2]).open("a+") as kept:
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
