"""What a client speaks, from its first bytes: HTTP/1, whose requests are told apart, or anything else, which is passed on.

Only the first line of a connection is judged. A proxy that held back what is not HTTP would be the end of the service before
which it stands; what merely breaks HTTP is for the framer to refuse.
"""

from __future__ import annotations

import re
from enum import Enum

__all__ = ["Speech", "begins_http2", "speech_of"]

_LINE_MOST = 64 * 1024  # [bytes] no first line is longer
_METHOD_MOST = 32  # [bytes]
_BLANK = re.compile(rb"(?:\r?\n)*\r?")
_REQUEST_LINE = re.compile(rb"[A-Za-z][A-Za-z0-9_-]* [^\n]*HTTP/[0-9][^\n]*", re.DOTALL)
_METHOD = re.compile(rb"[A-Za-z][A-Za-z0-9_-]*")
_HTTP_2 = b"PRI * HTTP/2"
_SETTINGS = re.compile(rb"\0\0.\x04\0\0\0\0\0", re.DOTALL)
_KNOWN = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"TRACE ", b"CONNECT ")
_BINARY = re.compile(rb"[^\t\r\x20-\x7e]")


class Speech(Enum):
    """What a connection carries."""

    HTTP = "http"  # HTTP/1, perhaps malformed
    HTTP_2 = "http2"  # with prior knowledge
    OTHER = "other"


def begins_http2(opening: bytes) -> bool:
    """These are the settings with which a service of HTTP/2 begins, perhaps before its client has said something."""
    return _SETTINGS.match(opening) is not None


def speech_of(opening: bytes) -> Speech | None:
    """Judge the first bytes of a client; None while they can still become either."""
    text = opening[_BLANK.match(opening).end() :]  # type: ignore[union-attr]  # it matches nothing as well
    if not text:
        return None
    if text.startswith(_KNOWN):  # what follows may be wrong, and is then refused as HTTP
        return Speech.HTTP
    line, newline, _ = text.partition(b"\n")
    if newline:
        if line.startswith(_HTTP_2):
            return Speech.HTTP_2
        is_http = _REQUEST_LINE.fullmatch(line) is not None
        return Speech.HTTP if is_http else Speech.OTHER
    word, blank, _ = line.partition(b" ")
    is_word = _METHOD.fullmatch(word) is not None and len(word) <= _METHOD_MOST
    may_be_request = is_word and not _BINARY.search(line) and (blank or b"\r" not in line)
    return None if may_be_request and len(line) <= _LINE_MOST else Speech.OTHER
