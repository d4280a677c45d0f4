"""How the Python services of the corpus ask the server of rates, which no recording holds.

RATES is "0" (ask nobody), a port on loopback, or the path of a UNIX domain socket.
"""

from __future__ import annotations

import socket
import sys

RATES = sys.argv[2] if len(sys.argv) > 2 else "0"


def rate() -> int:
    """The rate; whatever fails is raised."""
    if RATES == "0":
        return 2
    unix = RATES.startswith("/")
    with socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as sock:
        sock.connect(RATES if unix else ("127.0.0.1", int(RATES)))
        return int(sock.recv(9))
