"""One direction of a TCP connection, put together from its segments (RFC 9293 section 3.4). No IO, no time.

Segments may come in any order, more than once, and cut differently each time; the first copy of a byte counts. Some bytes are
``Untaken``: they have their place and their turn as others. A place is a number of bytes from where the stream was begun, so that
it does not come round as sequence numbers do.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from relive.proxies.ingress._segments import Untaken

__all__ = ["ByteStream"]

_ROUND = 1 << 32
_HALF = 1 << 31
_PIECE_COST = 1024  # [bytes] what a piece that waits counts for besides its data


class ByteStream:
    """Begins with the byte of a sequence number.

    Attributes:
        place: how many bytes were given out.
        ahead: bytes that wait for those before them, and ``_PIECE_COST`` for each piece.
    """

    __slots__ = ("_base", "_end", "_waiting", "ahead", "place")

    def __init__(self, sequence: int) -> None:
        self._base = sequence
        self._waiting: list[tuple[int, bytes | Untaken]] = []
        self._end: int | None = None
        self.place = 0
        self.ahead = 0

    def resume(self, place: int, end: int | None, waiting: Sequence[tuple[int, bytes | Untaken]]) -> None:
        """Go on where another that began with the same byte stands; ``end``: its place, ``waiting``: bytes and their places."""
        self.place, self._end = place, end
        self._waiting = list(waiting)
        self.ahead = sum(_weight(data) for _, data in waiting)

    @property
    def is_plain(self) -> bool:
        """Nothing waits, and it has no end: where it began and its place are all there is to know."""
        return not self._waiting and self._end is None

    @property
    def base(self) -> int:
        """Sequence number of its first byte."""
        return self._base

    def add(self, sequence: int, data: bytes | Untaken) -> list[bytes | Untaken]:
        """Take a segment's bytes; returns those that can be given out now, in order."""
        at = self.place_of(sequence)
        if at == self.place and not self._waiting:
            self.place += len(data)
            return [data]
        if at + len(data) <= self.place:
            return []
        if at > self.place:
            insort(self._waiting, (at, data), key=lambda one: one[0])
            self.ahead += _weight(data)
            return []
        out: list[bytes | Untaken] = []
        self._give(at, data, out)
        while self._waiting and self._waiting[0][0] <= self.place:
            waited_at, waited = self._waiting.pop(0)
            self.ahead -= _weight(waited)
            self._give(waited_at, waited, out)
        return out

    def end_at(self, sequence: int) -> None:
        """A FIN with that sequence number: the stream ends before it."""
        if self._end is None:
            self._end = self.place_of(sequence)

    @property
    def has_ended(self) -> bool:
        """All bytes up to its end were given out."""
        return self._end is not None and self.place >= self._end

    def lacks_before(self, sequence: int) -> bool:
        """Bytes before that sequence number have not come, though the receiver has acknowledged them."""
        place = self.place_of(sequence)
        if self._end is not None:  # FIN takes a number too
            place = min(place, self._end)
        return place > self.place

    def place_of(self, sequence: int) -> int:
        """The place of a sequence number: of all that it can mean, the one nearest to what was given out."""
        off = (sequence - self._base - self.place) % _ROUND
        return self.place + (off if off < _HALF else off - _ROUND)

    def _give(self, at: int, data: bytes | Untaken, out: list[bytes | Untaken]) -> None:
        fresh = data[self.place - at :]
        if fresh:
            self.place += len(fresh)
            out.append(fresh)


def _weight(data: bytes | Untaken) -> int:
    return _PIECE_COST + (0 if isinstance(data, Untaken) else len(data))
