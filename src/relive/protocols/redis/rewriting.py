"""A recorded answer of Redis with another value, in the version of RESP that was spoken."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

from relive.protocols.call import Call, CallEnd, Timed
from relive.protocols.redis.resp import Said, encode

__all__ = ["with_error", "with_value"]


def with_value(call: Call, value: Any) -> Call | None:
    """The call answered with a packed value; None where it is a value that Redis has not, or a transaction."""
    said = _said(value)
    return _with(call, said, value) if said is not None else None


def with_error(call: Call, text: str) -> Call | None:
    """The call answered with an error of the server's, such as ``OOM command not allowed``."""
    words = " ".join(text.split()) or "ERR"
    answer = {"error": {"type": "redis.exceptions.ResponseError", "args": {"$": ["tuple", [words]]}}}
    return _with(call, (b"-", words.encode("utf-8", "replace")), answer)


def _with(call: Call, said: Said, answer: Any) -> Call | None:
    if call.asked.get("transaction") or call.extra.get("push"):
        return None
    data = encode(said, 3 if call.extra.get("version") == 3 else 2)
    wait = sum(piece.after_ns for piece in call.pieces) or call.end_after_ns
    return replace(
        call,
        answer=answer,
        end=CallEnd.ANSWERED,
        pieces=(Timed(wait, data),),
        end_after_ns=0,
        extra={**call.extra, "replies": [len(data)]},
    )


def _said(value: Any) -> Said | None:
    """As a server says it."""
    if value is None:
        return (b"$", None)
    if isinstance(value, bool):
        return (b":", int(value))
    if isinstance(value, int):
        return (b":", value)
    if isinstance(value, float):
        return (b"$", repr(value).encode())
    if isinstance(value, str):
        return (b"$", value.encode("utf-8", "surrogateescape"))
    if isinstance(value, list):
        items = [_said(one) for one in value]
        return (b"*", items) if None not in items else None
    return _packed(value)


def _packed(value: Any) -> Said | None:
    tag = value.get("$") if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(tag, list) or len(tag) != 2:
        return None
    kind, content = tag
    if kind == "utf8" and isinstance(content, str):
        return (b"$", content.encode())
    if kind == "bytes" and isinstance(content, str):
        try:
            return (b"$", base64.b64decode(content, validate=True))
        except ValueError:
            return None
    if kind == "dict" and isinstance(content, list):
        flat = [_said(part) for pair in content if isinstance(pair, list) and len(pair) == 2 for part in pair]
        return (b"%", flat) if None not in flat else None
    return None
