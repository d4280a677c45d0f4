"""Addresses and ports as users write them."""

from __future__ import annotations

import ipaddress
import re

from relive.errors import UsageError

__all__ = ["parse_address", "parse_publication"]

_ADDRESS = re.compile(r"(?:(?P<host>[^\[\]:\s]*|\[(?P<six>[^\[\]\s]+)\]):)?(?P<port>[0-9]{1,5})")


def parse_publication(text: str) -> tuple[str, int, int]:
    """(host's address, host's port, inner port) of ``[ADDRESS:]PORT:PORT``; raises UsageError as ``parse_address``."""
    outer, _, inner = text.rpartition(":")
    host, host_port = parse_address(outer)
    return host, host_port, parse_address(inner)[1]


def parse_address(text: str, *, default_host: str = "127.0.0.1", least_port: int = 1) -> tuple[str, int]:
    """Read ``HOST:PORT``, ``[V6]:PORT`` or ``PORT``; raises UsageError."""
    match = _ADDRESS.fullmatch(text)
    port = int(match["port"]) if match is not None else 0
    if match is None or not least_port <= port < 65536 or not _is_v6(match["six"]):
        raise UsageError(
            f"{text!r} is no address", remedy="write HOST:PORT, such as 127.0.0.1:8000 or [::1]:8000"
        )
    return match["six"] or match["host"] or default_host, port


def _is_v6(text: str | None) -> bool:
    """What stands in brackets, if there are any, is an IPv6 address."""
    try:
        return text is None or ipaddress.ip_address(text).version == 6
    except ValueError:
        return False
