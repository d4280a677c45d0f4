"""Heads of HTTP/1.1 messages: start line and headers, and what they say about the body that follows."""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

__all__ = [
    "AnswerHead",
    "HeadError",
    "Headers",
    "RequestHead",
    "parse_answer_head",
    "parse_headers",
    "parse_request_head",
]

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

_TOKEN = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([^\x00-\x20\x7f]+) HTTP/(\d\.\d)")
_STATUS_LINE = re.compile(rb"HTTP/(1\.\d) ([1-9]\d\d)(?: (.*))?", re.DOTALL)
_FORBIDDEN = re.compile(rb"\x00|\r(?!\n)")
_FRAMING = frozenset((b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"expect"))


class HeadError(Exception):
    """A head that is refused, with the status a proxy answers."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason


class RequestHead(NamedTuple):
    """The head of a request.

    Attributes:
        raw: as it came, with the blank line that ends it and any that stood before it.
        headers: (name in lower case, value without white space around it), in order.
        length: bytes of the body; None if it is chunked.
        asks_upgrade: the answer may turn the connection into a stream.
        expects_continue: the client may hold its body back until a 100 comes.
    """

    raw: bytes
    method: bytes
    target: bytes
    version: bytes
    headers: Headers
    length: int | None
    asks_upgrade: bool
    expects_continue: bool


class AnswerHead(NamedTuple):
    """The head of an answer; ``raw`` and ``headers`` as in ``RequestHead``.

    Attributes:
        length: bytes of the body by its headers; None if it is chunked or lasts until the connection closes.
        lasts_until_close: the body ends where the connection does.
        is_interim: a 1xx other than 101; the final answer is still to come.
    """

    raw: bytes
    status: int
    reason: bytes
    version: bytes
    headers: Headers
    length: int | None
    lasts_until_close: bool
    is_interim: bool


def parse_request_head(raw: bytes) -> RequestHead:
    """Take a whole head apart.

    Raises:
        HeadError: it is malformed, or a service behind might read another length from it than we do.
    """
    if _FORBIDDEN.search(raw):
        raise HeadError(400, "a NUL or a bare CR in the head")
    lines = _lines(raw.lstrip(b"\r\n"))
    match = _REQUEST_LINE.fullmatch(lines[0])
    if match is None:
        raise HeadError(400, "the request line is malformed")
    method, target, version = match.groups()
    if version[:1] != b"1":
        raise HeadError(505, "only HTTP/1.0 and HTTP/1.1 are spoken here")
    headers, framing = _headers(lines, is_request=True)
    if not framing:
        return RequestHead(raw, method, target, version, headers, 0, method == b"CONNECT", False)
    asks_upgrade = method == b"CONNECT" or (
        b"upgrade" in framing and _has_token(framing.get(b"connection", ()), b"upgrade")
    )
    expects_continue = _has_token(framing.get(b"expect", ()), b"100-continue")
    length = _request_length(framing, version)
    return RequestHead(raw, method, target, version, headers, length, asks_upgrade, expects_continue)


def parse_answer_head(raw: bytes) -> AnswerHead:
    """Take a whole head apart.

    Raises:
        HeadError: it is malformed, or has no definite length.
    """
    lines = _lines(raw)
    match = _STATUS_LINE.fullmatch(lines[0])
    if match is None:
        raise HeadError(400, "the status line is malformed")
    version, status_text, reason = match.groups()
    status = int(status_text)
    headers, framing = _headers(lines, is_request=False)
    codings = framing.get(b"transfer-encoding")
    length: int | None
    if codings is not None:  # it overrides a Content-Length
        lasts_until_close = not b",".join(codings).lower().rstrip(b" \t").endswith(b"chunked")
        length = None
    else:
        length = _content_length(framing.get(b"content-length"))
        lasts_until_close = length is None
    is_interim = status < 200 and status != 101
    return AnswerHead(raw, status, reason or b"", version, headers, length, lasts_until_close, is_interim)


def parse_headers(raw: bytes) -> Headers:
    """Only the headers of a head that was recorded, whatever its first line says; what is none is left out."""
    return _headers(_lines(raw.lstrip(b"\r\n")), is_request=False)[0]


def _lines(raw: bytes) -> list[bytes]:
    """Lines of a head without their ends and without the blank one that ends it."""
    if raw.endswith(b"\r\n\r\n") and raw.count(b"\n") == raw.count(b"\r\n"):
        return raw[:-4].split(b"\r\n")
    lines = [line.removesuffix(b"\r") for line in raw.split(b"\n")]
    del lines[-2:]
    return lines or [b""]


def _headers(lines: list[bytes], *, is_request: bool) -> tuple[Headers, dict[bytes, list[bytes]]]:
    """All headers, and the values of those that bear on framing."""
    headers: list[tuple[bytes, bytes]] = []
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not name or name.translate(None, _TOKEN):
            _malformed_line(line, headers, is_request=is_request)
        else:
            headers.append((name.lower(), value.strip(b" \t")))
    framing: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        if name in _FRAMING:
            framing.setdefault(name, []).append(value)
    return tuple(headers), framing


def _malformed_line(line: bytes, headers: list[tuple[bytes, bytes]], *, is_request: bool) -> None:
    """Refuse a line, or in an answer read it as clients do: folded lines are joined, nonsense is skipped."""
    if is_request:
        what = "a folded line" if line[:1] in (b" ", b"\t") else "a malformed line"
        raise HeadError(400, f"{what} among the headers")
    if line[:1] in (b" ", b"\t") and headers:
        name, value = headers.pop()
        headers.append((name, value + b" " + line.strip(b" \t")))
        return
    name, colon, value = line.partition(b":")
    if colon and name.strip():
        headers.append((name.strip().lower(), value.strip(b" \t")))


def _request_length(framing: dict[bytes, list[bytes]], version: bytes) -> int | None:
    codings = framing.get(b"transfer-encoding")
    if codings is None:
        return _content_length(framing.get(b"content-length")) or 0
    if b"content-length" in framing:
        raise HeadError(400, "both Content-Length and Transfer-Encoding")
    if version == b"1.0":
        raise HeadError(400, "Transfer-Encoding in HTTP/1.0")
    if len(codings) != 1 or codings[0].lower() != b"chunked":
        raise HeadError(501, "a Transfer-Encoding other than chunked")
    return None


def _content_length(values: list[bytes] | None) -> int | None:
    if values is None:
        return None
    different = {value.strip(b" \t") for value in b",".join(values).split(b",")}
    if len(different) != 1:
        raise HeadError(400, "differing Content-Lengths")
    value = different.pop()
    if not value.isdigit() or len(value) > 18:
        raise HeadError(400, "a malformed Content-Length")
    return int(value)


def _has_token(values: list[bytes] | tuple[()], token: bytes) -> bool:
    return any(part.strip(b" \t").lower() == token for value in values for part in value.split(b","))
