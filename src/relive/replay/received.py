"""What came back from a branch for one request."""

from __future__ import annotations

from dataclasses import dataclass, field

from relive.model.outcome import End

__all__ = ["ReceivedAnswer"]


@dataclass(slots=True)
class ReceivedAnswer:
    """What came back for one request.

    Attributes:
        body: raw, chunk framing included.
        was_reset: the service had closed the connection without having read all that it was sent.
    """

    end: End = End.NO_ANSWER
    status: int | None = None
    head: bytes = b""
    body: bytearray = field(default_factory=bytearray)
    seconds: float | None = None
    was_reset: bool = False
    trailers: list[tuple[str, str]] = field(default_factory=list)
