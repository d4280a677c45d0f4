"""RESP, the language of Redis: commands and values out of bytes as they come, without IO.

A *said* value is (kind, content), the kind being the byte that it begins with:

    + - = ( ,    bytes: a simple string, an error, a verbatim text with its format, a big number, a double
    $ !          bytes, or None for a null of RESP2
    :            int          #  bool          _  None
    * ~ > %      list of values (``*`` also None); of a map (%) keys and values by turns

Attributes (``|``) are left out of values, though they belong to their bytes. Not spoken by any Redis and refused here: streamed
strings and aggregates. Nothing raises: what is no RESP ends in ``is_broken``, behind which everything is ignored. What is held is
one value that is not whole yet; nothing is reserved for what is only announced.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

__all__ = ["Commands", "RedisCommand", "Said", "Values", "Whole", "encode"]

Said: TypeAlias = tuple[bytes, Any]
_LONGEST_LINE = 64 << 10  # [bytes]
_LONGEST_BULK = 512 << 20  # [bytes] Redis's own limit
_MOST_ARGUMENTS = 1 << 20
_MOST_ITEMS = 1 << 31
_DEEPEST = 128
_AGGREGATES = b"*~>%|"
_BULKS = b"$=!"
_NUMBER_LENGTH = 20


class RedisCommand(NamedTuple):
    """A command: its words, and how many bytes it took with what stood before it."""

    words: list[bytes]
    size: int


class Whole(NamedTuple):
    """A value, and how many bytes it took."""

    said: Said
    size: int


_Found = TypeVar("_Found")


class _Reader(ABC, Generic[_Found]):
    """Bytes that come; what was taken out of them."""

    def __init__(self) -> None:
        self.is_broken = False
        self._held = bytearray()
        self._at = 0  # of what comes next in _held
        self._searched = 0  # no line ends before this offset
        self._taken = 0  # bytes of what is not whole yet
        self._size: int | None = None  # of the bulk that is to come, once it is known

    def feed(self, data: bytes) -> list[_Found]:
        """What these bytes complete."""
        found: list[_Found] = []
        if self.is_broken:
            return found
        self._held += data
        while self._step(found):
            pass
        self._forget()
        return found

    def _step(self, found: list[_Found]) -> bool:
        """Take the next thing; False when it is not whole."""
        if self._size is not None:
            body = self._bulk(self._size)
            if body is None:
                return False
            self._size = None
            self._read_bulk(body, found)
            return True
        line = self._line()
        if line is None:
            return False
        self._read_line(line, found)
        return not self.is_broken

    @abstractmethod
    def _read_bulk(self, body: bytes, found: list[_Found]) -> None:
        """The bulk that was announced."""

    @abstractmethod
    def _read_line(self, line: bytes, found: list[_Found]) -> None:
        """A line where no bulk is due."""

    @property
    def held(self) -> int:
        """Bytes taken in that belong to nothing whole yet."""
        return self._taken + len(self._held) - self._at

    def _line(self) -> bytes | None:
        """The next line without its end; None when it is not whole."""
        end = self._held.find(b"\n", max(self._at, self._searched))
        if end < 0:
            self._searched = len(self._held)
            self.is_broken = self.is_broken or len(self._held) - self._at > _LONGEST_LINE
            return None
        line = bytes(self._held[self._at : end])
        self._taken += end + 1 - self._at
        self._at = end + 1
        return line.removesuffix(b"\r")

    def _bulk(self, size: int) -> bytes | None:
        """So many bytes, and a line's end behind them; None when they are not there yet."""
        if len(self._held) - self._at < size + 2:
            return None
        body = bytes(self._held[self._at : self._at + size])
        if self._held[self._at + size : self._at + size + 2] != b"\r\n":
            self.is_broken = True
            return None
        self._taken += size + 2
        self._at += size + 2
        return body

    def _forget(self) -> None:
        """Let go of what was taken."""
        del self._held[: self._at]
        self._searched = max(0, self._searched - self._at)
        self._at = 0

    def _whole(self) -> int:
        taken, self._taken = self._taken, 0
        return taken


class Commands(_Reader[RedisCommand]):
    """What a client sends: arrays of bulk strings, or lines of words (inline commands)."""

    def __init__(self) -> None:
        super().__init__()
        self._left = 0  # words that are still to come
        self._words: list[bytes] = []

    def _read_bulk(self, body: bytes, found: list[RedisCommand]) -> None:
        self._words.append(body)
        self._left -= 1
        if not self._left:
            found.append(RedisCommand(self._words, self._whole()))
            self._words = []

    def _read_line(self, line: bytes, found: list[RedisCommand]) -> None:
        if self._left:
            self._size = _number(line[1:], _LONGEST_BULK) if line[:1] == b"$" else None
            self.is_broken = self._size is None or self._size < 0
        elif line[:1] == b"*":
            count = _number(line[1:], _MOST_ARGUMENTS)
            self.is_broken = count is None
            self._left = max(0, count or 0)
        else:
            words = _words(line)
            self.is_broken = words is None
            if words:
                found.append(RedisCommand(words, self._whole()))


class Values(_Reader[Whole]):
    """What a server says."""

    def __init__(self) -> None:
        super().__init__()
        # Kind, how many there are to be, those there are.
        self._stack: list[tuple[bytes, int, list[Said]]] = []
        self._bulk_kind = b""

    def _read_bulk(self, body: bytes, found: list[Whole]) -> None:
        self._add((self._bulk_kind, body), found)

    def _read_line(self, line: bytes, found: list[Whole]) -> None:
        kind, rest = line[:1], line[1:]
        if kind and kind in _BULKS:
            size = _number(rest, _LONGEST_BULK)
            self.is_broken = size is None
            if size is not None and size < 0:
                self._add((kind, None), found)
            elif size is not None:
                self._bulk_kind, self._size = kind, size
        elif kind and kind in _AGGREGATES:
            self._begin(kind, _number(rest, _MOST_ITEMS), found)
        else:
            scalar = _scalar(kind, rest)
            self.is_broken = scalar is None
            if scalar is not None:
                self._add(scalar, found)

    def _begin(self, kind: bytes, count: int | None, found: list[Whole]) -> None:
        if count is None or len(self._stack) >= _DEEPEST:
            self.is_broken = True
        elif count < 0:
            self._add((kind, None), found)
        elif count or kind == b"|":
            self._stack.append((kind, count * 2 if kind in b"%|" else count, []))
            if not count:
                self._stack.pop()
        else:
            self._add((kind, []), found)

    def _add(self, said: Said, found: list[Whole]) -> None:
        while self._stack:
            kind, count, items = self._stack[-1]
            items.append(said)
            if len(items) < count:
                return
            self._stack.pop()
            if kind == b"|":
                return  # what it is said of follows
            said = (kind, items)
        found.append(Whole(said, self._whole()))


def encode(said: Said, version: int) -> bytes:
    """A value as a server says it in RESP2 or RESP3."""
    kind, content = said
    if content is None:
        return b"_\r\n" if version == 3 else (b"*-1\r\n" if kind == b"*" else b"$-1\r\n")
    if kind in b"*~>%":
        body = b"".join(encode(one, version) for one in content)
        if version == 3:
            return b"%b%d\r\n%b" % (kind, len(content) // 2 if kind == b"%" else len(content), body)
        return b"*%d\r\n%b" % (len(content), body)
    if kind == b":":
        return b":%d\r\n" % content
    if kind == b"#":
        return (b"#t\r\n" if content else b"#f\r\n") if version == 3 else b":%d\r\n" % bool(content)
    if kind in b"+-" or (version == 3 and kind in b",("):
        return b"%b%b\r\n" % (kind, content)
    if version == 3:
        return b"%b%d\r\n%b\r\n" % (kind, len(content), content)
    if kind == b"!":
        return b"-%b\r\n" % content
    text = content[4:] if kind == b"=" else content
    return b"$%d\r\n%b\r\n" % (len(text), text)


def _scalar(kind: bytes, rest: bytes) -> Said | None:
    if kind in (b"+", b"-", b","):
        return (kind, rest)
    if kind == b":":
        number = _number(rest, 1 << 63, -(1 << 63))
        return None if number is None else (kind, number)
    if kind == b"(":
        return (kind, rest) if rest.removeprefix(b"-").isdigit() else None
    if kind == b"_" and not rest:
        return (kind, None)
    if kind == b"#" and rest in (b"t", b"f"):
        return (kind, rest == b"t")
    return None


def _number(text: bytes, most: int, least: int = -1) -> int | None:
    """A number in these bounds, else None."""
    digits = text[1:] if text[:1] in (b"-", b"+") else text
    if not digits.isdigit() or len(digits) > _NUMBER_LENGTH:
        return None
    number = int(text)
    return number if least <= number <= most else None


def _words(line: bytes) -> list[bytes] | None:
    """The words of an inline command; None where a quotation mark has no partner, or it is no text at all."""
    if any(one < 32 and one not in b"\t\r" for one in line):
        return None
    if b'"' not in line and b"'" not in line:
        return line.split()
    try:
        return [word.encode("latin-1") for word in shlex.split(line.decode("latin-1"))]
    except ValueError:
        return None
