"""Ports for services that are told on which one to listen."""

from __future__ import annotations

import itertools
import os
import random
import socket
from collections.abc import Iterator

__all__ = ["free_port"]

# Below those that the kernel gives away (32768 and above, ip_local_port_range): between the call and the moment at which
# the service listens, nobody else is given the port.
_RANGE = range(10_000, 32_000)


def _candidates() -> Iterator[int]:
    """Those of this worker of ``pytest -n``, each once before the first comes again; another suite begins elsewhere."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    own = _RANGE[worker % count :: count]
    begin = random.randrange(len(own))
    return itertools.cycle([*own[begin:], *own[:begin]])


_candidates_left = _candidates()


def free_port() -> int:
    """A TCP port on which nobody listens at the loopback address, and that no other call is given."""
    for port in _candidates_left:
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise AssertionError("unreachable: the candidates never end")
