"""Segments are read out of the kernel's blocks: which way they went, and nothing that is not theirs."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relive.config import load_settings
from relive.proxies.ingress._segments import ACK, FIN, SYN, Ends, Segment
from relive.proxies.ingress._sights import InRing, Sights, Verdict
from relive.proxies.ingress.options import RELAY
from relive.proxies.relay_writer import RelayWriter

from .packet_bytes import ETHERNET, OUTGOING, ip4, ip6, packet, tcp

PORT, CLIENT_PORT = 8000, 40000
SECOND = 1_000_000_000


Read = Callable[..., list[Segment]]


@pytest.fixture
def read(tmp_path: Path) -> Iterator[Read]:
    """The segments of a block: all of them came too late, so each is given out."""
    library = load_settings().tools_path / RELAY
    writer = RelayWriter(library, tmp_path, keep_bytes=None, keep_seconds=None, on_trouble=print)
    sights = Sights(writer.relay, PORT, None, body_limit=0, logs=())

    def found_in(*packets: bytes) -> Iterator[Segment]:
        block = ctypes.create_string_buffer(b"".join(packets), sum(map(len, packets)))
        sights.begin_block(len(packets))
        while sights.take(block, len(block), 0, 0, 1000) is Verdict.TOO_LATE:
            yield sights.found

    yield lambda *packets: list(found_in(*packets))
    sights.close()
    writer.close()


def test_both_ways_belong_to_one_connection_in_both_families(read: Read) -> None:
    for make, client, service in ((ip4, "10.0.0.9", "10.0.0.1"), (ip6, "2001:db8::9", "::1")):
        up = packet(make(client, service, tcp(CLIENT_PORT, PORT, 5, 6, ACK, b"ask")))
        down = packet(make(service, client, tcp(PORT, CLIENT_PORT, 6, 8, ACK | FIN, b"told")), last=True)
        first, second = read(up, down)
        family = socket.AF_INET if make is ip4 else socket.AF_INET6
        assert first.ends == second.ends
        assert first.ends == Ends(
            socket.inet_pton(family, client), CLIENT_PORT, socket.inet_pton(family, service)
        )
        assert first == Segment(7 * SECOND + 5, first.ends, True, 5, 6, ACK, b"ask")
        assert second == Segment(7 * SECOND + 5, first.ends, False, 6, 8, ACK | FIN, b"told")
        assert first.ends.client_address == f"{client}:{CLIENT_PORT}"


def test_a_block_that_the_kernel_has_again_is_read_on_in_its_copy(tmp_path: Path) -> None:
    library = load_settings().tools_path / RELAY
    writer = RelayWriter(library, tmp_path, keep_bytes=None, keep_seconds=None, on_trouble=print)
    sights = Sights(writer.relay, PORT, None, body_limit=0, logs=())
    packets = [
        packet(ip4("10.0.0.9", "10.0.0.1", tcp(CLIENT_PORT, PORT, 5, 6, ACK, said)), last=said == b"two")
        for said in (b"one", b"two")
    ]
    block = ctypes.create_string_buffer(b"".join(packets))
    copy = ctypes.create_string_buffer(block.raw)
    released = ctypes.c_uint64(7)
    in_ring = InRing(ctypes.addressof(released), 7)
    sights.begin_block(2)
    assert sights.take(block, len(block), 0, 0, 1000, in_ring) is Verdict.TOO_LATE
    found = [sights.found.data]
    ctypes.memset(block, 0xFF, len(block))
    assert sights.found.data == b"one"
    released.value = 8
    assert sights.take(block, len(block), 0, 0, 1000, in_ring) is Verdict.GONE
    while sights.take(copy, len(copy), 0, 0, 1000) is Verdict.TOO_LATE:
        found.append(sights.found.data)
    assert found == [b"one", b"two"]
    sights.close()
    writer.close()


def test_what_fills_a_short_frame_is_no_data(read: Read) -> None:
    (found,) = read(
        packet(ip4("10.0.0.9", "10.0.0.1", tcp(CLIENT_PORT, PORT, 5, 6, SYN, b"")) + b"\0" * 6, last=True)
    )
    assert (found.data, found.flags, found.lacks) == (b"", SYN, 0)


def test_a_packet_larger_than_its_head_can_say_is_read_whole(read: Read) -> None:
    data = b"x" * 65530
    (found,) = read(packet(ip4("127.0.0.1", "127.0.0.1", tcp(CLIENT_PORT, PORT, 5, 6, ACK, data)), last=True))
    assert found.data == data


def test_what_was_not_taken_of_a_packet_is_told(read: Read) -> None:
    raw = ip4("127.0.0.1", "127.0.0.1", tcp(CLIENT_PORT, PORT, 5, 6, ACK, b"x" * 100))
    (found,) = read(packet(raw, kept=len(raw) - 30, last=True))
    assert (found.data, found.lacks) == (b"x" * 70, 30)


def test_what_was_not_taken_of_a_larger_one_is_told(read: Read) -> None:
    """A FIN in it would else end the stream before bytes that never came."""
    raw = ip4("127.0.0.1", "127.0.0.1", tcp(PORT, CLIENT_PORT, 1, 1, ACK | FIN, b"x" * 70000))
    (found,) = read(packet(raw, kept=60000, last=True))
    assert len(found.data) + found.lacks == 70000
    assert found.lacks == len(raw) - 60000


def test_what_this_host_asks_at_that_port_of_others_is_left_out(read: Read) -> None:
    asks = packet(
        ip4("10.0.0.1", "10.0.0.2", tcp(CLIENT_PORT, PORT, 5, 6, ACK, b"a")), kind=ETHERNET, way=OUTGOING
    )
    told = packet(ip4("10.0.0.2", "10.0.0.1", tcp(PORT, CLIENT_PORT, 5, 6, ACK, b"b")), kind=ETHERNET)
    asked = packet(ip4("10.0.0.2", "10.0.0.1", tcp(CLIENT_PORT, PORT, 5, 6, ACK, b"c")), kind=ETHERNET)
    tells = packet(
        ip4("10.0.0.1", "10.0.0.2", tcp(PORT, CLIENT_PORT, 5, 6, ACK, b"d")),
        kind=ETHERNET,
        way=OUTGOING,
        last=True,
    )
    assert [one.data for one in read(asks, told, asked, tells)] == [b"c", b"d"]


def test_damage_is_left_out_and_ends_nothing(read: Read) -> None:
    good = packet(ip4("127.0.0.1", "127.0.0.1", tcp(CLIENT_PORT, PORT, 5, 6, ACK, b"good")))
    other = packet(ip4("127.0.0.1", "127.0.0.1", tcp(CLIENT_PORT, 1, 5, 6, ACK, b"other")))
    short = packet(ip4("127.0.0.1", "127.0.0.1", b"\x1f\x40"))
    long_head = packet(
        ip4("127.0.0.1", "127.0.0.1", tcp(CLIENT_PORT, PORT, 5, 6, ACK, b"")[:12] + b"\xf0\x10" + bytes(6))
    )
    assert [one.data for one in read(short, other, long_head, good, good[:20])] == [b"good"]
