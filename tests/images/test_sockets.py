"""Connections, listening sockets and outlets, read from entries as CRIU writes them."""

from __future__ import annotations

import ipaddress
import socket
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import ObjectCorrupt
from relive.images import criu_images_pb2 as pb
from relive.images.sockets import (
    bound_addresses,
    bound_devices,
    inner_pairs,
    read_connections,
    read_listening,
    read_outlets,
    summarise,
)
from relive.model.commit import Connection, Outlet

MAGIC = struct.pack("<II", 0x54564319, 0x51465656)
ESTABLISHED, SYN_SENT, FIN_WAIT1, FIN_WAIT2, CLOSE, CLOSE_WAIT, LAST_ACK, LISTEN, CLOSING = (
    1,
    2,
    4,
    5,
    7,
    8,
    9,
    10,
    11,
)
TCP, UDP = socket.IPPROTO_TCP, socket.IPPROTO_UDP


def words(address: str) -> list[int]:
    """As CRIU stores them: the address's bytes in network order, read as little-endian words."""
    packed = ipaddress.ip_address(address).packed
    return list(struct.unpack(f"<{len(packed) // 4}I", packed))


def sock(
    state: int,
    local: tuple[str, int],
    peer: tuple[str, int] = ("0.0.0.0", 0),
    *,
    ino: int = 1,
    proto: int = TCP,
) -> pb.FileEntry:
    family = socket.AF_INET6 if ":" in local[0] else socket.AF_INET
    entry = pb.FileEntry(type=2, id=ino)
    entry.isk.CopyFrom(
        pb.InetSkEntry(
            id=ino,
            ino=ino,
            family=family,
            type=socket.SOCK_STREAM,
            proto=proto,
            state=state,
            src_port=local[1],
            dst_port=peer[1],
            src_addr=words(local[0]),
            dst_addr=words(peer[0]) if family == socket.AF_INET6 or ":" not in peer[0] else [],
        )
    )
    return entry


def pipe(pipe_id: int, flags: int, number: int = 9) -> pb.FileEntry:
    entry = pb.FileEntry(type=7, id=number)
    entry.pipe.CopyFrom(pb.PipeEntry(id=number, pipe_id=pipe_id, flags=flags))
    return entry


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return tmp_path


def save_stream(images: Path, ino: int, sequence: int = 77, sent: int = 3) -> None:
    stream = pb.TcpStreamEntry(
        inq_len=0, inq_seq=sequence, outq_len=sent, outq_seq=2, opt_mask=0, snd_wscale=0, mss_clamp=1460
    )
    body = stream.SerializeToString()
    # The bytes that were not sent yet follow the message.
    (images / f"tcp-stream-{ino:x}.img").write_bytes(MAGIC + struct.pack("<I", len(body)) + body + b"abc")


@given(st.ip_addresses())
def test_any_address_is_read_back(address):
    text = str(address)
    assert read_listening([sock(LISTEN, (text, 80))]) == [(text, 80)]


def test_what_listens_is_sorted_and_named_once():
    files = [sock(LISTEN, ("::", 80)), sock(LISTEN, ("0.0.0.0", 443)), sock(LISTEN, ("0.0.0.0", 443), ino=2)]
    assert read_listening(files) == [("0.0.0.0", 443), ("::", 80)]


def test_only_tcp_sockets_in_that_state_listen():
    files = [
        sock(CLOSE, ("0.0.0.0", 1)),
        sock(ESTABLISHED, ("0.0.0.0", 2)),
        sock(CLOSE, ("0.0.0.0", 3), proto=UDP),
        pipe(1, 0),
    ]
    assert read_listening(files) == []


@pytest.mark.parametrize("state", [ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING])
@pytest.mark.parametrize(
    ("local", "peer"), [(("10.0.0.1", 80), ("10.0.0.2", 4321)), (("2001:db8::1", 80), ("2001:db8::2", 4321))]
)
def test_connections_are_read_also_when_half_closed(images, state, local, peer):
    save_stream(images, 0xAB)
    [one] = read_connections(images, [sock(state, local, peer, ino=0xAB)])
    assert (one.local, one.peer, one.state) == (local, peer, state)
    assert one.stream.inq_seq == 77


def test_pairs_within_are_those_with_bytes_or_an_end_under_way(images):
    def both(ino: int, port: int, states: tuple[int, int], sent: int) -> list[pb.FileEntry]:
        ends = ("127.0.0.1", 80), ("127.0.0.1", port)
        save_stream(images, ino, sent=0)
        save_stream(images, ino + 1, sent=sent)
        return [sock(states[0], *ends, ino=ino), sock(states[1], *ends[::-1], ino=ino + 1)]

    idle = both(1, 1001, (ESTABLISHED, ESTABLISHED), 0)
    full = both(3, 1003, (ESTABLISHED, ESTABLISHED), 5)
    closing = both(5, 1005, (FIN_WAIT2, CLOSE_WAIT), 0)
    save_stream(images, 7)
    outside = [sock(FIN_WAIT2, ("127.0.0.1", 80), ("127.0.0.1", 1007), ino=7)]
    files = [*idle, *full, *closing, *outside]
    assert inner_pairs(images, files) == {(1003, 80), (80, 1005), (1005, 80)}
    assert [one.peer[1] for one in read_connections(images, files)] == [1007]


@pytest.mark.parametrize("state", [SYN_SENT, CLOSE, LISTEN])
def test_a_socket_in_another_state_is_no_connection(images, state):
    save_stream(images, 1)
    assert read_connections(images, [sock(state, ("1.2.3.4", 5), ("1.2.3.4", 6))]) == []


def test_a_connection_whose_state_was_not_saved_is_passed_over(images):
    assert read_connections(images, [sock(ESTABLISHED, ("1.2.3.4", 5), ("1.2.3.4", 6))]) == []


def test_a_connection_is_inward_when_its_local_port_is_listened_on(images):
    save_stream(images, 1)
    save_stream(images, 2)
    files = [
        sock(ESTABLISHED, ("10.0.0.1", 80), ("10.0.0.9", 5555), ino=1),
        sock(ESTABLISHED, ("10.0.0.1", 34567), ("10.0.0.7", 5432), ino=2),
        sock(LISTEN, ("0.0.0.0", 80), ino=3),
    ]
    assert summarise(read_connections(images, files), read_listening(files)) == [
        Connection(local=("10.0.0.1", 80), peer=("10.0.0.9", 5555), inward=True),
        Connection(local=("10.0.0.1", 34567), peer=("10.0.0.7", 5432), inward=False),
    ]


def test_bound_addresses_are_those_of_all_kinds_of_sockets():
    files = [
        sock(LISTEN, ("0.0.0.0", 1)),
        sock(CLOSE, ("10.0.0.5", 2), proto=UDP),
        sock(ESTABLISHED, ("::1", 3), ("::1", 4)),
    ]
    assert bound_addresses(files) == {"0.0.0.0", "10.0.0.5", "::1"}


def test_bound_devices_are_those_of_options_and_of_link_local_addresses():
    bound, local, other = (sock(CLOSE, ("::1", port), proto=UDP) for port in (1, 2, 3))
    bound.isk.opts.so_bound_dev = b"eth0"
    local.isk.ifname = b"br\xff\0"
    other.isk.opts.so_bound_dev = b"lo"
    assert bound_devices([bound, local, other, sock(LISTEN, ("0.0.0.0", 4))]) == {b"eth0", b"br\xff"}


READ, WRITE, BOTH = 0, 1, 2


def test_a_pipe_with_one_end_inside_is_an_outlet():
    assert read_outlets([pipe(5, WRITE)]) == [Outlet(key="pipe:[5]", writable=True)]
    assert read_outlets([pipe(5, READ | 0o4000)]) == [Outlet(key="pipe:[5]", writable=False)]


def test_a_pipe_with_both_ends_inside_is_none():
    assert read_outlets([pipe(5, READ), pipe(5, WRITE)]) == []
    assert read_outlets([pipe(5, BOTH)]) == []


def test_several_descriptors_of_one_end_are_one_outlet():
    assert read_outlets([pipe(5, WRITE), pipe(5, WRITE | 0o2000), pipe(3, READ)]) == [
        Outlet(key="pipe:[3]", writable=False),
        Outlet(key="pipe:[5]", writable=True),
    ]


@pytest.mark.parametrize(
    ("family", "length"),
    [(socket.AF_INET, 0), (socket.AF_INET, 4), (socket.AF_INET6, 1), (socket.AF_UNIX, 1)],
)
def test_an_address_that_is_none_is_told_as_damage(family, length):
    entry = sock(LISTEN, ("127.0.0.1", 80))
    entry.isk.family = family
    del entry.isk.src_addr[:]
    entry.isk.src_addr.extend([1] * length)
    with pytest.raises(ObjectCorrupt, match=r"files\.img"):
        read_listening([entry])
