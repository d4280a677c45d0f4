"""Messages of PostgreSQL's protocol 3.0 and 3.2, cut out of the two directions of a connection as their bytes come.

Layout (chapter "Frontend/Backend Protocol" of PostgreSQL's manual, "Message Formats"): a letter, Int32 length (of itself and what
follows), content. The first packets of the frontend have no letter; each is answered, where it asks for encryption, by one byte
without a length.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

__all__ = ["BYTE", "CANCEL", "GSSENC", "SSL", "STARTUP", "BackendFramer", "FrontendFramer", "Message"]

# Kinds of what has no letter.
STARTUP: Final = "startup"
SSL: Final = "ssl"
GSSENC: Final = "gssenc"
CANCEL: Final = "cancel"
BYTE: Final = "byte"

_CODES = {80877102: CANCEL, 80877103: SSL, 80877104: GSSENC}
_MAJOR = 3
_LONGEST_OPENING = 10_000  # [bytes] MAX_STARTUP_PACKET_LENGTH
_LONGEST = (1 << 30) - 1  # [bytes] MaxAllocSize: what a server takes at most
_SHORT = frozenset("CDEHSXc")  # of the frontend; PQ_SMALL_MESSAGE_LIMIT
_SHORT_MOST = 10_000
_FROM_FRONTEND = frozenset("BCDEFHPQSXcdfp")
_FROM_BACKEND = frozenset("123ACDEGHIKNRSTVWZcdnstv")
_HEAD = struct.Struct("!cI")


class Message(NamedTuple):
    """One message.

    Attributes:
        kind: its letter, or one of the words above.
        body: what follows the length.
        begin, end: places of its first byte and behind its last one.
    """

    kind: str
    body: bytes
    begin: int
    end: int


class _Framer:
    """Bytes in, messages out. Never raises; memory is taken for bytes that have come, never for a length that was told.

    Attributes:
        broken: why no more messages can be told, None as long as they can.
        place: of the first byte that belongs to no message yet.
    """

    def __init__(self, letters: frozenset[str], place: int) -> None:
        self.broken: str | None = None
        self.place = place
        self._letters = letters
        self._data = bytearray()
        self._at = 0  # of the first byte in _data that belongs to no message yet

    @property
    def rest(self) -> bytes:
        """What has come and belongs to no message yet."""
        return bytes(self._data[self._at :])

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are whole now."""
        self._data += data
        found: list[Message] = []
        while self.broken is None and (message := self._next()) is not None:
            found.append(message)
        if self._at:
            del self._data[: self._at]
            self._at = 0
        return found

    def _next(self) -> Message | None:
        return self._lettered()

    def _lettered(self) -> Message | None:
        if len(self._data) - self._at < 5:
            letter = chr(self._data[self._at]) if len(self._data) > self._at else ""
            if letter and letter not in self._letters:
                self.broken = f"a message of type {letter!r}"
            return None
        raw, length = _HEAD.unpack_from(self._data, self._at)
        letter = raw.decode("latin-1")
        if letter not in self._letters:
            self.broken = f"a message of type {letter!r}"
        elif length < 4 or length > self._most(letter):
            self.broken = f"a message {letter!r} with a length of {length}"
        elif len(self._data) - self._at > length:
            return self._cut(letter, 5, length + 1)
        return None

    def _most(self, _letter: str) -> int:
        return _LONGEST

    def _cut(self, kind: str, head: int, size: int) -> Message:
        body = bytes(self._data[self._at + head : self._at + size])
        message = Message(kind, body, self.place, self.place + size)
        self._at += size
        self.place += size
        return message


class FrontendFramer(_Framer):
    """What a client sends.

    Args:
        place: of the first byte that will be fed.
        opened: the connection's opening packets are behind it.
    """

    def __init__(self, place: int = 0, *, opened: bool = False) -> None:
        super().__init__(_FROM_FRONTEND, place)
        self._opened = opened

    def _next(self) -> Message | None:
        return self._lettered() if self._opened else self._opening()

    def _opening(self) -> Message | None:
        if len(self._data) - self._at < 8:
            return None
        length, code = struct.unpack_from("!II", self._data, self._at)
        kind = _CODES.get(code, STARTUP if code >> 16 == _MAJOR else None)
        if kind is None or not 8 <= length <= _LONGEST_OPENING:
            self.broken = f"no opening of a connection: length {length}, code {code}"
        elif len(self._data) - self._at >= length:
            self._opened = kind == STARTUP
            return self._cut(kind, 4, length)
        return None

    def _most(self, _letter: str) -> int:
        return _SHORT_MOST if _letter in _SHORT else _LONGEST


class BackendFramer(_Framer):
    """What a server sends."""

    def __init__(self, place: int = 0) -> None:
        super().__init__(_FROM_BACKEND, place)
        self._bytes = 0

    def expect_bytes(self, count: int) -> None:
        """So many requests for encryption were sent: each is answered by a byte (or an error message)."""
        self._bytes += count

    def _next(self) -> Message | None:
        if self._bytes and self._at < len(self._data):
            self._bytes -= 1
            if self._data[self._at] != ord("E"):
                return self._cut(BYTE, 0, 1)
        return self._lettered()
