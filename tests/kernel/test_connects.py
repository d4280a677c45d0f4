"""Each connect of a tree is seen, with who is there, and goes on as ever."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relive.kernel.connects import CONNECT_FILTER, NameOwner, answer, look, receive
from relive.kernel.seccomp import ask_supervisor
from support.waiting import LIMIT

from .helpers import fork, needs_root

pytestmark = needs_root


@contextlib.contextmanager
def child_that_asks(work: Callable[[], int]) -> Iterator[tuple[int, int]]:
    """A child that does it under the filter and exits with what it returns: its pid, and the listener."""
    ours, theirs = socket.socketpair()
    ours.settimeout(LIMIT)
    child = fork()
    if child == 0:
        try:
            listener = ask_supervisor(CONNECT_FILTER)
            socket.send_fds(theirs, [b"l"], [listener])
            os.close(listener)
            os._exit(work())
        finally:
            os._exit(99)
    _, (listener,), _, _ = socket.recv_fds(ours, 1, 1)
    try:
        yield child, listener
    finally:
        os.close(listener)
        ours.close()
        theirs.close()
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def connecting(name: str | bytes | tuple[str, int], kind: int = socket.SOCK_STREAM) -> Callable[[], int]:
    def work() -> int:
        family = socket.AF_INET if isinstance(name, tuple) else socket.AF_UNIX
        with socket.socket(family, kind) as sock:
            return sock.connect_ex(name)

    return work


def seen(work: Callable[[], int]) -> tuple[tuple[str, NameOwner] | None, int]:
    """What was told of the one connect of a child, and the errno that it got."""
    with child_that_asks(work) as (child, listener):
        connect = receive(listener)
        assert connect is not None and connect.thread == child
        found = look(connect)
        answer(listener, connect)
        return found, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_a_server_that_listens_is_found_and_gets_no_other_connection(tmp_path: Path, kind: int) -> None:
    path = str(tmp_path / "served")
    with socket.socket(socket.AF_UNIX, kind) as server:
        server.bind(path)
        server.listen()
        server.setblocking(False)
        assert seen(connecting(path, kind)) == ((path, NameOwner.SERVED), 0)
        server.accept()[0].close()
        with pytest.raises(BlockingIOError):
            server.accept()


def test_what_takes_datagrams_is_found(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(path)
        assert seen(connecting(path, socket.SOCK_DGRAM)) == ((path, NameOwner.SERVED), 0)


def test_a_name_that_is_not_there_and_one_that_nobody_has_bound_any_more(tmp_path: Path) -> None:
    path = str(tmp_path / "nobody")
    assert seen(connecting(path)) == ((path, NameOwner.MISSING), errno.ENOENT)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
    assert seen(connecting(path)) == ((path, NameOwner.MISSING), errno.ECONNREFUSED)


def test_abstract_names() -> None:
    name = f"\0relive-test-{os.getpid()}".encode()
    words = "@" + name[1:].decode()
    assert seen(connecting(name)) == ((words, NameOwner.MISSING), errno.ECONNREFUSED)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        assert seen(connecting(name)) == ((words, NameOwner.SERVED), 0)


def test_names_are_looked_up_as_the_process_does(tmp_path: Path) -> None:
    """In its root, by its links, from its directory."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to("/served")

    def within(name: str) -> Callable[[], int]:
        def work() -> int:
            os.chroot(tmp_path / "root")
            os.chdir("/")
            return connecting(name)()

        return work

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "root" / "served"))
        server.listen()
        assert seen(within("/link")) == (("/link", NameOwner.SERVED), 0)
        assert seen(within("served")) == (("served", NameOwner.SERVED), 0)
        assert seen(within(str(tmp_path / "root" / "served")))[0] == (
            str(tmp_path / "root" / "served"),
            NameOwner.MISSING,
        )


def test_other_families_are_nothing_of_this() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert seen(connecting(server.getsockname())) == (None, 0)


def test_what_it_starts_asks_too(tmp_path: Path) -> None:
    """Whatever the language: Perl knows nothing of Python."""
    path = str(tmp_path / "nobody")
    script = (
        "use Socket; socket(my $s, PF_UNIX, SOCK_STREAM, 0);"
        "exit(connect($s, pack_sockaddr_un($ARGV[0])) ? 0 : $!{ENOENT} ? 7 : 8)"
    )

    def work() -> int:
        return subprocess.run(["perl", "-e", script, path], check=False).returncode

    with child_that_asks(work) as (child, listener):
        connect = receive(listener)
        assert connect is not None and connect.thread != child
        assert look(connect) == (path, NameOwner.MISSING)
        answer(listener, connect)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_who_has_been_killed_is_nobody_s_trouble(tmp_path: Path) -> None:
    with child_that_asks(connecting(str(tmp_path / "nobody"))) as (child, listener):
        connect = receive(listener)
        assert connect is not None
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert look(connect) is None
        answer(listener, connect)
