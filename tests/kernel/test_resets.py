"""Whether a reset of the kernel reaches the other end."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from relive.kernel import loopback
from relive.kernel.namespaces import in_new_network
from relive.kernel.resets import ResetsDropped

from .helpers import needs_root

_TCP_REPAIR, _ON, _OFF = 19, 1, 0


@contextmanager
def probing(family: int, address: str, port: int) -> Iterator[socket.socket]:
    """A socket that has asked an end that is not there (tcp(7), TCP_REPAIR)."""
    with socket.socket(family) as end:
        end.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, _ON)
        end.bind((address, port))
        end.connect((address, 7002))
        end.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, _OFF)
        # It leaves nothing behind.
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        yield end


def is_reset(end: socket.socket, *, within: float) -> bool:
    poll = select.poll()
    poll.register(end, 0)
    return bool(poll.poll(within * 1000))


@needs_root
@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_only_resets_of_the_named_ports_are_dropped_and_only_as_long(family: int, address: str) -> None:
    def found() -> list[bool]:
        loopback.bring_up()
        dropping = ResetsDropped([(7002, 7001), (40000, 65535)])
        with probing(family, address, 7001) as named, probing(family, address, 7003) as other:
            seen = [is_reset(other, within=30), is_reset(named, within=0)]
        dropping.close()
        dropping.close()
        with probing(family, address, 7001) as later:
            return [*seen, is_reset(later, within=30)]

    assert in_new_network(found) == [True, False, True]


@needs_root
def test_all_else_passes() -> None:
    def found() -> bytes:
        loopback.bring_up()
        with socket.create_server(("127.0.0.1", 7002)) as listener:
            ResetsDropped([(7002, port) for port in range(1000)])
            with (
                socket.create_connection(listener.getsockname(), 30) as client,
                listener.accept()[0] as served,
            ):
                client.sendall(b"x" * 100_000)
                client.shutdown(socket.SHUT_WR)
                served.settimeout(30)
                read = b""
                while data := served.recv(1 << 16):
                    read += data
                return read

    assert in_new_network(found) == b"x" * 100_000
