"""Answers that Relive gives itself, because the service cannot be asked. One shape: {code, message, cause, remedy}."""

from __future__ import annotations

import errno
import json
from http import HTTPStatus

__all__ = ["answer", "refused", "unreachable"]


def answer(status: int, body: str) -> tuple[bytes, bytes]:
    """Head and body of an answer that ends the connection."""
    raw = body.encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nServer: relive\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(raw)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode(), raw


def refused(reason: str) -> str:
    """The request breaks HTTP/1.1."""
    return _body(
        "request-refused",
        "Relive's recording proxy refused the request",
        reason,
        "Send it as RFC 9112 has it; requests that a service might read in two ways are not passed on.",
    )


def unreachable(upstream: str, error: OSError) -> tuple[int, str]:
    """Status and body where the service takes no connection."""
    status = HTTPStatus.GATEWAY_TIMEOUT if error.errno == errno.ETIMEDOUT else HTTPStatus.BAD_GATEWAY
    return int(status), _body(
        "service-unreachable",
        f"Relive's recording proxy could not reach the service at {upstream}",
        error.strerror or str(error),
        "See whether the service is running and listens at that address.",
    )


def _body(code: str, message: str, cause: str, remedy: str) -> str:
    return json.dumps({"code": code, "message": message, "cause": cause, "remedy": remedy}) + "\n"
