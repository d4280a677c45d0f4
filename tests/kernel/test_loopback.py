"""What loopback is given beside what it has."""

from __future__ import annotations

import socket

import pytest

from relive.kernel import loopback
from relive.kernel.namespaces import in_new_network

from .helpers import needs_root


def bound_to(name: bytes) -> bytes:
    """The device that a socket has after it was bound to one of this name."""
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name)
        return made.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\0")


@needs_root
def test_a_socket_is_bound_to_it_by_each_of_its_names() -> None:
    def found() -> list[bytes]:
        with pytest.raises(OSError, match="No such device"):
            bound_to(b"eth7")
        loopback.add_names([b"eth7", b"br-1"])
        loopback.add_names([b"eth7", b"lo"])  # there already
        return [bound_to(b"eth7"), bound_to(b"br-1"), bound_to(b"lo")]

    assert in_new_network(found) == [b"lo"] * 3


@needs_root
def test_what_can_be_no_name_is_refused() -> None:
    with pytest.raises(OSError, match="to lo"):
        in_new_network(lambda: loopback.add_names([b"x" * 1000]))
