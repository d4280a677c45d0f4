"""Content codings of bodies taken off, bounded: a few bytes may unpack to gigabytes."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

__all__ = ["coding_of", "decoded"]

_MOST = 1 << 20  # [bytes] of an unpacked body
_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
_PLAIN = frozenset({"", "identity"})


def coding_of(headers: Iterable[tuple[str, str]]) -> str:
    """The content coding that headers tell, in lower case; empty when there is none."""
    return next((value.strip().lower() for name, value in headers if name.lower() == "content-encoding"), "")


def decoded(data: bytes, coding: str) -> bytes | None:
    """The body as it was before the coding, its first MiB at most; None for a coding, or bytes, that cannot be read here.

    Of a body whose end is missing it is what the rest tells.
    """
    if coding in _PLAIN or not data:
        return data
    window = _WINDOWS.get(coding)
    if window is None:
        return None
    try:
        return zlib.decompressobj(window).decompress(data, _MOST)
    except zlib.error:
        return None
