"""The request that is sent again: as it was on the wire, or made again of what the service's server had read of it, as its events
or the error package have it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from relive.errors import RequestTruncated, UsageError
from relive.recording.bodies import is_body_name
from relive.recording.events import EventKind
from relive.replay.fresh.evidence import FreshInput

__all__ = ["SentRequest", "request_for"]

PLACEHOLDER = re.compile(r"<secret:[0-9a-f]{8}>")
_MADE_ANEW = frozenset({"content-length", "transfer-encoding", "expect"})
_HOST = re.compile(rb"(?i)\r\nhost:[ \t]*([a-z0-9.-]{1,253})(?::\d+)?[ \t]*\r\n")
_WORD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_LINE = re.compile(r"[^\x00-\x20\x7f]{1,65536}")
_VALUE = re.compile(r"[^\x00\r\n]{0,65536}")


@dataclass(frozen=True, slots=True)
class SentRequest:
    """Attributes:
    data: head and body.
    notes: what of it is not as it was.
    may_be_encrypted: nobody saw it on its way, which may be because the service ends TLS itself.
    """

    method: str
    target: str
    data: bytes
    notes: list[str]
    may_be_encrypted: bool = False

    @property
    def host(self) -> str:
        """The name that it asks for; empty: an address, or none."""
        found = _HOST.search(self.data)
        name = found[1].decode("latin-1") if found else ""
        return "" if name.replace(".", "").isdigit() else name

    @property
    def words(self) -> str:
        """``POST /orders``."""
        return f"{self.method} {self.target}"


def request_for(case: FreshInput) -> SentRequest | None:
    """The request of a failure; None where it escaped outside of any, so that the program is only run.

    Raises:
        RequestTruncated: its body was not kept whole.
        UsageError: it is no request that can be sent: a websocket, or what is kept of it is no HTTP.
    """
    started = case.started
    if case.is_job or not (case.judged or case.wire is not None):
        return None
    failed = case.failed_request
    if failed is not None and failed.method == "WEBSOCKET":
        raise UsageError(
            f"incident {case.incident.number} failed in a websocket",
            cause="its messages are not kept beside it",
            remedy=f"`relive replay {case.incident.number}` brings it back from a commit",
        )
    if case.wire is not None:
        words = case.wire.lstrip(b"\r\n").split(b"\n", 1)[0].split(b" ")
        target = words[1].decode("latin-1") if len(words) > 1 else ""
        return SentRequest(words[0].decode("latin-1"), target, case.wire, [])
    if started is not None:
        about = started.fields
        body = _read_body(case, started.request)
        return _made_again(str(about.get("method")), str(about.get("target")), about.get("headers"), body)
    assert failed is not None
    if failed.body_cut:
        raise _truncated(case, failed.body_cut + len(failed.body or ""))
    body = (failed.body or "").encode()
    return _made_again(failed.method, failed.target, failed.headers, body)


def _made_again(method: str, target: str, pairs: object, body: bytes) -> SentRequest:
    if not _WORD.fullmatch(method) or not _LINE.fullmatch(target):
        raise UsageError("the request cannot be sent again", cause=f"{method!r} {target!r} is no HTTP")
    headers = [(name, value) for name, value in _pairs(pairs) if name.lower() not in _MADE_ANEW]
    if not any(name.lower() == "host" for name, _ in headers):
        headers.insert(0, ("host", "localhost"))
    if body:
        headers.append(("content-length", str(len(body))))
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    data = f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1", "replace") + body
    notes = ["the request was made again of what the service had read; the proxy has not recorded it whole"]
    hidden = [name for name, value in headers if PLACEHOLDER.search(value)]
    if hidden or PLACEHOLDER.search(target) or PLACEHOLDER.search(body.decode("latin-1")):
        where = f" in its headers {', '.join(hidden)}" if hidden else ""
        notes.append(f"placeholders stand for secrets in the request{where}")
    return SentRequest(method, target, data, notes, may_be_encrypted=True)


def _pairs(given: object) -> Iterable[tuple[str, str]]:
    for pair in given if isinstance(given, list | tuple) else ():
        if isinstance(pair, list | tuple) and len(pair) == 2:
            name, value = str(pair[0]), str(pair[1])
            if _WORD.fullmatch(name) and _VALUE.fullmatch(value):
                yield name, value


def _read_body(case: FreshInput, request: int) -> bytes:
    kept = [e for e in case.events if e.kind is EventKind.HANDLING_BODY and e.request == request]
    if not kept:
        return b""
    last = kept[-1]
    name = last.fields.get("file")
    try:
        body = (case.bodies / name).read_bytes() if is_body_name(name) else last.data
    except FileNotFoundError:
        body = b""
    whole = last.fields.get("bytes")
    if last.fields.get("cut") or (isinstance(whole, int) and whole and not body):
        raise _truncated(case, whole)
    return body


def _truncated(case: FreshInput, size: object) -> RequestTruncated:
    return RequestTruncated(
        f"the request of incident {case.incident.number} cannot be sent again",
        cause=f"of its body of {size} bytes not all was kept",
        remedy="raise `body_limit` in relive.toml",
    )
