"""A request in flight, and how much of a body is kept."""

from __future__ import annotations

import hashlib
from typing import Any

from relive.recording.grpc import GrpcStatus

__all__ = ["BodyKeeper", "Flight"]

_FAILING = 500


class BodyKeeper:
    """Decides which bytes of one body are recorded: the first ``limit``; of the rest only number and hash.

    The hash costs a millisecond a megabyte, so it is not computed for a body that announced to fit the limit.
    """

    __slots__ = ("_hash", "_kept", "_limit", "total")

    def __init__(self, limit: int, announced: int | None, *, seen: int = 0) -> None:
        """``seen``: bytes that were recorded before, of a body that announced to fit the limit."""
        self._limit = limit
        self._kept = seen
        self._hash = None if announced is not None and announced <= limit else hashlib.blake2b(digest_size=32)
        self.total = seen

    def feed(self, raw: bytes) -> bytes:
        """The part of ``raw``, the next bytes of the body, that is recorded."""
        self.total += len(raw)
        if self._hash is not None:
            self._hash.update(raw)
        if self._kept + len(raw) > self._limit:
            raw = raw[: self._limit - self._kept]
        self._kept += len(raw)
        return raw

    def pass_over(self, size: int) -> None:
        """The next bytes were not taken: they are counted, and nothing behind them is recorded."""
        self.total += size
        self._hash, self._limit = None, self._kept

    def summary(self, prefix: str = "") -> dict[str, Any]:
        """``bytes``, ``cut`` if not all was kept, and ``blake2b`` if all of that was taken, each name with ``prefix`` before it."""
        fields: dict[str, Any] = {f"{prefix}bytes": self.total}
        if self.total > self._kept:
            fields[f"{prefix}cut"] = self.total - self._kept
        if self.total > self._kept and self._hash is not None:
            fields[f"{prefix}blake2b"] = self._hash.hexdigest()
        return fields


class Flight:
    """A request that was handed to the service and whose answer is not whole yet.

    Attributes:
        status: of the final answer's head, None until it has come.
        grpc: how a call of gRPC ended; None: it has not, or is none.
        started: on the gate's clock, when it was handed to the service.
        touched: on the gate's clock, when the service last got something to do for it.
        reported: that it was said to be unanswered, which is said once.
    """

    __slots__ = (
        "answer",
        "asks_upgrade",
        "body",
        "grpc",
        "is_sent",
        "method",
        "number",
        "reported",
        "started",
        "status",
        "touched",
        "waits_for_continue",
    )

    def __init__(self, number: int, method: bytes, body: BodyKeeper, started: float) -> None:
        self.number = number
        self.method = method
        self.body = body
        self.answer: BodyKeeper | None = None
        self.status: int | None = None
        self.grpc: GrpcStatus | None = None
        self.asks_upgrade = False
        self.waits_for_continue = False
        self.is_sent = False
        self.started = started
        self.touched = started
        self.reported = False

    @property
    def has_failed(self) -> bool:
        """Its answer says that the service failed: a 5xx status, or such a status of gRPC."""
        return (self.status or 0) >= _FAILING or (self.grpc is not None and self.grpc.is_failure)
