"""What a service could not reach, seen in a network namespace of its own."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from relive.kernel.namespaces import in_network
from relive.model.outcome import Stranger
from relive.replay.network import OUTSIDE, Network

_HOLDS = (
    "import sys\nfrom relive.kernel.namespaces import Namespace, unshare\nfrom relive.kernel.loopback import bring_up\n"
    "unshare(Namespace.NETWORK)\nbring_up()\nprint('ready', flush=True)\nsys.stdin.read()\n"
)


@pytest.fixture
def init() -> Iterator[int]:
    """Pid of a process in a network namespace that has loopback only."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()


def within(init: int, action: Callable[[], None]) -> None:
    namespace = os.open(f"/proc/{init}/ns/net", os.O_RDONLY)
    try:
        in_network(namespace, action)
    finally:
        os.close(namespace)


def wait_for(sock: socket.socket, events: int) -> None:
    """Until one of these events, or the connection's end, is there."""
    poll = select.poll()
    poll.register(sock, events)
    assert poll.poll(60_000)


def connect(host: str, port: int) -> None:
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
        pass


def test_refused_connections_are_named_and_those_elsewhere_counted(init):
    """Of both families; not those to the service's own port, which the sender of a replay may meet closed."""

    def act() -> None:
        for host, port in (("127.0.0.1", 5432), ("127.0.0.1", 5432), ("::1", 6379), ("127.0.0.1", 80)):
            connect(host, port)
        connect("192.0.2.1", 443)
        connect("2001:db8::1", 443)

    network = Network(init, own=[80])
    try:
        within(init, act)
        assert network.unreached() == [
            Stranger(to="127.0.0.1:5432", times=2),
            Stranger(to="[::1]:6379", times=1),
            Stranger(to=OUTSIDE, times=2),
        ]
        assert network.seal().is_intact
    finally:
        network.close()


def test_a_server_that_is_asked_by_datagrams_and_not_there_is_named_but_not_one_that_never_answers(init):
    """Who asks for a name waits for the answer; who sends statistics does without."""

    def act() -> None:
        for family, host, port in (
            (socket.AF_INET, "127.0.0.53", 53),
            (socket.AF_INET6, "::1", 11211),
            (socket.AF_INET, "127.0.0.1", 8125),
        ):
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.connect((host, port))
                sock.send(b"question")
                wait_for(sock, select.POLLIN)  # the refusal

    network = Network(init)
    try:
        within(init, act)
        assert network.unreached() == [
            Stranger(to="127.0.0.53:53", times=1),
            Stranger(to="[::1]:11211", times=1),
        ]
    finally:
        network.close()


def test_connections_that_are_taken_or_reset_later_are_no_refusals(init):
    def act() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            with socket.create_connection(server.getsockname()) as client:
                taken, _ = server.accept()
                client.sendall(b"unread")
                taken.close()  # answered by a reset, since a byte was not read
            connect("127.0.0.1", server.getsockname()[1])

    network = Network(init)
    try:
        within(init, act)
        assert network.unreached() == []
    finally:
        network.close()


def test_the_counters_outlive_the_branch():
    """A service that dies takes its sandbox along, and the proof that nothing left it is still due."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        network = Network(process.pid)
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
    try:
        assert network.seal().is_intact
        assert network.unreached() == []
    finally:
        network.close()
        network.close()
    with pytest.raises(OSError):
        Network(process.pid)


def test_a_connection_whose_other_end_has_gone_counts_when_the_service_comes_to_it(init):
    """Used or closed it counts; left alone it does not."""
    held: list[socket.socket] = []

    def meet() -> None:
        with socket.create_server(("127.0.0.1", 5432)) as server:
            for _ in range(3):
                held.append(socket.create_connection(("127.0.0.1", 5432)))
                server.accept()[0].close()
                wait_for(held[-1], select.POLLIN)

    within(init, meet)
    used, closed, idle = held
    ends = [(one.getsockname(), one.getpeername()) for one in held]
    network = Network(init, unrecorded=ends)
    try:
        assert network.cut_off() == []
        used.sendall(b"select 1")
        wait_for(used, 0)  # the answer, a reset
        assert network.cut_off() == ["127.0.0.1:5432"]
    finally:
        network.close()
    network = Network(init, unrecorded=ends[1:])
    try:
        assert network.cut_off() == []
        closed.close()
        assert network.cut_off() == ["127.0.0.1:5432"]
    finally:
        network.close()
        idle.close()
        used.close()
