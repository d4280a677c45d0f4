"""A service that does to files what a test tells it, and what a branch of it sees of them."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

from support.ports import free_port
from support.waiting import LIMIT, eventually

from .harness import PYTHON, SERVICES, Branch, Capsule, Relive
from .likeness import Likeness

LIKENESS = Path(__file__).parent / "likeness.py"


class Obedient:
    """A service that runs the code it is given; see ``services/orders.py``."""

    def __init__(
        self, relive: Relive, name: str = "service", user: str | None = None, options: tuple[str, ...] = ()
    ) -> None:
        self.port = free_port()
        self.capsule: Capsule = relive.run(
            PYTHON, SERVICES / "orders.py", str(self.port), name=name, user=user, options=options
        )
        eventually(lambda: self("said = 1"), "it takes orders")

    def __call__(self, code: str, port: int | None = None) -> Any:
        return told(code, port or self.port)


def told(code: str, port: int) -> Any:
    """Have the service at a port run the code; returns what it says."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    try:
        line.request("POST", "/", code.encode(errors="surrogateescape"))
        answer = line.getresponse()
        text = answer.read().decode()
    finally:
        line.close()
    assert answer.status == 200, text
    return json.loads(text)


def seen_in(branch: Branch, *directories: Path) -> Likeness:
    return dict(json.loads(branch.exec(str(PYTHON), str(LIKENESS), *(str(one) for one in directories))))


HELPERS = """
import ctypes, mmap, os, shutil, socket, subprocess, threading
from pathlib import Path
libc = ctypes.CDLL(None, use_errno=True)
def w(path, text, how='w'):
    with open(path, how) as file:
        file.write(text)
def x(call, *words):
    words = [os.fsencode(word) if isinstance(word, Path) else word for word in words]
    if getattr(libc, call)(*words) < 0:
        raise OSError(ctypes.get_errno(), call)
def deep(d, count, text='old'):
    at = os.open(d, os.O_RDONLY)
    for _ in range(count):
        for name in ('n' * 250,) * 5:
            try:
                os.mkdir(name, dir_fd=at)
            except FileExistsError:
                pass
            at, gone = os.open(name, os.O_RDONLY, dir_fd=at), at
            os.close(gone)
    q = os.open('f', os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=at)
    os.write(q, text.encode())
    os.close(q); os.close(at)
def in_root(root, work):
    child = os.fork()
    if child == 0:
        try:
            os.chroot(root); os.chdir('/'); work()
            os._exit(0)
        except BaseException as error:
            os.write(2, repr(error).encode())
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
"""
