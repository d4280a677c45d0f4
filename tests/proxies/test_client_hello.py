"""The first message of a TLS client, whole, in parts, and what only looks like one."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.proxies.egress.client_hello import Hello, looks_like_hello, read_hello


def hello_of(name: str | None, protocols: list[str]) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    if protocols:
        context.set_alpn_protocols(protocols)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    ("name", "protocols"), [("example.org", ["h2", "http/1.1"]), (None, []), ("a.b", ["x"])]
)
def test_name_and_protocols_are_read_however_it_is_cut(name, protocols):
    whole = hello_of(name, protocols)
    for size in range(len(whole)):
        assert looks_like_hello(whole[:size])
        assert read_hello(whole[:size]) is None
    assert read_hello(whole) == read_hello(whole + b"more") == Hello(name, tuple(protocols))
    # The message in two records.
    body, cut = whole[5:], 50
    parts = (body[:cut], body[cut:])
    records = b"".join(whole[:3] + len(part).to_bytes(2, "big") + part for part in parts)
    assert read_hello(records) == Hello(name, tuple(protocols))


@given(data=st.binary(max_size=300))
def test_other_bytes_are_none_or_not_whole(data):
    try:
        read_hello(b"\x16\x03\x01" + data)
    except ValueError:
        return


@given(place=st.integers(0, 300), value=st.integers(0, 255))
def test_a_damaged_one_is_read_or_refused(place, value):
    whole = bytearray(_HELLO)
    whole[place % len(whole)] = value
    try:
        read_hello(bytes(whole))
    except ValueError:
        return


_HELLO = hello_of("example.org", ["h2"])
