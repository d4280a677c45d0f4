"""Unix servers that are missing are counted; what came in time, and what nobody needs, is not."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from kernel.helpers import fork, needs_root
from relive.kernel.connects import CONNECT_FILTER
from relive.kernel.seccomp import ask_supervisor
from relive.replay.unix_servers import UnixServers
from support.waiting import LIMIT

pytestmark = needs_root


def connect(path: str) -> int:
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(path)


def watched(work: Callable[[], None]) -> UnixServers:
    """What was seen of a child that does it under the filter; to be closed."""
    ours, theirs = socket.socketpair()
    ours.settimeout(LIMIT)
    servers = UnixServers()
    child = fork()
    if child == 0:
        try:
            listener = ask_supervisor(CONNECT_FILTER)
            socket.send_fds(theirs, [b"l"], [listener])
            os.close(listener)
            signal.alarm(int(LIMIT))
            work()
        finally:
            os._exit(0)
    with ours, theirs:
        _, (listener,), _, _ = socket.recv_fds(ours, 1, 1)
    servers.watch(listener)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return servers


def test_the_most_wanted_stands_first(tmp_path: Path) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "other")

    def work() -> None:
        for path in (one, other, other, "/dev/log", "/var/run/nscd/socket"):
            connect(path)

    servers = watched(work)
    assert [(found.to, found.times) for found in servers.unreached()] == [(other, 2), (one, 1)]
    assert servers.troubles() == []
    servers.close()


def test_what_comes_later_has_been_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / "late")

    def work() -> None:
        connect(path)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen()
            connect(path)

    servers = watched(work)
    assert servers.unreached() == []
    servers.close()


def test_without_a_listener_it_says_so_and_ends() -> None:
    servers = UnixServers()
    assert "not seen" in servers.troubles()[0]
    servers.close()
    servers.close()
