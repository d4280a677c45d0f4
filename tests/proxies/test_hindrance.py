"""Whether packets can be taken is asked of the kernel and of what set-up built."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from relive.config import load_settings
from relive.proxies.ingress.hindrance import packets_hindrance
from relive.proxies.ingress.options import CAPTURE, RELAY


def test_here_nothing_is_in_the_way() -> None:
    assert packets_hindrance(load_settings().tools_path) is None


def test_what_was_not_built_is_named(tmp_path: Path) -> None:
    assert CAPTURE in str(packets_hindrance(tmp_path))
    (tmp_path / CAPTURE).touch(mode=0o755)
    assert RELAY in str(packets_hindrance(tmp_path))


def test_a_kernel_that_gives_no_packet_socket_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "AF_PACKET", 255)
    assert str(packets_hindrance(load_settings().tools_path)).startswith("AF_PACKET: ")
