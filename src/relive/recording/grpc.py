"""How a call of gRPC ended: in the trailers of an answer whose HTTP status is 200, whatever came of it.

Codes and the headers are those of https://grpc.github.io/grpc/core/md_doc_statuscodes.html and "gRPC over HTTP2".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["GrpcStatus", "grpc_status"]

_NAMES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
_FAILURES = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)
_CODE_DIGITS = 3


class GrpcStatus(NamedTuple):
    """Its code."""

    code: int

    @property
    def is_failure(self) -> bool:
        """It is the service's, as a 5xx status is; the others are of the request, as a 4xx status is.

        As OpenTelemetry's semantic conventions have it for the spans of servers.
        """
        return self.name in _FAILURES

    @property
    def name(self) -> str:
        """``INTERNAL``; of a code that gRPC does not have ``UNKNOWN``, which clients make of it."""
        return _NAMES[self.code] if self.code < len(_NAMES) else "UNKNOWN"

    def __str__(self) -> str:
        """``gRPC status 13 INTERNAL``."""
        return f"gRPC status {self.code} {self.name}"


def grpc_status(headers: Iterable[tuple[str, str]]) -> GrpcStatus | None:
    """Of an answer's headers, and the trailers behind them; None: it is none of gRPC, or says nothing of it."""
    found = {name.lower(): value for name, value in headers}
    code = found.get("grpc-status", "")
    is_grpc = found.get("content-type", "").lower().startswith("application/grpc")
    if not is_grpc or not (code.isascii() and code.isdigit() and len(code) <= _CODE_DIGITS):
        return None
    return GrpcStatus(int(code))
