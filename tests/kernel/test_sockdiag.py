"""Which sockets there are, in the network of this process."""

from __future__ import annotations

import socket

import pytest

from relive.kernel.sockdiag import BoundAddress, SocketList


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


def test_a_datagram_socket_is_seen(sockets):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        assert BoundAddress("127.0.0.1", sock.getsockname()[1]) in sockets.datagram()


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
        assert sockets.accepts(origin, (destination, port)) is accepts
        if accepts:
            with socket.create_connection((destination, port)) as sock:  # the same two ends, and who listens
                assert sockets.accepts(sock.getsockname()[:2], (destination, port))
    assert not sockets.accepts(origin, (destination, port))
