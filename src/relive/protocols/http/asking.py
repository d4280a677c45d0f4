"""What is asked in an HTTP request and said in its answer, in the words of the recorder in Python processes.

Those are in ``relive_inprocess/relive_recorder/kinds/http_exchange.py``: ``asked`` has ``method``, ``url``, ``headers`` (name in
lower case to value, those that matter), ``body``; of S3 also ``operation``, ``bucket``, ``key``, ``range``. Here ``body`` is
``{"unsent": true}`` where the answer came before the body was sent. Longer bodies than 64 KiB are told by length and digest; of
JSON that is the digest of its normal form (sorted, no white space), of multipart the one with ``boundary`` as boundary.

Credentials (``authorization``, cookies, keys by their names) are told as ``<secret:HASH>``, keyed with a number that this process
has made up: they can be compared within it, and a guess cannot be confirmed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Any

from relive.protocols.matching import boundary_of, uncompressed
from relive.recording.events import EventKind
from relive.recording.http1 import AnswerHead, RequestHead, dechunk
from relive_inprocess.relive_recorder.credential_names import is_credential_name
from relive_inprocess.relive_recorder.kinds.headers import VOLATILE
from relive_inprocess.relive_recorder.kinds.s3 import operation_of
from relive_inprocess.relive_recorder.values import pack

__all__ = ["UNSENT", "HttpQuestion", "answer_of", "asked_of", "url_of"]

INLINE = 64 << 10  # [bytes] longer bodies are told by their digest
UNSENT: Mapping[str, Any] = {"unsent": True}
_SCHEME = re.compile(r"(Basic|Bearer|Digest|Token|AWS4-HMAC-SHA256)(\s+)(.+)", re.IGNORECASE | re.DOTALL)
_USUAL_PORT = {"http": ":80", "https": ":443"}
_CHUNK_SIGNATURE = re.compile(rb"(?m)^([0-9a-fA-F]+);chunk-signature=[0-9a-f]{64}\r$")
_TRAILER_SIGNATURE = re.compile(rb"(?m)^x-amz-trailer-signature:[0-9a-f]{64}\r$")


@dataclass(frozen=True, slots=True)
class HttpQuestion:
    """A question: its kind (HTTP_CALL or S3_CALL), what it is found by, and the headers that are not matched."""

    kind: EventKind
    asked: dict[str, Any]
    volatile: dict[str, str]


def asked_of(
    head: RequestHead, body: bytes | None, *, scheme: str = "http", to: tuple[str, int] = ("", 0)
) -> HttpQuestion:
    """What is asked.

    Args:
        body: as it came, chunk framing included; None where it was not sent.
    """
    chosen: dict[str, str] = {}
    volatile: dict[str, str] = {}
    for raw_name, raw_value in head.headers:
        name = raw_name.decode("latin-1")
        value = _without_secret(name, raw_value.decode("latin-1"))
        into = volatile if name in VOLATILE else chosen
        into[name] = f"{into[name]}, {value}" if name in into else value
    method, url = head.method.decode("latin-1"), url_of(head, scheme, to)
    operation = operation_of(method, url, chosen)
    asked: dict[str, Any] = {"method": method, "url": url}
    if operation is not None or chosen.get("authorization", "").startswith("AWS4-"):
        for name in ("authorization", "x-amz-security-token"):  # a signature differs with each second
            if name in chosen:
                volatile[name] = chosen.pop(name)
    if operation is not None:
        asked = {**operation, **asked}
    asked["headers"] = dict(sorted(chosen.items()))
    payload = body if body is None or head.length is not None else dechunk(body)
    if payload and operation is not None:
        payload = _TRAILER_SIGNATURE.sub(b"", _CHUNK_SIGNATURE.sub(rb"\1\r", payload))
    asked["body"] = dict(UNSENT) if payload is None else _encoded(payload, chosen)
    return HttpQuestion(EventKind.HTTP_CALL if operation is None else EventKind.S3_CALL, asked, volatile)


def answer_of(head: AnswerHead) -> dict[str, Any]:
    """What is shown of an answer; its body is told apart, see ``relive.protocols.event_view``."""
    return {
        "status": head.status,
        "reason": head.reason.decode("latin-1"),
        "headers": [
            [name.decode("latin-1"), _without_secret(name.decode("latin-1"), value.decode("latin-1"))]
            for name, value in head.headers
        ],
    }


def url_of(head: RequestHead, scheme: str, to: tuple[str, int]) -> str:
    """Scheme, host, port where it is not the usual one, path and query; of CONNECT only where it leads."""
    target = head.target.decode("latin-1")
    if head.method == b"CONNECT" or "://" in target.partition("?")[0]:
        return target
    host = next((value.decode("latin-1") for name, value in head.headers if name == b"host"), "")
    if not host:
        host = f"[{to[0]}]:{to[1]}" if ":" in to[0] else f"{to[0]}:{to[1]}"
    return f"{scheme}://{host.removesuffix(_USUAL_PORT[scheme])}{target}"


def _encoded(body: bytes, headers: Mapping[str, str]) -> Any:
    if len(body) <= INLINE:
        try:
            return body.decode("utf-8")
        except UnicodeDecodeError:
            return pack(body)
    normal = _normal(uncompressed(body, headers.get("content-encoding", "")), headers.get("content-type", ""))
    return {"bytes": len(normal), "blake2b": blake2b(normal, digest_size=16).hexdigest()}


def _normal(body: bytes, content_type: str) -> bytes:
    boundary = boundary_of(content_type)
    if boundary is not None:
        return body.replace(boundary.encode("latin-1"), b"boundary")
    if "json" in content_type.lower():
        try:
            return json.dumps(json.loads(body), sort_keys=True, separators=(",", ":")).encode()
        except (ValueError, RecursionError):
            return body
    return body


def _without_secret(name: str, value: str) -> str:
    if name in ("cookie", "set-cookie"):
        first, *rest = value.split(";")
        pairs = [first, *rest] if name == "cookie" else [first]
        kept = [] if name == "cookie" else rest
        return ";".join([*(_cookie(pair) for pair in pairs), *kept])
    if name in ("authorization", "proxy-authorization"):
        known = _SCHEME.fullmatch(value.strip())
        return f"{known[1]}{known[2]}{_secret(known[3])}" if known is not None else _secret(value)
    return _secret(value) if value and is_credential_name(name) else value


def _cookie(pair: str) -> str:
    name, equals, value = pair.partition("=")
    return f"{name}{equals}{_secret(value)}" if value else pair


@cache
def _key() -> bytes:
    """Made when it is needed first, not at the import: a process that was forked from one that had imported this has its own."""
    return os.urandom(16)


def _secret(value: str) -> str:
    digest = blake2b(value.encode("latin-1", "replace"), digest_size=4, key=_key()).hexdigest()
    return f"<secret:{digest}>"
