"""Who wants to connect is seen, also where nobody listens; other packets are not."""

from __future__ import annotations

import contextlib
import socket

import pytest

from relive.kernel.handshakes import (
    Handshake,
    read_handshake,
    read_lost_datagram,
    watch_handshakes,
    watch_lost_datagrams,
)
from replay.stubs.sealed import network


@pytest.mark.parametrize("address", ["10.0.0.5", "fd00::5"])
def test_each_attempt_is_seen_once_and_nothing_else(address: str) -> None:
    """GIVEN a destination that takes connections and one that refuses them
    WHEN both are tried, and something is said
    THEN two handshakes were seen, and no other packet.
    """
    with network(address) as inside:
        watches = inside.within(watch_handshakes)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = inside.within(lambda: socket.socket(family))
        listener.bind((address, 80))
        listener.listen()
        connected = inside.connect((address, 80))
        connected.sendall(b"hello")
        accepted = listener.accept()[0]
        accepted.recv(9)
        with pytest.raises(ConnectionRefusedError):
            inside.connect((address, 81))
        seen: list[Handshake | None] = []
        for watch in watches:
            while True:
                try:
                    seen.append(read_handshake(watch.recv(256)))
                except BlockingIOError:
                    break
            watch.close()
        destinations = [one.destination for one in seen if one is not None]
        assert destinations == [(address, 80), (address, 81)]
        assert seen[0] is not None and seen[0].origin == connected.getsockname()[:2]
        for sock in (listener, connected, accepted):
            sock.close()


@pytest.mark.parametrize("address", ["10.0.0.5", "fd00::5"])
def test_a_datagram_that_nobody_takes_is_seen_and_no_refused_connection(address: str) -> None:
    with network(address) as inside:
        watches = inside.within(watch_lost_datagrams)
        with pytest.raises(ConnectionRefusedError):
            inside.connect((address, 81))
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with inside.within(lambda: socket.socket(family, socket.SOCK_DGRAM)) as sock:
            sock.sendto(b"x" * 1000, (address, 53))
        seen = []
        for watch in watches:
            with watch, contextlib.suppress(BlockingIOError):
                while True:
                    seen.append(read_lost_datagram(watch.recv(256)))
        assert seen == [(address, 53)]


@pytest.mark.parametrize("packet", [b"", b"\x45", b"\x45" * 20, b"\x60" * 30])
def test_what_is_no_packet_is_none(packet: bytes) -> None:
    assert read_handshake(packet) is None
    assert read_lost_datagram(packet) is None
