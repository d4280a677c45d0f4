"""Chunked transfer coding: following it through raw bytes, and taking it off."""

from __future__ import annotations

import contextlib
import re

__all__ = ["ChunkError", "ChunkedBody", "dechunk"]

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\x00\r\n]*)?\r\n")
_TRAILER_LINE = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\x00\r\n]*\r\n")
_MAX_LINE_BYTES = 16 * 1024
_MAX_TRAILER_BYTES = 64 * 1024
_SIZE, _DATA, _DATA_END, _TRAILERS = range(4)


class ChunkError(Exception):
    """Bytes that are no chunk framing. Never leaves this room."""


class ChunkedBody:
    """Where we are in one chunked body."""

    __slots__ = ("_left", "_line", "_state", "_trailer_bytes")

    def __init__(self) -> None:
        self._state = _SIZE
        self._left = 0
        self._line = b""  # of a line that is not whole yet
        self._trailer_bytes = 0

    def advance(self, data: bytes, kept: list[bytes] | None = None) -> int | None:
        """Follow the framing through ``data``; the payload is added to ``kept`` if there is one.

        Returns:
            The offset at which the body ends, or None if it goes on behind ``data``.

        Raises:
            ChunkError: the framing is not exactly as RFC 9112 section 7.1 has it.
        """
        at, size = 0, len(data)
        while at < size:
            if self._state == _DATA:
                take = min(self._left, size - at)
                if kept is not None:
                    kept.append(data[at : at + take])
                at += take
                self._left -= take
                if not self._left:
                    self._state = _DATA_END
                continue
            end = data.find(b"\n", at) + 1
            line = self._line + (data[at:end] if end else data[at:])
            if len(line) > _MAX_LINE_BYTES:
                raise ChunkError("a line of the chunk framing is too long")
            if not end:
                self._line = line
                return None
            self._line = b""
            at = end
            if self._read_line(line):
                return at
        return None

    def _read_line(self, line: bytes) -> bool:
        """Go on to what follows the line; True if the body ends with it."""
        if self._state == _SIZE:
            match = _SIZE_LINE.fullmatch(line)
            if match is None:
                raise ChunkError("a malformed chunk size")
            self._left = int(match[1], 16)
            self._state = _DATA if self._left else _TRAILERS
        elif self._state == _DATA_END:
            if line != b"\r\n":
                raise ChunkError("a chunk is longer than its size")
            self._state = _SIZE
        else:
            if line == b"\r\n":
                return True
            self._trailer_bytes += len(line)
            if _TRAILER_LINE.fullmatch(line) is None or self._trailer_bytes > _MAX_TRAILER_BYTES:
                raise ChunkError("a malformed or too long trailer")
        return False


def dechunk(raw: bytes) -> bytes:
    """The payload of a chunked body, as far as it goes: a cut or malformed rest is left out."""
    kept: list[bytes] = []
    with contextlib.suppress(ChunkError):
        ChunkedBody().advance(raw, kept)
    return b"".join(kept)
