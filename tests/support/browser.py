"""A headless Chromium that nothing on the host disturbs, for pages that this host serves.

Chromium gives up every transfer when an interface of its network namespace comes or goes (ERR_NETWORK_CHANGED), and tests beside
this one make and remove some. So it lives in a network namespace of its own with a loopback only, in which the served port leads
to the one outside; there is then no way to the internet from it either.
"""

from __future__ import annotations

import contextlib
import socket
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from relive.kernel.loopback import bring_up
from relive.kernel.namespaces import in_network_of

__all__ = ["browser_for"]

_CHROMIUM = Path("/usr/bin/chromium")
_PIECE = 1 << 16  # [bytes]


@contextmanager
def browser_for(*ports: int) -> Iterator[Browser]:
    """The browser; these ports of its 127.0.0.1 are the host's."""
    keeper = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo ready && exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with keeper, tempfile.TemporaryDirectory() as directory:
        assert keeper.stdin is not None and keeper.stdout is not None
        assert keeper.stdout.readline() == b"ready\n"
        in_network_of(keeper.pid, bring_up)
        with ExitStack() as forwarders:
            for port in ports:
                forwarders.enter_context(_forwarder(keeper.pid, port))
            program = Path(directory) / "chromium"
            program.write_text(f'#!/bin/sh\nexec nsenter --net=/proc/{keeper.pid}/ns/net {_CHROMIUM} "$@"\n')
            program.chmod(stat.S_IRWXU)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
                yield browser
                browser.close()
        keeper.stdin.close()


@contextmanager
def _forwarder(pid: int, port: int) -> Iterator[None]:
    """While entered, connections to the port in that process's namespace are carried to the one of this host."""
    outer = in_network_of(pid, lambda: socket.create_server(("127.0.0.1", port), backlog=64))
    carriers: list[threading.Thread] = []
    pairs: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                near, _ = outer.accept()
            except OSError:
                return  # it was shut down
            far = socket.create_connection(("127.0.0.1", port))
            pairs.extend((near, far))
            for one, other in ((near, far), (far, near)):
                carriers.append(threading.Thread(target=_carry, args=(one, other)))
                carriers[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield
    finally:
        with outer:
            outer.shutdown(socket.SHUT_RDWR)
            acceptor.join()
        for one in pairs:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for carrier in carriers:
            carrier.join()
        for one in pairs:
            one.close()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_PIECE):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
