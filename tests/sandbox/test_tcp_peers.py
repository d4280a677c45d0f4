"""A forged client that had taken an answer before it was acknowledged does not get it again."""

from __future__ import annotations

import socket
import struct

import pytest

from relive.images import criu_images_pb2 as pb
from relive.images.sockets import TcpConnection
from relive.sandbox.tcp_peers import forge_peer

_TCP_REPAIR, _QUEUE, _SEQUENCE = 19, 20, 21


@pytest.mark.parametrize(("has_all", "next_expected"), [(False, 900), (True, 1000)])
def test_it_expects_what_it_does_not_have(has_all: bool, next_expected: int) -> None:
    stream = pb.TcpStreamEntry(
        inq_len=0, inq_seq=5000, outq_len=100, outq_seq=1000, opt_mask=0, snd_wscale=0, mss_clamp=1460
    )
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        own = place.getsockname()
    connection = TcpConnection(socket.AF_INET, ("127.0.0.1", 9), own, 1, stream)
    with forge_peer(connection, has_all=has_all) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
        peer.setsockopt(socket.IPPROTO_TCP, _QUEUE, 1)
        (expected,) = struct.unpack("I", peer.getsockopt(socket.IPPROTO_TCP, _SEQUENCE, 4))
        peer.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, struct.pack("i", -1))
    assert expected == next_expected
