"""The end of a client's connection into a branch."""

from __future__ import annotations

import contextlib
import socket

__all__ = ["hang_up"]


def hang_up(sock: socket.socket) -> None:
    """Also where another process has the same end open, as process 1 of a branch has clients': closing alone says nothing then."""
    with contextlib.suppress(OSError), sock:  # the service has broken it
        sock.shutdown(socket.SHUT_RDWR)
