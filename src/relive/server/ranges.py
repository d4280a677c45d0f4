"""Which bytes a request asks for: the headers Range and If-Range, by RFC 9110, sections 13.1.5 and 14.2."""

from __future__ import annotations

import re
from typing import NamedTuple

from relive.errors import RangeUnsatisfiable

__all__ = ["ByteRange", "wanted"]

# Digits of ASCII only, and so few that making a number of them costs nothing.
_SINGLE = re.compile(r"bytes[ \t]*=[ \t]*([0-9]{0,30})-([0-9]{0,30})[ \t]*", re.ASCII | re.IGNORECASE)


class ByteRange(NamedTuple):
    """Bytes ``begin`` up to, without, ``end``; there is at least one."""

    begin: int
    end: int


def wanted(range_: str | None, if_range: str | None, *, size: int, etag: str) -> ByteRange | None:
    """The span that is asked for; None: the whole file.

    The whole file is also the answer to what a server may ignore: another unit than bytes, several ranges, a header that cannot be
    read; and where ``if_range`` names another state than ``etag`` (a date always does: the file has none).

    Raises:
        RangeUnsatisfiable: no byte of the file is in the range.
    """
    match = _SINGLE.fullmatch(range_) if range_ is not None else None
    if match is None or (if_range is not None and if_range.strip() != etag):
        return None
    first, last = match.groups()
    if first and last and int(last) < int(first):
        return None  # not a range
    if first:
        begin, end = int(first), min(size, int(last) + 1) if last else size
    elif last:
        begin, end = max(0, size - int(last)), size
    else:
        return None
    if begin >= end:
        raise RangeUnsatisfiable(
            "no byte of the file is in the range",
            cause=f"it is {size} bytes long, and bytes from {begin} on are asked for",
            remedy="it may be that all of it has arrived already",
        )
    return ByteRange(begin, end)
