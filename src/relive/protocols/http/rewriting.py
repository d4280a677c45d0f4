"""A recorded answer of HTTP with another status or body, as the same server would have sent it."""

from __future__ import annotations

import http.client
from dataclasses import replace

from relive.protocols.call import Call, CallEnd, Timed
from relive.protocols.matching import uncompressed
from relive.recording.http1 import dechunk

__all__ = ["body_of_answer", "with_answer"]

_OF_THE_BODY = (b"content-length:", b"transfer-encoding:", b"content-encoding:")


def body_of_answer(call: Call) -> bytes:
    """Its body, without chunk framing and compression; empty where no answer came."""
    if call.answer is None:
        return b""
    raw = b"".join(piece.data for piece in call.pieces)[call.extra["interim"] + call.extra["head"] :]
    encoding = next(
        (value for name, value in call.answer["headers"] if name.lower() == "content-encoding"), ""
    )
    return uncompressed(dechunk(raw) if call.extra["chunked"] else raw, encoding)


def with_answer(call: Call, status: int | None, body: bytes | None) -> Call:
    """The call, answered whole; None: status (or 200 where none came) and body as they were."""
    was = call.answer["status"] if call.answer is not None else 200
    said = status if status is not None else was
    kept = body if body is not None else body_of_answer(call)
    raw = b"".join(piece.data for piece in call.pieces)
    interim = call.extra["interim"] if call.answer is not None else 0
    head = _head(raw[interim : interim + call.extra["head"]], said, len(kept))
    ends = call.extra["method"] == "HEAD" or said in (204, 304)
    wait = sum(piece.after_ns for piece in call.pieces) or call.end_after_ns
    data = raw[:interim] + head + (b"" if ends else kept)
    answer = {"status": said, "reason": _reason(said), "headers": _headers(head)}
    extra = {**call.extra, "interim": interim, "head": len(head), "chunked": False, "until_close": False}
    if call.end is not CallEnd.ANSWERED:
        extra["closes"] = False
    return replace(
        call,
        answer=answer,
        end=CallEnd.ANSWERED,
        pieces=(Timed(wait, data),),
        end_after_ns=call.end_after_ns if extra["closes"] else 0,
        extra=extra,
    )


def _head(head: bytes, status: int, size: int) -> bytes:
    lines = [line for line in head.split(b"\r\n")[1:] if line and not line.lower().startswith(_OF_THE_BODY)]
    version = head.split(b" ", 1)[0] if head.startswith(b"HTTP/") else b"HTTP/1.1"
    first = version + f" {status} {_reason(status)}".encode("latin-1")
    length = [] if status == 204 else [b"content-length: %d" % size]
    return b"\r\n".join([first, *lines, *length]) + b"\r\n\r\n"


def _headers(head: bytes) -> list[list[str]]:
    pairs = [line.partition(b":")[::2] for line in head.split(b"\r\n")[1:] if line]
    return [[name.decode("latin-1").lower(), value.strip().decode("latin-1")] for name, value in pairs]


def _reason(status: int) -> str:
    return http.client.responses.get(status, "")
