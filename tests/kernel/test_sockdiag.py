"""Which sockets there are, in the network of this process."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from relive.kernel import loopback, sockdiag
from relive.kernel.namespaces import in_new_network
from relive.kernel.sockdiag import BoundAddress, SocketList, listening_ports
from support.waiting import eventually

from .helpers import needs_root

GONE = 2**22 + 5  # above the highest pid that Linux gives


@pytest.fixture
def sockets():
    found = SocketList()
    yield found
    found.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_a_listening_socket_is_seen_as_long_as_it_listens(sockets, address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listener:
        port = listener.getsockname()[1]
        (taken,) = {one for one in sockets.listening() if one.port == port}
        # As create_server says.
        assert taken == BoundAddress(address, port, v6_only=family == socket.AF_INET6)
        assert taken.takes("::1" if family == socket.AF_INET6 else "127.0.0.1", port)
        assert not taken.takes("127.0.0.1" if family == socket.AF_INET6 else "::1", port)
    assert port not in {one.port for one in sockets.listening()}


def test_a_socket_for_both_families_takes_both(sockets):
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        (taken,) = {one for one in sockets.listening() if one.port == listener.getsockname()[1]}
        assert taken.takes("127.0.0.1", taken.port) and taken.takes("::1", taken.port)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::"])
def test_a_connection_is_accepted_once_a_process_has_taken_it(sockets, address):
    """Also one of IPv4 at a socket for both families."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, dualstack_ipv6=address == "::") as listener:
        port = listener.getsockname()[1]
        assert sockets.inodes_listening(port) == {os.fstat(listener.fileno()).st_ino}
        with socket.create_connection(("127.0.0.1" if address == "::" else address, port)) as client:
            ends = client.getsockname()[:2], client.getpeername()[:2]
            assert not sockets.is_accepted(*ends)
            with listener.accept()[0]:
                assert sockets.is_accepted(*ends)
    with socket.create_server(("127.0.0.1", 0)) as there:
        assert sockets.is_accepted(("127.0.0.1", 1), there.getsockname())  # there is no such connection
    assert sockets.inodes_listening(port) == set()


def own_group() -> int:
    """Number of the control group of version 2 that this process is in."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    path = next(line[4:] for line in lines if line.startswith("0::"))
    tops = Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")
    return next(top / path for top in tops if (top / "cgroup.controllers").exists()).stat().st_ino


def test_a_datagram_socket_is_seen(sockets):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        taken = BoundAddress("127.0.0.1", sock.getsockname()[1])
        assert taken in sockets.datagram(own_group()) and taken not in sockets.datagram(own_group() + 1)


def test_who_waits_for_an_answer_is_seen(sockets):
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(deaf.getsockname())
        own = {(sock.getsockname(), deaf.getsockname()) for sock in waiting}
        assert own & sockets.connecting()
        for sock in waiting:
            sock.close()
        assert not own & sockets.connecting()


@pytest.mark.parametrize(
    ("listens", "destination", "accepts"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("0.0.0.0", "127.0.0.2", True),
        ("0.0.0.0", "::1", False),
        ("::1", "::1", True),
        ("::", "::1", True),
        ("::", "127.0.0.1", False),  # for IPv6 alone
        ("both", "127.0.0.1", True),
        ("both", "::1", True),
    ],
)
def test_who_would_take_a_connection_is_the_kernels_word(sockets, listens, destination, accepts):
    address = "::" if listens == "both" else listens
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    origin = (destination, 40_000)
    with socket.create_server((address, 0), family=family, dualstack_ipv6=listens == "both") as listener:
        port = listener.getsockname()[1]
        assert sockets.listens_at(origin, (destination, port)) == (own_group() if accepts else None)
        if accepts:
            with socket.create_connection((destination, port)) as sock:  # the same two ends, and who listens
                assert sockets.listens_at(sock.getsockname()[:2], (destination, port)) == own_group()
    assert sockets.listens_at(origin, (destination, port)) is None


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_ports_that_are_listened_on_are_found_and_connected_ones_are_not(family, host):
    try:
        server = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("no such addresses here")
    with server, socket.create_connection(server.getsockname()[:2]) as client:
        for ports in (listening_ports(), listening_ports(os.getpid())):
            assert server.getsockname()[1] in ports
            assert client.getsockname()[1] not in ports


@needs_root
def test_ports_of_another_network_are_its_own():
    program = (
        "import socket; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); s.accept()"
    )
    with (
        socket.create_server(("127.0.0.1", 0)) as ours,
        subprocess.Popen(["unshare", "--net", "python3", "-c", program], stdout=subprocess.PIPE) as other,
    ):
        assert other.stdout is not None
        port = int(other.stdout.readline())
        assert listening_ports(other.pid) == {port}
        assert ours.getsockname()[1] in listening_ports()
        other.kill()
        # A zombie is in no network any more.
        eventually(lambda: listening_ports(other.pid) == set(), "it is gone")


def test_a_process_that_is_gone_listens_on_nothing():
    assert listening_ports(GONE) == set()


def test_where_the_namespace_may_not_be_entered_the_same_is_told(monkeypatch):
    def refused(*_):
        raise PermissionError

    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(sockdiag, "namespace_id", refused)
        assert server.getsockname()[1] in listening_ports(os.getpid())


@needs_root
def test_connections_are_forgotten_of_which_nobody_has_an_end():
    def made():
        loopback.bring_up()
        listed = SocketList()
        with socket.create_server(("127.0.0.1", 0)) as listener, closing(listed):
            waiting, half_closed = _connected(listener), _connected(listener)
            waiting[1].close()
            waiting[0].close()
            half_closed[1].close()
            listed.forget_ended()
            left = listed.left_by_peers()
            with half_closed[0] as held:
                # It still has the end that the other said, and no reset.
                return (
                    left == {(held.getsockname(), listener.getsockname())},
                    held.recv(1),
                    listener_pairs(listed),
                )

    def listener_pairs(listed):
        return len(listed._messages(socket.IPPROTO_TCP, sockdiag._ANY_STATE))

    # Left are the listener, the end that is held, and the other of it.
    assert in_new_network(made) == (True, b"", 3)


def _connected(listener):
    client = socket.create_connection(listener.getsockname())
    return client, listener.accept()[0]
