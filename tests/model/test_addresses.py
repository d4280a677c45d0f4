"""Addresses as users write them, read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import UsageError
from relive.model.addresses import parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8000", ("127.0.0.1", 8000)),
        (":8000", ("127.0.0.1", 8000)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("localhost:65535", ("localhost", 65535)),
        ("[::1]:80", ("::1", 80)),
        ("[2001:db8::2]:8443", ("2001:db8::2", 8443)),
    ],
)
def test_an_address_is_a_host_and_a_port(text, address):
    assert parse_address(text) == address


def test_an_address_without_a_host_takes_the_given_one():
    assert parse_address("80", default_host="::1") == ("::1", 80)


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "a:", "a:0", "a:65536", "a:-1", "a:8000 ", "a b:80", "a:²", "a:٣", "9" * 5000),
        *(
            "::1",
            "::1:80",
            "fe80::1:80",
            "[::1]",
            "[::1:80",
            "::1]:80",
            "[]:80",
            "[localhost]:80",
            "[127.0.0.1]:80",
        ),
    ],
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(UsageError) as caught:
        parse_address(text)
    assert "HOST:PORT" in (caught.value.remedy or "")


@given(st.ip_addresses(), st.integers(1, 65535))
def test_every_ip_address_with_a_port_is_read(host, port):
    text = f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"
    assert parse_address(text) == (str(host), port)


@given(st.text())
def test_any_other_text_is_an_address_or_a_usage_error(text):
    try:
        host, port = parse_address(text)
    except UsageError:
        return
    assert host
    assert 0 < port < 65536
