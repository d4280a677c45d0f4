"""Packets made by hand are such that the kernel, and we ourselves, read them."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.kernel.packets import Packet, datagram, read_packet, unreachable_port

ENDS = {4: (("192.0.2.1", 5353), ("198.51.100.9", 53)), 6: (("2001:db8::1", 5353), ("2001:db8::2", 53))}


def sum_of(data: bytes) -> int:
    """RFC 1071 by its words: the sum over what is right is all ones."""
    total = 0
    for place in range(0, len(data), 2):
        total += int.from_bytes(data[place : place + 2].ljust(2, b"\0"), "big")
        total = (total & 0xFFFF) + (total >> 16)
    return total


@pytest.mark.parametrize("version", [4, 6])
@given(data=st.binary(max_size=100))
def test_a_datagram_is_read_as_it_was_made_and_its_sums_are_right(version, data):
    origin, destination = ENDS[version]
    raw = datagram(origin, destination, data)
    assert read_packet(raw) == Packet(socket.IPPROTO_UDP, origin, destination, 0, data)
    size = 20 if version == 4 else 40
    addresses = raw[12:20] if version == 4 else raw[8:40]
    pseudo = addresses + (len(raw) - size).to_bytes(4, "big") + (17).to_bytes(4, "big")
    assert sum_of(pseudo + raw[size:]) == 0xFFFF
    if version == 4:
        assert sum_of(raw[:20]) == 0xFFFF


def test_an_error_comes_from_the_destination_and_quotes_the_packet():
    raw = datagram(*ENDS[4], b"question")
    error = unreachable_port(raw)
    assert (socket.inet_ntoa(error[12:16]), socket.inet_ntoa(error[16:20])) == ("198.51.100.9", "192.0.2.1")
    assert error[20:22] == bytes([3, 3]) and error[28:] == raw[:28]
    assert sum_of(error[20:]) == 0xFFFF


@given(raw=st.binary(max_size=80))
def test_bytes_that_are_no_packet_are_none(raw):
    packet = read_packet(raw)
    assert packet is None or packet.protocol in (socket.IPPROTO_TCP, socket.IPPROTO_UDP)


def test_a_tcp_segment_behind_extension_headers_is_found():
    segment = (1000).to_bytes(2, "big") + (80).to_bytes(2, "big") + (7).to_bytes(4, "big") + bytes(12)
    addresses = socket.inet_pton(socket.AF_INET6, "::1") * 2
    options = bytes([6, 0, 1, 4, 0, 0, 0, 0])  # next: TCP; eight bytes of padding
    raw = bytes([0x60, 0, 0, 0]) + (len(segment) + 8).to_bytes(2, "big") + bytes([0, 64]) + addresses
    assert read_packet(raw + options + segment) == Packet(
        socket.IPPROTO_TCP, ("::1", 1000), ("::1", 80), 7, b""
    )
