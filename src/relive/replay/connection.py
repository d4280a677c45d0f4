"""Connections into a branch, of whichever version of HTTP the recorded one had."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Protocol

from relive.replay.http1_connection import Http1Connection
from relive.replay.received import ReceivedAnswer

__all__ = ["BranchConnection", "connection_over", "speaks_http2"]


class BranchConnection(Protocol):
    """One connection into the branch.

    Attributes:
        is_kept: it was there before what is sent now.
    """

    sock: socket.socket
    is_kept: bool

    @property
    def has_ended_idle(self) -> bool:
        """The service has closed it, and nothing is under way on it: what is sent now is read by nobody."""

    def take_stream(self) -> bytes:
        """What has come behind the answer that granted an upgrade of HTTP/1; it is given out once."""

    async def hang_up(self) -> None:
        """Close it, as soon as nothing more is to come."""

    def close(self) -> None:
        """Close it."""

    async def exchange(
        self,
        data: bytes,
        methods: Sequence[bytes],
        answer: ReceivedAnswer,
        on_sent: Callable[[], None] = lambda: None,
    ) -> None:
        """Send requests, and fill in the answer to the first of them until it is whole or the connection ends.

        Args:
            methods: of the requests; none where this one was sent together with the one before.
            on_sent: called before the answer is waited for; until then no other request may be sent.
        """


def connection_over(sock: socket.socket, *, is_http2: bool, is_kept: bool = False) -> BranchConnection:
    """One over a socket that is connected and does not block; ``is_kept`` can be one of HTTP/1 only."""
    if is_http2:
        # Its library takes 0.1 s to be imported, and most recordings have none of it.
        from relive.replay.http2_connection import Http2Connection  # noqa: PLC0415

        return Http2Connection(sock)
    return Http1Connection(sock, is_kept=is_kept)


def speaks_http2(request: bytes) -> bool:
    """Whether a request, as ``Exchange.request_bytes`` has it, goes over HTTP/2."""
    return request.split(b"\r\n", 1)[0].endswith(b" HTTP/2")
