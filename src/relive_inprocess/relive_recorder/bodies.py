"""Bodies of calls and answers: short ones in the event, long ones in files beside the ring, the longest cut.

A body file is named ``PID-N.body`` and holds the bytes, scrubbed; the event's fields say ``{"file": NAME, "bytes": LENGTH}``.
The agent moves it into the recording with the event. While no agent does so, or memory runs out, long bodies are cut to their
first 4096 bytes.

Of a long answer of the service, and of a long value that no replay answers with, only the beginning is kept, and its length: to
copy it, and to look for secrets in all of it, took the service milliseconds for each megabyte. What a replay compares has a
CRC-32 too.
"""

import itertools
import os
import time
import zlib
from typing import Any, Callable, Dict, List, Tuple, Union

from relive_recorder.recorder import REPLAY, recorder
from relive_recorder.values import pack

__all__ = [
    "BEGINNING",
    "CountedBody",
    "beginning",
    "crc32",
    "describe",
    "for_event",
    "has_placeholder",
    "long_from",
    "sum_by",
]

BEGINNING = 1024  # [bytes or characters] that are kept of a long value
_BODY_BEGINNING = 4096  # [bytes] and of a long body
_ROOM = 1 << 30  # [bytes] free, with which files of bodies are kept; or a quarter of a small file system
_LOOKED_THROUGH = 2  # times as much is searched for secrets, since one may go over the end of what is kept
_HEARTBEAT = "agent.alive"  # see ``failure/waiting.py``
_STALE = 60_000_000_000  # [ns] an agent that has been silent for so long takes no files
_mono = time.monotonic_ns
_numbers = itertools.count(1)
_crc32: Callable[[bytes], int] = zlib.crc32


def sum_by(function: Callable[[bytes], int]) -> None:
    """Have ``crc32`` done by this function, which is quicker."""
    global _crc32
    _crc32 = function


def crc32(data: bytes) -> int:
    """As that of ``zlib``."""
    return _crc32(data)


def long_from() -> int:
    """Values of more bytes or characters are long."""
    return int(min(recorder.options.inline_bytes, recorder.options.body_bytes)) // 4 * 4


def beginning(value: Union[str, bytes]) -> Union[str, bytes]:
    """The first 1024 characters or bytes of a long value, without secrets."""
    if isinstance(value, str):
        return recorder.scrubber.text(value[: _LOOKED_THROUGH * BEGINNING])[:BEGINNING]
    return _beginning_of(value, BEGINNING)


def _beginning_of(data: bytes, most: int) -> bytes:
    return _untorn(recorder.scrubber.data(_untorn(data[: _LOOKED_THROUGH * most]))[:most])


def _untorn(data: bytes) -> bytes:
    """Without the beginning of a character at its end, where it is UTF-8."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:
            return data[:-back] if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else data
        if byte < 0x80:
            break
    return data


def has_placeholder(value: Union[str, bytes]) -> bool:
    """In a replay: whether a placeholder stands in it, so that its length and checksum are not those of the recorded value."""
    if recorder.mode() != REPLAY:
        return False
    return "<secret:" in value if isinstance(value, str) else b"<secret:" in value


class CountedBody:
    """A body that comes in pieces, of which only the beginning is held once it is long.

    Attributes:
        bytes: its length so far.
    """

    __slots__ = ("_is_long", "_pieces", "bytes")

    def __init__(self) -> None:
        self._pieces: List[bytes] = []
        self._is_long = False
        self.bytes = 0

    def add(self, piece: bytes) -> None:
        """The next bytes of it."""
        self.bytes += len(piece)
        if self._is_long:
            return
        self._pieces.append(piece)
        if self.bytes > long_from():
            self._is_long = True
            most = _LOOKED_THROUGH * _BODY_BEGINNING
            self._pieces = [b"".join([one[:most] for one in self._pieces])[:most]]

    def for_event(self) -> Tuple[Dict[str, Any], bytes]:
        """As ``for_event`` below, but a long one is cut to its first 4096 bytes, or ``body_bytes``: ``cut`` (int) are missing."""
        if not self._is_long:
            return for_event(b"".join(self._pieces))
        most = min(_BODY_BEGINNING, recorder.options.body_bytes)
        return {"bytes": self.bytes, "cut": self.bytes - most}, _beginning_of(self._pieces[0], most)


def for_event(body: bytes) -> Tuple[Dict[str, Any], bytes]:
    """What goes into an event: fields about the body, and the bytes to keep in the event itself.

    Fields: ``bytes`` (int, of the whole body); ``file`` (str) where it lies in a file; ``cut`` (int, bytes that are missing at
    the end) and ``blake2b`` (hex, 16 bytes, of the whole) when not all was kept.

    Raises:
        OSError: the file cannot be written.
    """
    options = recorder.options
    fields: Dict[str, Any] = {"bytes": len(body)}
    kept = body
    most = options.body_bytes
    if len(body) > options.inline_bytes and not _is_room():
        most = _BODY_BEGINNING
    if len(body) > most:
        kept = body[:most]
        fields.update(cut=len(body) - len(kept), blake2b=_digest(body))
    kept = recorder.scrubber.data(kept)
    if len(kept) <= options.inline_bytes:
        return fields, kept
    name = f"{os.getpid()}-{next(_numbers)}.body"
    with open(f"{options.rings}/{name}", "xb") as file:
        file.write(kept)
    fields["file"] = name
    return fields, b""


def _is_room() -> bool:
    """Whether somebody takes body files away: they lie in memory, which the service needs."""
    rings = recorder.options.rings
    try:
        if _mono() - os.stat(f"{rings}/{_HEARTBEAT}").st_mtime_ns > _STALE:
            return False
    except OSError:  # nobody has begun to take them, as in a branch
        pass
    found = os.statvfs(rings)
    return found.f_bavail * found.f_frsize >= min(found.f_blocks * found.f_frsize // 4, _ROOM)


def describe(body: bytes) -> Any:
    """What was sent along, for ``asked``: a packed value when it is short, else its length and digest."""
    if len(body) <= recorder.options.inline_bytes:
        return recorder.scrubber.packed(_text_or_bytes(body))
    return {"bytes": len(body), "blake2b": _digest(body)}


def _text_or_bytes(body: bytes) -> Any:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return pack(body)


def _digest(body: bytes) -> str:
    from _blake2 import blake2b  # hashlib brings OpenSSL with it, which takes milliseconds

    return blake2b(body, digest_size=16).hexdigest()
